// SPDX-License-Identifier: BSD-3-Clause
#include "statistics.hpp"

#include <algorithm>
#include <numeric>

namespace pingpong {

Figures summarise(std::vector<std::chrono::nanoseconds> times, int divisor) {
    if (times.empty()) {
        return {};
    }
    std::ranges::sort(times);
    const auto usec = [divisor](std::chrono::nanoseconds time) {
        return static_cast<double>(time.count()) / 1e3 / divisor;
    };
    // In thousandths and in whole numbers: 0.999 * 1000 is not 999 in binary.
    const auto percentile = [&](std::size_t thousandths) {
        const std::size_t rank = (times.size() * thousandths + 999) / 1000;
        return usec(times[rank - 1]);
    };
    const auto sum = std::accumulate(times.begin(), times.end(), std::chrono::nanoseconds{0});
    return {.min = usec(times.front()),
            .mean = usec(sum) / static_cast<double>(times.size()),
            .p50 = percentile(500),
            .p99 = percentile(990),
            .p999 = percentile(999),
            .max = usec(times.back())};
}

double bandwidth_of(std::size_t bytes, double usec) noexcept {
    // Bytes per microsecond are megabytes per second.
    return usec > 0 ? static_cast<double>(bytes) / usec : 0;
}

} // namespace pingpong
