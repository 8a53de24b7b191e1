// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

namespace softverbs::fabric {

/// Functions for little-endian numbers in messages between hosts.

/// Stores @p value as a little-endian number in @p to, beginning at the byte @p offset.
template <std::unsigned_integral Value>
void store_little_endian(std::span<std::byte> to, std::size_t offset, Value value) noexcept {
    for (std::size_t i = 0; i < sizeof value; ++i) {
        to[offset + i] = static_cast<std::byte>(value >> 8U * i & 0xffU);
    }
}

/// Loads a little-endian number from @p from, beginning at the byte @p offset.
template <std::unsigned_integral Value>
[[nodiscard]] Value load_little_endian(std::span<const std::byte> from,
                                       std::size_t offset) noexcept {
    Value value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) {
        value = static_cast<Value>(value | std::to_integer<Value>(from[offset + i]) << 8U * i);
    }
    return value;
}

} // namespace softverbs::fabric
