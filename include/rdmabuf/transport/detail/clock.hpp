// SPDX-License-Identifier: BSD-3-Clause
// All functions of the transport read the time by now_ns().
#pragma once

#include <chrono>
#include <cstdint>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf::transport::detail {

/// A function that returns the time in place of the monotonic clock; nullptr outside of tests. A
/// test may change it while no other thread uses the transport. The time must not go back.
RDMABUF_EXPORT extern std::int64_t (*test_clock)();

/// Returns the time of the monotonic clock in nanoseconds.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
    if (test_clock != nullptr) [[unlikely]] {
        return test_clock();
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace rdmabuf::transport::detail
