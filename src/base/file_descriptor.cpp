// SPDX-License-Identifier: BSD-3-Clause
#include "base/file_descriptor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <limits>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "base/cancellation.hpp"

namespace rdmabuf {

void UniqueFd::reset(int fd) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old < 0) {
        return;
    }
    // close(2) is a cancellation point. With glibc, pthread_cancel(3) would end the process in this
    // noexcept function.
    const detail::CancellationDisabled uncancelled;
    // If close(2) fails with EINTR, Linux has closed the descriptor nevertheless: see "Dealing with
    // error returns from close()" in close(2).
    if (::close(old) != 0 && errno != EINTR) {
        detail::report_teardown_failure("close", errno);
    }
}

UniqueFd UniqueFd::duplicate() const {
    UniqueFd copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
    detail::check_zero(copy ? 0 : errno, "fcntl");
    return copy;
}

namespace detail {
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

} // namespace detail
} // namespace rdmabuf
