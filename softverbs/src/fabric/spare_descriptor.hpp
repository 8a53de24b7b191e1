// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Prints that another process cannot connect to this process, because this process has reached its
/// limit of open file descriptors (ulimit -n).
void report_descriptor_limit() noexcept;

/// An unused file descriptor. When this process has reached its limit of open file descriptors, the
/// unused one is closed, so that one pending connection can be accepted and closed. Otherwise that
/// connection would stay in the listen queue: epoll would report the listening socket again and
/// again, and the process at the other end would wait forever.
class SpareDescriptor {
  public:
    /// @throws std::system_error  if /dev/null cannot be opened, for example EMFILE
    SpareDescriptor();

    /// Must be called after accept4(2) on @p listener has failed. If errno is EMFILE or ENFILE,
    /// accepts one pending connection, closes it, and prints on stderr that the limit of open file
    /// descriptors was reached. Returns whether the caller can call accept4(2) again.
    [[nodiscard]] bool reject(int listener) noexcept;
    /// Called in a child process after fork(2). Closes the file descriptor.
    void close() noexcept { fd_.reset(); }

  private:
    UniqueFd fd_;
};

} // namespace softverbs::fabric
