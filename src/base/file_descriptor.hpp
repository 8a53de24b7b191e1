// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>

namespace rdmabuf::detail {

/// ioctl(2) that is repeated when a signal interrupts it, and on EAGAIN, as drmIoctl() does it.
inline int ioctl_retrying(int fd, unsigned long request, void* argument) noexcept {
    int result = 0;
    do {
        result = ::ioctl(fd, request, argument);
    } while (result < 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

/// A timeout that began to run when this was made: for operations that take several waits.
class Deadline {
  public:
    /// @param timeout  negative for never
    explicit Deadline(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

    /// What is left of it, rounded up so that nobody spins through the last millisecond; zero when
    /// it has run out, negative for ever. As wait_readable() takes it.
    [[nodiscard]] std::chrono::milliseconds left() const noexcept {
        if (timeout_.count() < 0) {
            return timeout_;
        }
        const auto elapsed = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - start_);
        return std::max(timeout_ - elapsed, std::chrono::milliseconds(0));
    }

    /// Of what is left, one of @p parts equal parts.
    [[nodiscard]] Deadline part(std::size_t parts) const noexcept {
        const std::chrono::milliseconds rest = left();
        return Deadline(
            rest.count() < 0 ? rest : rest / static_cast<std::chrono::milliseconds::rep>(parts));
    }

    /// "500 ms"
    [[nodiscard]] std::string describe() const {
        return timeout_.count() < 0 ? "no limit" : std::to_string(timeout_.count()) + " ms";
    }

  private:
    using Clock = std::chrono::steady_clock;

    std::chrono::milliseconds timeout_;
    Clock::time_point start_ = Clock::now();
};

/// Waits until @p fd is readable. Signals do not shorten the wait.
/// @param timeout  zero polls; negative waits for ever
/// @return false when the time has run out
/// @throws Error what poll(2) says
bool wait_readable(int fd, std::chrono::milliseconds timeout);
/// Waits until @p fd is writable; otherwise as wait_readable().
bool wait_writable(int fd, std::chrono::milliseconds timeout);

/// Sets O_NONBLOCK on @p fd. When several threads wait for the same descriptor, one of them reads
/// it, and the others must not block in their read.
/// @throws Error what fcntl(2) says
void make_nonblocking(int fd);

} // namespace rdmabuf::detail
