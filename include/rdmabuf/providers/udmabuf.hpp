// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Returns the exporter "udmabuf", which creates dma-bufs from host memory (a sealed memfd) with
/// /dev/udmabuf. The kernel needs CONFIG_UDMABUF, and the process needs permission to open the
/// device. The module parameter size_limit_mb limits the size of a buffer. See
/// drivers/dma-buf/udmabuf.c.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_udmabuf_exporter();

} // namespace rdmabuf
