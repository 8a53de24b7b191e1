// SPDX-License-Identifier: BSD-3-Clause
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/work_request.hpp>

namespace rdmabuf::detail {
namespace {

/// The size in bytes of the signal set that rt_sigprocmask(2) reads.
constexpr std::size_t word = 8;

/// Returns true if the CPU can read the aligned word at @p address. rt_sigprocmask(2) is called
/// with an invalid first argument, so that it changes nothing. It fails with EFAULT if the word
/// cannot be read, and with EINVAL if the word can be read.
bool can_read_word(std::uintptr_t address) noexcept {
    constexpr long invalid = -1;
    const std::uintptr_t aligned = address / word * word;
    if (aligned == 0) {
        return false; // For a null pointer, rt_sigprocmask(2) reads no signal set.
    }
    return ::syscall(SYS_rt_sigprocmask, invalid, aligned, nullptr, word) == 0 || errno != EFAULT;
}

} // namespace

bool cpu_can_read(std::span<const ibv_sge> entries) noexcept {
    const int before = errno;
    const bool readable = std::ranges::all_of(entries, [](const ibv_sge& entry) {
        return entry.length == 0 ||
               (can_read_word(entry.addr) && can_read_word(entry.addr + entry.length - 1));
    });
    errno = before;
    return readable;
}

} // namespace rdmabuf::detail
