// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace pingpong {

/// Times in microseconds.
struct Figures {
    double min = 0;
    double mean = 0;
    double p50 = 0;
    double p99 = 0;
    double p999 = 0;
    double max = 0;
};

/// What to make of the times of all transfers. A percentile is the smallest of them that so many
/// per cent do not exceed: one that was measured, never one in between.
/// @param divisor  2 for the half of each
[[nodiscard]] Figures summarise(std::vector<std::chrono::nanoseconds> times, int divisor);

/// Megabytes (10^6) per second of transfers of @p bytes, one at a time, of so many microseconds.
[[nodiscard]] double bandwidth_of(std::size_t bytes, double usec) noexcept;

} // namespace pingpong
