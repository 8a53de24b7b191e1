// SPDX-License-Identifier: BSD-3-Clause
// What tests of the transport can change: the clock, and the first value of counters.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::transport::detail {

/// A function that returns the time in place of the monotonic clock; nullptr outside of tests. A
/// test may change it while no other thread uses the transport. The time must not go back.
RDMABUF_EXPORT extern std::int64_t (*test_clock)();

/// The first value of the counters that wrap around; 0 outside of tests. With another value, the
/// counters of new channels wrap around soon. Both ends of a channel must have the same value.
RDMABUF_EXPORT extern std::uint32_t test_first_count;

/// Returns the time of the monotonic clock in nanoseconds.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
    if (test_clock != nullptr) [[unlikely]] {
        return test_clock();
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Returns @p time in nanoseconds, at most 100 years, so that its sum with now_ns() does not
/// overflow.
[[nodiscard]] constexpr std::int64_t to_ns(std::chrono::milliseconds time) noexcept {
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365 * 100);
    return std::chrono::nanoseconds(std::min(time, longest)).count();
}

} // namespace rdmabuf::transport::detail
