// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/message.hpp"

namespace softverbs::fabric {

/// Random bytes in the memory of this process. Another process reads the cookie with
/// process_vm_readv(2) and compares it with the bytes in the hello or welcome message. If they are
/// equal, the kernel permits the access, and the PID is correct in the PID namespace of that
/// process.
class Cookie {
  public:
    Cookie() noexcept;

    /// Stores the address and the bytes of the cookie in a hello or welcome message.
    void store_in(Message& message) const noexcept;

  private:
    std::array<std::byte, cookie_bytes> bytes_{};
};

/// Returns whether process @p pid has the cookie in its memory at the address in @p message.
[[nodiscard]] bool finds_cookie(pid_t pid, const Message& message) noexcept;

/// Reads memory of another process. Returns 0 or an errno: EFAULT (the address is not mapped),
/// ESRCH (there is no such process), EPERM (the kernel does not permit the access), ENOMEM.
[[nodiscard]] int read_process(pid_t pid, std::uint64_t address,
                               std::span<std::byte> into) noexcept;

/// Writes to memory of another process. The last 8 bytes are written last, because programs poll
/// the end of a message to detect its arrival. Returns false if not all bytes were written.
[[nodiscard]] bool write_process(pid_t pid, std::uint64_t address,
                                 std::span<const std::byte> bytes) noexcept;

/// Parses SOFTVERBS_PULL. Returns true for "process_vm" and if it is not set: processes may read
/// each other's memory. Returns false for "none": all data is sent in records.
/// @throws std::system_error  EINVAL for other values
[[nodiscard]] bool pull_wanted();

} // namespace softverbs::fabric
