// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::detail {

/// The number of calls of fork(2) between the process that loaded librdmabuf and this process.
/// pthread_atfork(3) counts them.
[[nodiscard]] RDMABUF_EXPORT unsigned fork_generation() noexcept;

/// The process that created an object. A child by fork(2) has copies of the objects of its parent,
/// whose destructors must not destroy the verbs objects of the parent: docs/fork.md.
class CreatorProcess {
  public:
    /// Whether this is still the process that created the object, and not its child.
    [[nodiscard]] bool is_current() const noexcept { return generation_ == fork_generation(); }

  private:
    unsigned generation_ = fork_generation();
};

} // namespace rdmabuf::detail
