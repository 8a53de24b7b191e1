// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "objects/memory_region.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace softverbs {
namespace {

/// Calls madvise(2) through syscall(2), because Process::lock may be held. The program may
/// intercept the madvise() of the C library and call verbs there, which would deadlock.
long call_madvise(std::uintptr_t first, std::size_t length, int advice) noexcept {
    return ::syscall(SYS_madvise, first, length, advice);
}

bool can_populate() noexcept {
    static const bool answer = [] {
        alignas(64) static std::byte byte{};
        const auto page = reinterpret_cast<std::uintptr_t>(&byte) & ~(page_size() - 1);
        return call_madvise(page, page_size(), MADV_POPULATE_READ) == 0;
    }();
    return answer;
}

/// Returns whether all pages of the range are mapped, without access to the pages. Used with
/// kernels before Linux 5.14, which do not have MADV_POPULATE_READ.
bool is_mapped(std::uintptr_t first, std::uintptr_t end) noexcept {
    std::array<unsigned char, 4096> present{};
    const std::uintptr_t step = present.size() * page_size();
    for (std::uintptr_t at = first; at != end;) {
        const std::uintptr_t length = std::min(step, end - at);
        if (::mincore(reinterpret_cast<void*>(at), length, present.data()) != 0) {
            return false;
        }
        at += length;
    }
    return true;
}

} // namespace

std::uint64_t page_size() noexcept {
    static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return size;
}

bool populate(const void* address, std::size_t length, bool write, bool locked) noexcept {
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t first = start & ~(page_size() - 1);
    const std::uintptr_t end = (start + length + page_size() - 1) & ~(page_size() - 1);
    if (length == 0) {
        return true;
    }
    // Reject a range that exceeds the end of the address space.
    if (end <= start) {
        return false;
    }
    if (!can_populate()) {
        return is_mapped(first, end);
    }
    long result = 0;
    do {
        const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
        result = locked ? call_madvise(first, end - first, advice)
                        : ::madvise(reinterpret_cast<void*>(first), end - first, advice);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result == 0;
}

} // namespace softverbs
