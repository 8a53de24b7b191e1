// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace timing {

using Clock = std::chrono::steady_clock;

/// The approximate duration of one measurement: many times the resolution of the clock.
inline constexpr double measured_seconds = 200e-6;

/// Returns the average time of @p times calls in seconds.
template <class Call>
double measure(long times, const Call& call) {
    const auto start = Clock::now();
    for (long i = 0; i < times; ++i) {
        call();
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(times);
}

inline double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Returns the number of calls, 1 to 1000, that together take about `measured_seconds`.
template <class Call>
long times_of(const Call& call) {
    const double once = std::max(measure(3, call), 1e-9);
    return std::clamp(static_cast<long>(measured_seconds / once), 1L, 1000L);
}

} // namespace timing
