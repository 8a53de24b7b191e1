// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Owns a file descriptor. An object with the value -1 owns no descriptor; 0 is a valid descriptor.
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

    /// Returns the descriptor and gives up ownership: the caller must close the descriptor.
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

    /// Closes the current descriptor, then takes ownership of @p fd. If close(2) fails, the
    /// teardown failure handler is called, for example with EBADF if other code has already closed
    /// the descriptor. EINTR is ignored, because Linux has then closed the descriptor.
    void reset(int fd = -1) noexcept;

    /// Returns a close-on-exec duplicate of the descriptor (F_DUPFD_CLOEXEC of fcntl(2)).
    /// @throws Error with the errno value of fcntl(2): EBADF if this object owns no descriptor;
    ///         EMFILE at the process's limit of descriptors
    [[nodiscard]] UniqueFd duplicate() const;

  private:
    int fd_ = -1;
};

} // namespace rdmabuf
