// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Returns the sorted names of this machine's dma-buf heaps (the files in /dev/dma_heap). The list
/// is empty if this directory does not exist.
/// @throws Error with the errno of opendir(3)
[[nodiscard]] RDMABUF_EXPORT std::vector<std::string> list_dma_heaps();

/// Returns the exporter "dma_heap", which allocates dma-bufs from the heap /dev/dma_heap/@p heap.
/// The kernel needs CONFIG_DMABUF_HEAPS (drivers/dma-buf/dma-heap.c). If the heap does not exist,
/// this function succeeds, availability() is not available, and allocate() throws ENOENT. Both
/// texts list the existing heaps.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_dma_heap_exporter(
    std::string heap = "system");

} // namespace rdmabuf
