// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace softverbs::fabric {

/// Disables pthread_cancel(3) for this thread while the object exists. Needed around code that
/// calls cancellation points, such as write(2), but must not be cancelled.
class NoCancellation {
  public:
    NoCancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { ::pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

// These functions make system calls with syscall(2), which is not a cancellation point.
// ibv_post_send() and ibv_poll_cq() must not be cancellation points, but eventfd_write(3),
// eventfd_read(3) and poll(2) are. The class NoCancellation would be too slow on the data path.

/// Increments the counter of the eventfd @p fd, which wakes the threads that wait for the eventfd.
/// If the counter of a non-blocking eventfd is at its maximum, 2^64 - 2, does nothing. The counter
/// of a blocking eventfd must not reach the maximum, because this function would then block.
inline void signal_eventfd(int fd) noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::syscall(SYS_write, fd, &one, sizeof one));
}

/// Sets the counter of a non-blocking eventfd to 0. Returns whether it was not 0 before.
inline bool clear_eventfd(int fd) noexcept {
    std::uint64_t count = 0;
    return ::syscall(SYS_read, fd, &count, sizeof count) == sizeof count;
}

/// Returns the current poll(2) events of a file descriptor, without waiting: those of @p events
/// that have occurred, and POLLERR, POLLHUP or POLLNVAL.
inline short poll_now(int fd, short events) noexcept {
    pollfd descriptor{.fd = fd, .events = events, .revents = 0};
    timespec no_wait{0, 0};
    return ::syscall(SYS_ppoll, &descriptor, 1, &no_wait, nullptr, 0) > 0 ? descriptor.revents
                                                                          : short{0};
}

} // namespace softverbs::fabric
