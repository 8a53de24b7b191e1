// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::detail {

/// ioctl(2), made again for as long as it fails with EINTR or EAGAIN: dma-buf and DRM drivers use
/// both to say "now is a bad moment". Returns what the call returns: -1 with errno when it fails.
RDMABUF_EXPORT int ioctl_retrying(int fd, unsigned long request, void* argument) noexcept;

} // namespace rdmabuf::detail
