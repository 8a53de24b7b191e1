// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace softverbs::fabric {

/// Owns a file descriptor. The value -1 means that it owns none.
class UniqueFd {
  public:
    UniqueFd() noexcept = default;
    /// Takes ownership of the file descriptor @p fd. -1: no file descriptor.
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        reset(other.release());
        return *this;
    }
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    /// Returns the file descriptor. The caller then owns it and must close it.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    /// Closes the file descriptor of this object, and takes ownership of @p fd.
    void reset(int fd = -1) noexcept {
        const int old = std::exchange(fd_, fd);
        if (old >= 0) {
            // close() is a cancellation point; the raw system call is not.
            ::syscall(SYS_close, old);
        }
    }

  private:
    int fd_ = -1;
};

} // namespace softverbs::fabric
