// SPDX-License-Identifier: BSD-3-Clause
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/work_batch.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf::detail {
namespace {

/// The size in bytes of the signal set that rt_sigprocmask(2) reads.
constexpr std::size_t word = 8;

/// Returns true if the CPU can read the aligned word that contains @p address. rt_sigprocmask(2) is
/// called with an invalid first argument, so that it changes nothing. It fails with EFAULT if the
/// word cannot be read, and with EINVAL if the word can be read.
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

namespace rdmabuf {

void WorkBatch::set_inline_data(std::span<const ibv_sge> local) noexcept {
    // A single entry is not passed as a list: for a list, the rxe provider before rdma-core 64
    // sends no data and reports success (wr_set_inline_data_list() in providers/rxe/rxe.c).
    if (local.size() == 1) {
        ibv_wr_set_inline_data(qp_, reinterpret_cast<void*>(local[0].addr), local[0].length);
        return;
    }
    // A list of more than 64 entries is longer than usual devices support (max_sge). It is passed
    // on without inline data, and the provider then rejects it.
    constexpr std::size_t max_entries = 64;
    if (local.size() > max_entries) {
        ibv_wr_set_sge_list(qp_, local.size(), local.data());
        return;
    }
    // NOLINTNEXTLINE(*-member-init): std::transform sets the elements
    std::array<ibv_data_buf, max_entries> buffers;
    std::transform(local.begin(), local.end(), buffers.begin(), [](const ibv_sge& entry) {
        return ibv_data_buf{.addr = reinterpret_cast<void*>(entry.addr), .length = entry.length};
    });
    ibv_wr_set_inline_data_list(qp_, local.size(), buffers.data());
}

} // namespace rdmabuf
