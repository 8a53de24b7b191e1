// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <rdmabuf/transport/detail/clock.hpp>

namespace rdmabuf::transport::detail {

/// A time limit that starts when the object is created.
class Timeout {
  public:
    /// @param timeout  the time limit; a negative value means no limit
    explicit Timeout(std::chrono::milliseconds timeout) noexcept
        : end_(timeout.count() < 0 ? -1 : now_ns() + to_ns(timeout)) {}

    [[nodiscard]] bool over() const noexcept { return end_ >= 0 && now_ns() >= end_; }
    /// Returns the remaining time, rounded up to whole milliseconds. Returns a negative value if
    /// there is no time limit.
    [[nodiscard]] std::chrono::milliseconds left() const noexcept {
        if (end_ < 0) {
            return std::chrono::milliseconds(-1);
        }
        return std::chrono::ceil<std::chrono::milliseconds>(
            std::chrono::nanoseconds(std::max<std::int64_t>(end_ - now_ns(), 0)));
    }

  private:
    std::int64_t end_;
};

/// Controls a loop that polls for a completion: the loop calls wait() between two polls. One call
/// in 64 yields the processor and checks the time limit; the others return at once. After 4096
/// calls, wait(sleep) sleeps instead.
class SpinWait {
  public:
    /// @param timeout  the time limit of the loop; negative: no limit; 0: poll only once
    explicit SpinWait(std::chrono::milliseconds timeout) noexcept
        : limit_(timeout), once_(timeout.count() == 0) {}

    /// Pauses between two polls. After 4096 polls, the function calls @p sleep instead, with the
    /// maximum time to sleep.
    /// @return false if the time limit is over
    template <class Sleep>
    [[nodiscard]] bool wait(const Sleep& sleep) noexcept {
        if (once_ || iterations_ < iterations_before_sleep) {
            return wait();
        }
        sleep(limit_.left());
        return !limit_.over();
    }
    /// Pauses between two polls. @return false if the time limit is over
    [[nodiscard]] bool wait() noexcept {
        if (++iterations_ % iterations_between_yields != 0) {
            return !once_;
        }
        std::this_thread::yield();
        return !limit_.over();
    }

  private:
    static constexpr std::uint32_t iterations_between_yields = 64;
    static constexpr std::uint32_t iterations_before_sleep = 4096;

    Timeout limit_;
    bool once_;
    std::uint32_t iterations_ = 0;
};

/// Calls @p test until the Completion that it returns is done, or until @p timeout has passed.
/// @param sleep  sleeps for at most the time that is passed; called after 4096 polls
template <class Test, class Sleep>
[[nodiscard]] auto wait_until_done(std::chrono::milliseconds timeout, const Test& test,
                                   const Sleep& sleep) noexcept {
    SpinWait spin(timeout);
    for (;;) {
        const auto completion = test();
        if (completion.done || !spin.wait(sleep)) {
            return completion;
        }
    }
}

} // namespace rdmabuf::transport::detail
