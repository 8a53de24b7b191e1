// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

// The clock of softverbs. All other files read the time, arm timers and sleep with the functions of
// this file. A test can stop the clock and move it forward, see softverbs_take_clock(). While the
// clock is stopped, the background threads of softverbs neither run timers nor receive packets.

namespace softverbs::fabric {

inline constexpr std::uint64_t second_ns = 1'000'000'000;
inline constexpr std::uint64_t ms_ns = 1'000'000;

namespace clock_state {

/// The time of the stopped clock in nanoseconds. 0: the clock runs.
inline constinit std::atomic<std::uint64_t> stopped_at{0};
/// Added to CLOCK_MONOTONIC while the clock runs, in nanoseconds modulo 2^64. run_clock() sets this
/// value, so that the clock continues from the time of the stopped clock. 0 until the first call of
/// run_clock().
inline constinit std::atomic<std::uint64_t> offset{0};
/// While the clock is stopped: wall_clock_ns() minus now_ns(), in nanoseconds modulo 2^64.
inline constinit std::atomic<std::uint64_t> wall_offset{0};

} // namespace clock_state

[[nodiscard]] inline std::uint64_t kernel_time_ns(clockid_t clock) noexcept {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * second_ns +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// Returns whether a test has stopped the clock. A background thread must call this function after
/// it has taken the lock that protects its work: while it holds this lock, the result cannot change
/// to true.
[[nodiscard]] inline bool clock_is_stopped() noexcept {
    return clock_state::stopped_at.load(std::memory_order_acquire) != 0;
}

/// Returns the current time in nanoseconds: that of the stopped clock, or CLOCK_MONOTONIC plus
/// clock_state::offset.
[[nodiscard]] inline std::uint64_t now_ns() noexcept {
    const std::uint64_t stopped_at = clock_state::stopped_at.load(std::memory_order_acquire);
    return stopped_at != 0 ? stopped_at
                           : kernel_time_ns(CLOCK_MONOTONIC) +
                                 clock_state::offset.load(std::memory_order_relaxed);
}

/// Returns the current time since 1970 in nanoseconds.
[[nodiscard]] std::uint64_t wall_clock_ns() noexcept;

/// Sets the expiration time of @p timer, a timerfd(2) of CLOCK_MONOTONIC. The timer expires at the
/// absolute time @p time_ns of now_ns(). If @p time_ns is 0, stops the timer. While the clock is
/// stopped, timers do not expire: the owner must compare their times with now_ns() after each move
/// of the clock, and set the timers again when the clock runs.
void set_timer(int timer, std::uint64_t time_ns) noexcept;

/// Sleeps until the absolute time @p time_ns of now_ns(). While the clock is stopped, sleeps until
/// another thread has moved the clock to this time.
void sleep_until(std::uint64_t time_ns) noexcept;

/// Sleeps for @p duration_ns nanoseconds, which must be less than a second. Also sleeps while the
/// clock is stopped: used to wait for a thread or process whose progress does not depend on the
/// clock.
void pause_ns(long duration_ns) noexcept;

/// Calls @p attempt every millisecond, at most @p attempts times, until it returns true. Returns
/// whether it has returned true. Waits like pause_ns().
template <class Attempt>
bool retry_every_ms(unsigned attempts, const Attempt& attempt) {
    for (unsigned made = 0; made < attempts; ++made) {
        if (attempt()) {
            return true;
        }
        pause_ns(ms_ns);
    }
    return false;
}

/// Returns the earlier one of two deadlines. 0: there is no deadline.
[[nodiscard]] constexpr std::uint64_t earlier(std::uint64_t one, std::uint64_t other) noexcept {
    return one == 0 || (other != 0 && other < one) ? other : one;
}

/// Returns the time limit for poll(2) or epoll_wait(2), in milliseconds, of a thread that must wake
/// at the time @p deadline_ns of now_ns(). Returns at most 60,000, even if the time is later, and
/// -1 if @p deadline_ns is 0.
[[nodiscard]] inline int time_limit_ms(std::uint64_t deadline_ns) noexcept {
    constexpr std::uint64_t longest_ms = 60'000;
    const std::uint64_t now = now_ns();
    return deadline_ns == 0 ? -1
           : deadline_ns <= now
               ? 0
               : static_cast<int>(std::min((deadline_ns - now + ms_ns - 1) / ms_ns, longest_ms));
}

/// Stops the clock. Returns false if it is stopped already. If background threads exist, the caller
/// must hold the locks that protect their work: cm::Manager::lock, Process::lock and
/// control::block().
bool stop_clock() noexcept;
/// Moves the stopped clock to @p time_ns. Does nothing if the clock is already later than
/// @p time_ns, or if it runs.
void move_clock(std::uint64_t time_ns) noexcept;
/// Lets the stopped clock run again from its current time. Returns false if it runs already.
bool run_clock() noexcept;

} // namespace softverbs::fabric
