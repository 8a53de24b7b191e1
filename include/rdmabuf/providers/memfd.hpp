// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Returns the exporter "memfd", which allocates ordinary memory in a sealed memfd. It is a
/// substitute on machines whose kernel provides no dma-bufs. It exports the memfd itself, which is
/// not a dma-buf and which only devices of softverbs accept. If a memfd is registered on a real
/// device, the kernel fails with EINVAL (dma_buf_get() in drivers/dma-buf/dma-buf.c). The exporter
/// is not part of Resolver::system(), so that no real device gets a memfd. A program adds the
/// exporter explicitly: Resolver({make_memfd_exporter()}).
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_memfd_exporter();

} // namespace rdmabuf
