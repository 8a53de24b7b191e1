// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "support/named.hpp"

namespace mpi_ring {

/// What is added up. Sums of float32 are of whole numbers so small that no order of adding rounds;
/// those of int64 take all bits, and wrap.
enum class NumberType : std::uint8_t { float32, int64 };
inline constexpr auto number_types = std::to_array<examples::Named<NumberType>>({
    {"float32", NumberType::float32},
    {"int64", NumberType::int64},
});
[[nodiscard]] const char* to_string(NumberType type) noexcept;
/// In bytes.
[[nodiscard]] std::size_t size_of(NumberType type) noexcept;

/// Writes the numbers that a rank has at first: no two ranks, places and turns have the same.
/// @param turn  of several
void fill(NumberType type, std::span<std::byte> numbers, int rank, std::uint32_t turn);

/// Compares @p numbers with the sums over all ranks, added up here one rank after the other.
/// @return what is wrong; empty when all is right
[[nodiscard]] std::string find_wrong_sum(NumberType type, std::span<const std::byte> numbers,
                                         int ranks, std::uint32_t turn);
/// Compares @p numbers with those that the ranks had at first, one rank's behind the other's.
[[nodiscard]] std::string find_wrong_number(NumberType type, std::span<const std::byte> numbers,
                                            int ranks, std::uint32_t turn);

} // namespace mpi_ring
