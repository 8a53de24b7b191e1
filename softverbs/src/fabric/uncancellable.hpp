// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace softverbs::fabric {

// System calls of the data path, through syscall(2). ibv_post_send() and ibv_poll_cq() must not be
// cancellation points, but eventfd_write(3), eventfd_read(3) and poll(2) are. NoCancellation would
// be too slow here.

/// Increments the counter of an eventfd, which wakes the threads that wait for the eventfd. A
/// non-blocking eventfd keeps its counter at the maximum, 2^64 - 2. The counter of a blocking one
/// must not reach the maximum.
inline void signal_eventfd(int fd) noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::syscall(SYS_write, fd, &one, sizeof one));
}

/// Sets the counter of a non-blocking eventfd to 0. Returns whether it was not 0 before.
inline bool clear_eventfd(int fd) noexcept {
    std::uint64_t count = 0;
    return ::syscall(SYS_read, fd, &count, sizeof count) == sizeof count;
}

/// Returns the poll(2) events of a descriptor without waiting: some of @p events, POLLERR, POLLHUP
/// and POLLNVAL.
inline short poll_now(int fd, short events) noexcept {
    pollfd descriptor{.fd = fd, .events = events, .revents = 0};
    timespec no_wait{0, 0};
    return ::syscall(SYS_ppoll, &descriptor, 1, &no_wait, nullptr, 0) > 0 ? descriptor.revents
                                                                          : short{0};
}

} // namespace softverbs::fabric
