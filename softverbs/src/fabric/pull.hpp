// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/message.hpp"

namespace softverbs::fabric {

/// Random bytes in this process's memory. The other process reads them with process_vm_readv(2) to
/// check that the PID identifies this process and that the kernel permits the access.
class Cookie {
  public:
    Cookie() noexcept;

    /// Writes the address and the contents of the cookie into a hello or welcome message.
    void store_in(Message& message) const noexcept;

  private:
    std::array<std::byte, cookie_bytes> bytes_{};
};

/// Returns whether this process can read the cookie from the memory of process @p pid, at the
/// address that @p message contains.
[[nodiscard]] bool finds_cookie(pid_t pid, const Message& message) noexcept;

/// Reads from the memory of another process. Returns 0 or an errno: EFAULT (not mapped), ESRCH (no
/// such process), EPERM (not permitted), ENOMEM.
[[nodiscard]] int read_process(pid_t pid, std::uint64_t address,
                               std::span<std::byte> into) noexcept;

/// Writes to the memory of another process. The last 8 bytes are written after all others, so a
/// program that polls the end of a message finds the whole message. Returns false when not all
/// bytes were written.
[[nodiscard]] bool write_process(pid_t pid, std::uint64_t address,
                                 std::span<const std::byte> bytes) noexcept;

/// Parses SOFTVERBS_PULL. Returns true for "process_vm" or if it is not set: processes may read
/// each other's memory. Returns false for "none": all bytes travel in records.
/// @throws std::system_error  EINVAL for any other value
[[nodiscard]] bool pull_wanted();

} // namespace softverbs::fabric
