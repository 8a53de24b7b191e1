// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softverbs {

/// Whether copy_bytes() reads all bytes of this length before it writes the first one, so that the
/// two places may overlap.
[[nodiscard]] constexpr bool is_copied_at_once(std::size_t length) noexcept {
    return length == 0 || (length >= 8 && length <= 32);
}

/// memcpy(3), without a call for the few bytes that most messages have.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t length) noexcept {
    if (length != 0 && is_copied_at_once(length)) {
        std::uint64_t words[4]; // NOLINT: written before they are read
        const std::size_t last = length - 8;
        const std::size_t second = length > 16 ? 8 : 0;
        std::memcpy(&words[0], from, 8);
        std::memcpy(&words[1], from + second, 8);
        std::memcpy(&words[2], from + last - second, 8);
        std::memcpy(&words[3], from + last, 8);
        std::memcpy(to, &words[0], 8);
        std::memcpy(to + second, &words[1], 8);
        std::memcpy(to + last - second, &words[2], 8);
        std::memcpy(to + last, &words[3], 8);
    } else if (length != 0) {
        std::memcpy(to, from, length);
    }
}

} // namespace softverbs
