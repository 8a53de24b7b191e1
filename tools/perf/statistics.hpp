// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <vector>

namespace rdmabuf::tools::perf {

/// The times that the initiator measured, in microseconds.
struct Figures {
    /// The members from min to max are latencies. The percentile p99 is the smallest time that at
    /// least 99 % of the measured times do not exceed.
    double min = 0;
    double mean = 0;
    double p50 = 0;
    double p99 = 0;
    double p999 = 0;
    double max = 0;
    /// The time from posting the first measured transfer to the end of the last one.
    double elapsed = 0;
};

/// Calculates the figures from the time of each measured transfer.
/// @param divisor  2 if the latency is half of the measured time, otherwise 1
[[nodiscard]] inline Figures summarise(std::vector<std::chrono::nanoseconds> times, int divisor,
                                       std::chrono::nanoseconds elapsed) {
    if (times.empty()) {
        return {};
    }
    std::ranges::sort(times);
    const auto usec = [](std::chrono::nanoseconds time) {
        return static_cast<double>(time.count()) / 1e3;
    };
    // The parameter is in thousandths, because 0.999 is not exact in binary.
    const auto percentile = [&](std::size_t thousandths) {
        const std::size_t rank = (times.size() * thousandths + 999) / 1000;
        return usec(times[rank - 1]) / divisor;
    };
    const auto sum = std::accumulate(times.begin(), times.end(), std::chrono::nanoseconds{0});
    return {.min = usec(times.front()) / divisor,
            .mean = usec(sum) / divisor / static_cast<double>(times.size()),
            .p50 = percentile(500),
            .p99 = percentile(990),
            .p999 = percentile(999),
            .max = usec(times.back()) / divisor,
            .elapsed = usec(elapsed)};
}

} // namespace rdmabuf::tools::perf
