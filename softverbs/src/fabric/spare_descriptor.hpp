// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Prints that this process cannot accept a connection or receive descriptors, because it has
/// reached its limit of open files.
void report_descriptor_limit() noexcept;

/// An unused descriptor. It is closed when the process has reached its limit of open files, so that
/// one pending connection can be accepted and closed. Otherwise that connection would stay in the
/// listen queue: epoll would report the listening socket again and again, and the process at the
/// other end would wait forever.
class SpareDescriptor {
  public:
    /// @throws std::system_error  EMFILE
    SpareDescriptor();

    /// Must be called after accept4(2) on @p listener has failed. If errno is EMFILE or ENFILE,
    /// accepts one pending connection, closes it and reports the limit on stderr. Returns whether
    /// accept4(2) can be called again.
    [[nodiscard]] bool reject(int listener) noexcept;
    /// Called in a child process after fork(2). Closes the descriptor.
    void close() noexcept { fd_.reset(); }

  private:
    UniqueFd fd_;
};

} // namespace softverbs::fabric
