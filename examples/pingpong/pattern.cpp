// SPDX-License-Identifier: BSD-3-Clause
#include "pattern.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

namespace pingpong {

namespace {

// How many bytes lie before the first whole word of the sequence.
std::size_t head_length(std::size_t first, std::size_t length) noexcept {
    return std::min((8 - first % 8) % 8, length);
}

} // namespace

void Pattern::fill(std::span<std::byte> bytes, std::size_t first) const noexcept {
    std::size_t at = 0;
    const auto fill_bytes_until = [&](std::size_t end) {
        for (; at < end; ++at) {
            bytes[at] = std::byte{byte(first + at)};
        }
    };
    fill_bytes_until(head_length(first, bytes.size()));
    for (; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t little = htole64(word((first + at) / 8));
        std::memcpy(bytes.data() + at, &little, 8);
    }
    fill_bytes_until(bytes.size());
}

std::optional<Pattern::Mismatch> Pattern::check(std::span<const std::byte> bytes,
                                                std::size_t first) const noexcept {
    const auto difference_in = [&](std::size_t from, std::size_t end) -> std::optional<Mismatch> {
        for (std::size_t i = from; i < end; ++i) {
            const auto found = std::to_integer<std::uint8_t>(bytes[i]);
            if (const std::uint8_t expected = byte(first + i); found != expected) {
                return Mismatch{.offset = i, .expected = expected, .found = found};
            }
        }
        return std::nullopt;
    };

    std::size_t at = head_length(first, bytes.size());
    if (auto mismatch = difference_in(0, at)) {
        return mismatch;
    }
    for (; at + 8 <= bytes.size(); at += 8) {
        std::uint64_t little = 0;
        std::memcpy(&little, bytes.data() + at, 8);
        if (le64toh(little) != word((first + at) / 8)) {
            return difference_in(at, at + 8);
        }
    }
    return difference_in(at, bytes.size());
}

} // namespace pingpong
