// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <chrono>
#include <cstdint>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/clock.hpp>

namespace rdmabuf::testing {

/// Stops the clocks of softverbs and of the transport while the object exists. Both then show
/// softverbs_now().
class StoppedClock {
  public:
    StoppedClock() {
        EXPECT_EQ(softverbs_take_clock(), 0);
        transport::detail::test_clock = [] { return static_cast<std::int64_t>(softverbs_now()); };
    }
    ~StoppedClock() {
        transport::detail::test_clock = nullptr;
        EXPECT_EQ(softverbs_release_clock(), 0);
    }
    StoppedClock(const StoppedClock&) = delete;
    StoppedClock& operator=(const StoppedClock&) = delete;

    /// Moves the clock. The devices do the work that is due in this time.
    static void advance(std::chrono::nanoseconds time) {
        EXPECT_EQ(softverbs_advance(static_cast<std::uint64_t>(time.count())), 0);
    }
    /// Lets the devices do the work that is due now.
    static void settle() {
        while (softverbs_step() == 1) {
        }
    }
};

} // namespace rdmabuf::testing
