// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::detail {

/// Returns how many calls of fork(2) lie between the process that loaded librdmabuf and this
/// process. A handler of pthread_atfork(3) counts the calls.
[[nodiscard]] RDMABUF_EXPORT unsigned fork_generation() noexcept;

/// Remembers the process that created an object. A child of fork(2) has copies of the objects of
/// its parent process. The destructors of these copies must not destroy the verbs objects of the
/// parent process: docs/fork.md.
class CreatorProcess {
  public:
    /// Returns true in the process that created the object, and false in a child of fork(2).
    [[nodiscard]] bool is_current() const noexcept { return generation_ == fork_generation(); }

  private:
    unsigned generation_ = fork_generation();
};

} // namespace rdmabuf::detail
