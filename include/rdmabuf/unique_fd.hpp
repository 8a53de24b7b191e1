// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Owns a file descriptor. 0 is a descriptor like any other; -1 means none.
class RDMABUF_EXPORT UniqueFd {
  public:
    UniqueFd() noexcept = default;
    /// Takes ownership of @p fd, which may be -1.
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

    /// Gives the descriptor to the caller, who closes it.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    /// Closes the descriptor held, then holds @p fd. A close(2) that fails goes to the teardown
    /// failure handler (EBADF: somebody else closed it).
    void reset(int fd = -1) noexcept;

    /// A second descriptor of the same file, close-on-exec.
    /// @throws Error EBADF when none is held, EMFILE at the process's limit. fcntl(2), F_DUPFD.
    [[nodiscard]] UniqueFd duplicate() const;

  private:
    int fd_ = -1;
};

} // namespace rdmabuf
