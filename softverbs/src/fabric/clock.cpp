// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/clock.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>

namespace softverbs::fabric {

namespace {

timespec to_timespec(std::uint64_t time_ns) noexcept {
    return {static_cast<time_t>(time_ns / second_ns), static_cast<long>(time_ns % second_ns)};
}

/// Number of calls of move_clock(), and of calls of run_clock() that have started the clock. While
/// the clock is stopped, sleep_until() waits until this number changes.
std::atomic<std::uint32_t> changes{0};

void futex(int operation, std::uint32_t value) noexcept {
    static_assert(sizeof(changes) == sizeof(std::uint32_t));
    ::syscall(SYS_futex, &changes, operation, value, nullptr, nullptr, 0);
}

void clock_changed() noexcept {
    changes.fetch_add(1, std::memory_order_release);
    futex(FUTEX_WAKE_PRIVATE, INT_MAX);
}

} // namespace

std::uint64_t wall_clock_ns() noexcept {
    const std::uint64_t stopped = clock_state::stopped_at.load(std::memory_order_acquire);
    return stopped != 0 ? stopped + clock_state::wall_offset.load(std::memory_order_relaxed)
                        : kernel_time_ns(CLOCK_REALTIME) +
                              clock_state::offset.load(std::memory_order_relaxed);
}

void set_timer(int timer, std::uint64_t time_ns) noexcept {
    itimerspec when{};
    if (time_ns != 0 && !clock_is_stopped()) {
        when.it_value = to_timespec(time_ns - clock_state::offset.load(std::memory_order_relaxed));
    }
    ::timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, nullptr);
}

void sleep_until(std::uint64_t time_ns) noexcept {
    while (true) {
        const std::uint32_t seen = changes.load(std::memory_order_acquire);
        const std::uint64_t stopped = clock_state::stopped_at.load(std::memory_order_acquire);
        if (stopped != 0 && stopped < time_ns) {
            futex(FUTEX_WAIT_PRIVATE, seen);
            continue;
        }
        if (stopped != 0 || now_ns() >= time_ns) {
            return;
        }
        const timespec until =
            to_timespec(time_ns - clock_state::offset.load(std::memory_order_relaxed));
        ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
    }
}

void pause_ns(long duration_ns) noexcept {
    const timespec duration{0, duration_ns};
    ::nanosleep(&duration, nullptr);
}

bool stop_clock() noexcept {
    if (clock_is_stopped()) {
        return false;
    }
    const std::uint64_t now = now_ns();
    clock_state::wall_offset.store(wall_clock_ns() - now, std::memory_order_relaxed);
    clock_state::stopped_at.store(now, std::memory_order_release);
    return true;
}

void move_clock(std::uint64_t time_ns) noexcept {
    std::uint64_t now = clock_state::stopped_at.load(std::memory_order_acquire);
    while (now != 0 && now < time_ns &&
           !clock_state::stopped_at.compare_exchange_weak(now, time_ns)) {
    }
    clock_changed();
}

bool run_clock() noexcept {
    const std::uint64_t now = clock_state::stopped_at.load(std::memory_order_acquire);
    if (now == 0) {
        return false;
    }
    clock_state::offset.store(now - kernel_time_ns(CLOCK_MONOTONIC), std::memory_order_relaxed);
    clock_state::stopped_at.store(0, std::memory_order_release);
    clock_changed();
    return true;
}

} // namespace softverbs::fabric
