// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/timerfd.h>
#include <time.h>

#include <cstdint>

namespace softverbs::fabric {

inline constexpr std::uint64_t second_ns = 1'000'000'000;

/// Returns the current time of @p clock in nanoseconds.
[[nodiscard]] inline std::uint64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) noexcept {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * second_ns +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// Sets the expiration time of @p timer, a timerfd(2) of CLOCK_MONOTONIC. The timer expires at the
/// absolute time @p time_ns in nanoseconds. If @p time_ns is 0, stops the timer.
inline void set_timer(int timer, std::uint64_t time_ns) noexcept {
    itimerspec when{};
    when.it_value.tv_sec = static_cast<time_t>(time_ns / second_ns);
    when.it_value.tv_nsec = static_cast<long>(time_ns % second_ns);
    ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, nullptr);
}

} // namespace softverbs::fabric
