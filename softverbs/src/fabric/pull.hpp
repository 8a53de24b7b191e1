// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/message.hpp"
#include "fabric/ring.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Random bytes in the memory of this process, with which another process checks whether it can
/// read this memory. The other process reads the cookie and compares it with the bytes in the
/// "hello" or "welcome" message of this process. If they are equal, the kernel permits the access,
/// and the other process uses the correct PID for this process.
class Cookie {
  public:
    Cookie() noexcept;

    /// Stores the address and the bytes of the cookie in a "hello" or "welcome" message.
    void store_in(Message& message) const noexcept;

  private:
    std::array<std::byte, cookie_bytes> bytes_{};
};

/// Access to the memory of another process. An open descriptor of /proc/<pid>/mem stays with the
/// address space for which it was opened: when that process has ended or has executed another
/// program, the access fails, even if the kernel has given the PID to a new process.
class ProcessMemory {
  public:
    /// Opens the memory of the process @p pid. The object stays empty if the kernel does not permit
    /// the access, or if the memory does not contain the cookie of @p message at the address in
    /// @p message.
    void open(pid_t pid, const Message& message) noexcept;
    explicit operator bool() const noexcept { return static_cast<bool>(file_); }

    /// Returns 0 or an errno: EFAULT (the address is not mapped), ESRCH (the process has ended),
    /// EPERM (the kernel does not permit the access), ENOMEM. @p into may have been changed even if
    /// the call fails.
    [[nodiscard]] int read(std::uint64_t address, std::span<std::byte> into) const noexcept;
    /// Writes all @p parts, one after the other, and the last 8 bytes of the last part after all
    /// others, because programs poll the end of a message to detect its arrival. Returns false if
    /// not all bytes were written.
    [[nodiscard]] bool write(std::uint64_t address, RecordParts parts) const noexcept;

  private:
    [[nodiscard]] bool has_cookie() const noexcept;

    UniqueFd file_;
    pid_t pid_ = 0;
    std::uint64_t cookie_at_ = 0;
    std::array<std::byte, cookie_bytes> cookie_{};
};

/// Parses the environment variable SOFTVERBS_PULL. Returns true if it is "process_vm" or not set:
/// processes may access memory of each other. Returns false if it is "none": processes send all
/// data in messages.
/// @throws std::system_error  EINVAL for other values
[[nodiscard]] bool pull_wanted();

} // namespace softverbs::fabric
