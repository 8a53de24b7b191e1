// SPDX-License-Identifier: BSD-3-Clause
// How tests wait. scripts/check-waiting refuses other clocks and sleeps below tests/.
#pragma once

#include <chrono>
#include <thread>

namespace rdmabuf::testing {

/// The time limit of each wait in a test. A busy machine must not exceed it; only a broken test or
/// a broken library does.
inline constexpr std::chrono::seconds time_limit{60};

/// Waits until @p condition returns true. Calls @p step, which makes progress, each time that it
/// returns false. @return false if the time limit expired
template <class Condition, class Step>
[[nodiscard]] bool eventually(const Condition& condition, const Step& step) {
    // A condition that needs more calls is likely to wait for another thread, which may need this
    // processor.
    constexpr unsigned calls_without_sleep = 1000;
    const auto end = std::chrono::steady_clock::now() + time_limit;
    for (unsigned calls = 1; !condition(); ++calls) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        step();
        if (calls > calls_without_sleep) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    return true;
}

/// Waits until @p condition returns true. @return false if the time limit expired
template <class Condition>
[[nodiscard]] bool eventually(const Condition& condition) {
    return eventually(condition, [] { std::this_thread::yield(); });
}

/// Returns true if @p action takes @p duration or longer, for tests of a documented timeout. There
/// is no function for the opposite: a busy machine can make each action longer.
template <class Action>
[[nodiscard]] bool lasts_at_least(std::chrono::nanoseconds duration, const Action& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::steady_clock::now() - begin >= duration;
}

} // namespace rdmabuf::testing
