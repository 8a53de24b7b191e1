// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "pipeline.hpp"
#include "support/memory_choice.hpp"
#include "support/named.hpp"
#include "support/usage.hpp"

namespace mpi_ring {

enum class Collective : std::uint8_t {
    /// Every rank ends with the sums of all ranks' numbers.
    all_reduce,
    /// Every rank ends with all ranks' numbers, one rank's behind the other's.
    all_gather,
};
inline constexpr auto collectives = std::to_array<examples::Named<Collective>>({
    {"all-reduce", Collective::all_reduce},
    {"all-gather", Collective::all_gather},
});
[[nodiscard]] const char* to_string(Collective collective) noexcept;

struct Options {
    Collective collective = Collective::all_reduce;
    /// Numbers of each rank.
    std::uint64_t count = std::uint64_t{1} << 18;
    std::uint32_t iterations = 10;
    PipelineOptions pipeline;

    examples::MemoryChoice memory;
    /// Empty for the first that works.
    std::string device;
    /// Where to be reached, as an address or an interface's name; empty for the first interface.
    std::string address;
    /// The longest wait for a neighbour.
    std::chrono::milliseconds timeout{30'000};
};

/// @param arguments  without the program's name
/// @throws examples::UsageError
[[nodiscard]] std::variant<Options, examples::Help> parse_options(
    std::span<const char* const> arguments);

} // namespace mpi_ring
