// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>

namespace rdmabuf::detail {

/// Calls ioctl(2) again as long as it fails with EINTR (interrupted by a signal) or EAGAIN, like
/// drmIoctl() of libdrm. Returns the result of the last ioctl(2).
inline int ioctl_retrying(int fd, unsigned long request, void* argument) noexcept {
    int result = 0;
    do {
        result = ::ioctl(fd, request, argument);
    } while (result < 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

/// Measures a timeout from the construction of this object. An operation that waits several times
/// uses one Deadline for all waits.
class Deadline {
  public:
    /// @param timeout  a negative timeout never expires
    explicit Deadline(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

    /// Returns the remaining time in milliseconds: zero after the timeout, negative if the timeout
    /// never expires. The time is rounded up: if it were zero during the last millisecond, a caller
    /// that waits for this time would poll in a busy loop.
    [[nodiscard]] std::chrono::milliseconds left() const noexcept {
        if (timeout_.count() < 0) {
            return timeout_;
        }
        const auto elapsed = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start_);
        return std::max(timeout_ - elapsed, std::chrono::milliseconds(0));
    }

    /// Returns a new deadline that expires after the remaining time divided by @p parts. The result
    /// never expires if this deadline never expires.
    [[nodiscard]] Deadline part(std::size_t parts) const noexcept {
        const std::chrono::milliseconds rest = left();
        return Deadline(
            rest.count() < 0 ? rest : rest / static_cast<std::chrono::milliseconds::rep>(parts));
    }

    /// Returns the whole timeout as text: "500 ms", or "no limit" for a negative timeout.
    [[nodiscard]] std::string describe() const {
        return timeout_.count() < 0 ? "no limit" : std::to_string(timeout_.count()) + " ms";
    }

  private:
    using Clock = std::chrono::steady_clock;

    std::chrono::milliseconds timeout_;
    Clock::time_point start_ = Clock::now();
};

/// Waits until @p fd is readable, or has an error or a hang-up (POLLERR, POLLHUP). A signal does
/// not end the wait.
/// @param timeout  zero polls once; a negative timeout waits forever
/// @return false if the timeout expired
/// @throws Error with the errno value of poll(2)
bool wait_readable(int fd, std::chrono::milliseconds timeout);
/// Waits until @p fd is writable, or has an error or a hang-up. This function has the same
/// parameters, result and errors as wait_readable().
bool wait_writable(int fd, std::chrono::milliseconds timeout);

/// Sets O_NONBLOCK on @p fd. Several threads may wait for the same descriptor: after one thread has
/// read the event, read(2) in another thread must not block.
/// @throws Error with the errno value of fcntl(2)
void make_nonblocking(int fd);

} // namespace rdmabuf::detail
