// SPDX-License-Identifier: BSD-3-Clause
#include <sys/ioctl.h>

#include <cerrno>

#include <rdmabuf/detail/ioctl.hpp>

namespace rdmabuf {

int detail::ioctl_retrying(int fd, unsigned long request, void* argument) noexcept {
    int result = -1;
    do {
        result = ::ioctl(fd, request, argument);
    } while (result < 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

} // namespace rdmabuf
