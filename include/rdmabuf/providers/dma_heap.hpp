// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// The heaps of this machine: the names under /dev/dma_heap, sorted. Empty when there are none.
[[nodiscard]] RDMABUF_EXPORT std::vector<std::string> list_dma_heaps();

/// "dma_heap": dma-bufs from /dev/dma_heap/@p heap. Needs CONFIG_DMABUF_HEAPS.
/// A heap that does not exist is no error here: availability() and allocate() say so, and list the
/// heaps there are. drivers/dma-buf/dma-heap.c.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_dma_heap_exporter(
    std::string heap = "system");

} // namespace rdmabuf
