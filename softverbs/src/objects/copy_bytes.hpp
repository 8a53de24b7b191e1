// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softverbs {

/// Returns whether copy_bytes() with this length loads all bytes before it stores the first byte.
/// If so, the source and the destination may overlap.
[[nodiscard]] constexpr bool is_copied_at_once(std::size_t length) noexcept {
    return length == 0 || (length >= 8 && length <= 32);
}

/// A memory barrier for stores: other threads see the stores before this call before they see the
/// stores after this call. On x86, the barrier needs no instruction.
inline void order_stores() noexcept {
#ifdef __SANITIZE_THREAD__ // defined by g++ with -fsanitize=thread, but not by clang 14
    std::atomic_signal_fence(std::memory_order_release); // g++ warns about a thread fence (-Wtsan)
#else
    std::atomic_thread_fence(std::memory_order_release);
#endif
}

/// Like memcpy(3), but without a function call for lengths from 8 to 32, which are frequent. If the
/// length is 8 or more, stores the end of the data last, because many programs poll the last bytes
/// of a buffer to detect that an RDMA write is complete.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t length) noexcept {
    if (length >= 8 && length <= 16) {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        std::memcpy(&first, from, 8);
        std::memcpy(&last, from + length - 8, 8);
        std::memcpy(to, &first, 8);
        order_stores();
        std::memcpy(to + length - 8, &last, 8);
    } else if (length > 16 && length <= 32) {
        struct Half {
            std::uint64_t words[2];
        };
        Half first; // NOLINT: written before it is read
        Half last;  // NOLINT: written before it is read
        std::memcpy(&first, from, 16);
        std::memcpy(&last, from + length - 16, 16);
        std::memcpy(to, &first, 16);
        order_stores();
        std::memcpy(to + length - 16, &last, 16);
    } else if (length > 32) {
        std::memcpy(to, from, length - 8);
        order_stores();
        std::memcpy(to + length - 8, from + length - 8, 8);
    } else if (length != 0) {
        std::memcpy(to, from, length);
    }
}

} // namespace softverbs
