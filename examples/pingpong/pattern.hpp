// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verb.hpp"

namespace pingpong {

/// An endless sequence of bytes that a seed determines. Sequences of different seeds have nothing
/// in common, at the same place or shifted, so that bytes that are stale, swapped, or somebody
/// else's do not pass for the right ones.
class Pattern {
  public:
    explicit constexpr Pattern(std::uint64_t seed) noexcept : seed_(mix(seed)) {}

    /// What @p sender sends in transfer number @p transfer.
    [[nodiscard]] static constexpr Pattern of_transfer(std::uint64_t transfer,
                                                       Role sender) noexcept {
        return Pattern(transfer * 4 + static_cast<std::uint64_t>(sender));
    }
    /// What surrounds the data of an end.
    [[nodiscard]] static constexpr Pattern of_guard(Role owner) noexcept {
        return Pattern(2 + static_cast<std::uint64_t>(owner));
    }

    struct Mismatch {
        /// In the span that was compared.
        std::size_t offset = 0;
        std::uint8_t expected = 0;
        std::uint8_t found = 0;
    };

    /// Fills @p bytes with the sequence from its byte number @p first on.
    void fill(std::span<std::byte> bytes, std::size_t first = 0) const noexcept;
    /// The first byte that is not as fill() made it.
    [[nodiscard]] std::optional<Mismatch> check(std::span<const std::byte> bytes,
                                                std::size_t first = 0) const noexcept;

    /// Spreads every bit of @p value over all 64: one-to-one, and far apart for neighbours.
    [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t value) noexcept {
        value += 0x9e3779b97f4a7c15; // 2^64 divided by the golden ratio
        value = (value ^ (value >> 31)) * 0xd6e8feb86659fd93;
        value = (value ^ (value >> 29)) * 0xd6e8feb86659fd93;
        return value ^ (value >> 32);
    }

  private:
    /// Eight bytes of the sequence. One multiplication: it is on the path of every byte.
    [[nodiscard]] constexpr std::uint64_t word(std::uint64_t index) const noexcept {
        const std::uint64_t product = (seed_ + index) * 0x9e3779b97f4a7c15;
        return product ^ (product >> 32);
    }
    [[nodiscard]] constexpr std::uint8_t byte(std::size_t index) const noexcept {
        return static_cast<std::uint8_t>(word(index / 8) >> (index % 8 * 8));
    }

    std::uint64_t seed_;
};

} // namespace pingpong
