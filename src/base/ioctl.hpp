// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/ioctl.h>

#include <cerrno>

namespace rdmabuf::detail {

/// ioctl(2) that is repeated when a signal interrupts it, and on EAGAIN, as drmIoctl() does it.
inline int ioctl_retrying(int fd, unsigned long request, void* argument) noexcept {
    int result = 0;
    do {
        result = ::ioctl(fd, request, argument);
    } while (result < 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

} // namespace rdmabuf::detail
