// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

namespace rdmabuf::simulation {

/// Pseudorandom numbers (splitmix64). All that a simulation decides comes from one such object, so
/// that equal seeds give equal runs.
class Random {
  public:
    explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

    [[nodiscard]] std::uint64_t next() noexcept {
        std::uint64_t value = state_ += 0x9e3779b97f4a7c15U;
        value = (value ^ value >> 30U) * 0xbf58476d1ce4e5b9U;
        value = (value ^ value >> 27U) * 0x94d049bb133111ebU;
        return value ^ value >> 31U;
    }
    /// Returns a number less than @p limit, which must not be 0.
    [[nodiscard]] std::uint64_t below(std::uint64_t limit) noexcept { return next() % limit; }
    /// Returns true once in @p calls calls on average.
    [[nodiscard]] bool one_in(std::uint64_t calls) noexcept { return below(calls) == 0; }
    template <class T>
    [[nodiscard]] T one_of(std::initializer_list<T> values) noexcept {
        return values.begin()[below(values.size())];
    }

  private:
    std::uint64_t state_;
};

/// Fills @p bytes with a pattern. The first 8 bytes are @p id; equal ids give equal bytes.
inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t id) noexcept {
    Random random(id * 0x2545f4914f6cdd1dU);
    std::uint64_t word = id;
    for (std::size_t i = 0; i < bytes.size(); i += sizeof word) {
        std::memcpy(&bytes[i], &word, std::min(sizeof word, bytes.size() - i));
        word = random.next();
    }
}

/// Compares bytes, also fast in a program that is not optimised.
[[nodiscard]] inline bool equal(std::span<const std::byte> a,
                                std::span<const std::byte> b) noexcept {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

} // namespace rdmabuf::simulation
