// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// "memfd": ordinary memory in a sealed memfd, as the stand-in for dma-bufs on machines whose
/// kernel has none to give. What it exports is the memfd itself, and that is no dma-buf: of all
/// devices only those of softverbs take it for one. A kernel refuses to register it with EINVAL,
/// since dma_buf_get() of drivers/dma-buf/dma-buf.c does. Not in Resolver::system(), so that no
/// real device is offered one unless a program asks for it: Resolver({make_memfd_exporter()}).
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_memfd_exporter();

} // namespace rdmabuf
