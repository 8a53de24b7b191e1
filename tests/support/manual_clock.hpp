// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <chrono>
#include <cstdint>

#include <gtest/gtest.h>

#include "waiting.hpp"

namespace softverbs_test {

using rdmabuf::testing::eventually;
using rdmabuf::testing::is_asleep;
using rdmabuf::testing::is_at_rest;
using rdmabuf::testing::is_readable;
using rdmabuf::testing::lasts_at_least;
using rdmabuf::testing::time_limit;

/// Processes all packets and timers that are due. Does nothing while the clock runs.
inline void settle() {
    while (softverbs_step() == 1) {
    }
}

/// If the clock is stopped: processes what is ready, or else moves the clock to the next timer.
/// Returns false if nothing is ready and no timer is set, so that nothing can happen any more.
[[nodiscard]] inline bool move_on() {
    const int active = softverbs_step();
    if (active != 0) {
        return true; // active < 0: the clock runs
    }
    const std::uint64_t next = softverbs_next_timer();
    return next != UINT64_MAX && softverbs_advance(next) == 0;
}

/// Waits until @p condition returns true. If the clock is stopped, moves it on meanwhile. Returns
/// false if the time limit expired, or if nothing can happen any more.
template <class Condition>
[[nodiscard]] bool becomes_true(const Condition& condition) {
    bool is_true = false;
    bool can_happen = true;
    const auto ends = [&] {
        is_true = condition();
        return is_true || !can_happen;
    };
    return eventually(ends, [&] { can_happen = move_on(); }) && is_true;
}

[[nodiscard]] inline bool becomes_readable(int fd) {
    return becomes_true([fd] { return is_readable(fd); });
}

/// Stops the clock of softverbs while the object exists.
class ManualClock {
  public:
    ManualClock() { EXPECT_EQ(softverbs_take_clock(), 0); }
    ~ManualClock() { EXPECT_EQ(softverbs_release_clock(), 0); }
    ManualClock(const ManualClock&) = delete;
    ManualClock& operator=(const ManualClock&) = delete;

    static void advance(std::chrono::nanoseconds time) {
        EXPECT_EQ(softverbs_advance(static_cast<std::uint64_t>(time.count())), 0);
    }
    [[nodiscard]] static std::chrono::nanoseconds now() {
        return std::chrono::nanoseconds(softverbs_now());
    }
};

} // namespace softverbs_test
