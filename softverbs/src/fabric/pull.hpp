// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/message.hpp"

namespace softverbs::fabric {

/// Random bytes in this process's memory. Who can read them there with process_vm_readv(2) has
/// found the right process, and is permitted to.
class Cookie {
  public:
    Cookie() noexcept;

    /// Says in a hello or a welcome where the cookie is and what it is.
    void tell(Message& message) const noexcept;

  private:
    std::array<std::byte, cookie_bytes> bytes_{};
};

/// Whether process @p pid has the cookie where @p told says it is, and this process can read it.
[[nodiscard]] bool finds_cookie(pid_t pid, const Message& told) noexcept;

/// Reads from another process's memory. 0 or an errno: EFAULT, ESRCH, EPERM.
[[nodiscard]] int read_process(pid_t pid, std::uint64_t address,
                               std::span<std::byte> into) noexcept;

/// Writes to another process's memory, the last 8 bytes after all others: a program that waits for
/// the end of a message finds the rest of it there. False: not all of it was written.
[[nodiscard]] bool write_process(pid_t pid, std::uint64_t address,
                                 std::span<const std::byte> bytes) noexcept;

/// What SOFTVERBS_PULL says: whether processes may read each other's memory where the system
/// permits it ("process_vm", and when it is not set), or send all bytes in records ("none").
/// @throws std::system_error EINVAL for anything else.
[[nodiscard]] bool pull_wanted();

} // namespace softverbs::fabric
