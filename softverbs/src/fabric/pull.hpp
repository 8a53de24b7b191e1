// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/message.hpp"

namespace softverbs::fabric {

/// Random bytes in the memory of this process, with which another process checks whether it can
/// read this memory. The other process reads the cookie with process_vm_readv(2) and compares it
/// with the bytes in the "hello" or "welcome" message of this process. If they are equal, the
/// kernel permits the access, and the other process uses the correct PID for this process.
class Cookie {
  public:
    Cookie() noexcept;

    /// Stores the address and the bytes of the cookie in a "hello" or "welcome" message.
    void store_in(Message& message) const noexcept;

  private:
    std::array<std::byte, cookie_bytes> bytes_{};
};

/// Returns whether this process can read memory of the process @p pid, and this memory contains the
/// cookie (random bytes) of @p message at the address in @p message.
[[nodiscard]] bool finds_cookie(pid_t pid, const Message& message) noexcept;

/// Reads memory of another process. Returns 0 or an errno: EFAULT (the address is not mapped),
/// ESRCH (there is no such process), EPERM (the kernel does not permit the access), ENOMEM.
[[nodiscard]] int read_process(pid_t pid, std::uint64_t address,
                               std::span<std::byte> into) noexcept;

/// Writes to memory of another process. The last 8 bytes are written last, because programs poll
/// the end of a message to detect its arrival. Returns false if not all bytes were written.
[[nodiscard]] bool write_process(pid_t pid, std::uint64_t address,
                                 std::span<const std::byte> bytes) noexcept;

/// Parses the environment variable SOFTVERBS_PULL. Returns true if it is "process_vm" or not set:
/// processes may read memory of each other. Returns false if it is "none": processes send all data
/// in messages.
/// @throws std::system_error  EINVAL for other values
[[nodiscard]] bool pull_wanted();

} // namespace softverbs::fabric
