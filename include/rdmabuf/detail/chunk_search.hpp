// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace rdmabuf::detail {

/// The one of @p chunks, which are in order and leave no gaps, that has the byte at @p address;
/// nullptr outside.
/// @tparam Chunk  has `address` and `length`
template <class Chunk>
[[nodiscard]] const Chunk* find_chunk(std::span<const Chunk> chunks,
                                      std::uint64_t address) noexcept {
    const auto next = std::upper_bound(
        chunks.begin(), chunks.end(), address,
        [](std::uint64_t wanted, const Chunk& chunk) { return wanted < chunk.address; });
    if (next == chunks.begin()) {
        return nullptr;
    }
    const Chunk& chunk = *(next - 1);
    return address - chunk.address < chunk.length ? &chunk : nullptr;
}

} // namespace rdmabuf::detail
