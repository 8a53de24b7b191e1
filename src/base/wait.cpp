// SPDX-License-Identifier: BSD-3-Clause
#include "base/wait.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <rdmabuf/detail/check.hpp>

#include "base/deadline.hpp"

namespace rdmabuf::detail {
namespace {

bool wait_ready(int fd, short events, std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    pollfd request{.fd = fd, .events = events, .revents = 0};
    while (true) {
        const auto left = std::min<std::chrono::milliseconds::rep>(deadline.left().count(),
                                                                   std::numeric_limits<int>::max());
        const int ready = ::poll(&request, 1, left < 0 ? -1 : static_cast<int>(left));
        if (ready > 0) {
            return true;
        }
        if (ready == 0 && left == 0) {
            return false;
        }
        check_zero(ready == 0 || errno == EINTR ? 0 : errno, "poll");
    }
}

} // namespace

bool wait_readable(int fd, std::chrono::milliseconds timeout) {
    return wait_ready(fd, POLLIN, timeout);
}

bool wait_writable(int fd, std::chrono::milliseconds timeout) {
    return wait_ready(fd, POLLOUT, timeout);
}

void make_nonblocking(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    check_zero(flags < 0 ? -1 : 0, "fcntl");
    if ((flags & O_NONBLOCK) == 0) {
        check_zero(::fcntl(fd, F_SETFL, flags | O_NONBLOCK), "fcntl");
    }
}

} // namespace rdmabuf::detail
