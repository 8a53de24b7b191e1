// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// "udmabuf": dma-bufs over ordinary memory (a sealed memfd), made by /dev/udmabuf. Needs
/// CONFIG_UDMABUF and permission to open the device; a buffer is limited by the module's
/// size_limit_mb. drivers/dma-buf/udmabuf.c.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_udmabuf_exporter();

} // namespace rdmabuf
