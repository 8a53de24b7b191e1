// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace softverbs {

/// The type of Process::lock, which each verb of the data path locks. Can be used with
/// std::unique_lock and std::scoped_lock. Without contention, lock() takes a few instructions;
/// std::mutex takes about sixty.
class Lock {
  public:
    void lock() noexcept {
        if (!try_lock()) [[unlikely]] {
            wait();
        }
    }
    [[nodiscard]] bool try_lock() noexcept {
        State free = unlocked;
        return state_.compare_exchange_strong(free, locked, std::memory_order_acquire,
                                              std::memory_order_relaxed);
    }
    void unlock() noexcept {
        if (state_.exchange(unlocked, std::memory_order_release) == contended) [[unlikely]] {
            futex(FUTEX_WAKE_PRIVATE, 1);
        }
    }

    /// Returns whether threads wait for the lock. The result may change at any time.
    [[nodiscard]] bool awaited() const noexcept {
        return waiters_.load(std::memory_order_relaxed) != 0;
    }
    /// Unlocks, lets a waiting thread take the lock, and locks again. The caller must hold the
    /// lock. If a thread unlocked and locked again in a loop without this function, a waiting
    /// thread might not get the lock for a long time.
    void pass() noexcept {
        unlock();
        constexpr unsigned attempts = 1000;
        for (unsigned attempt = 0; attempt < attempts && awaited(); ++attempt) {
            ::sched_yield();
        }
        lock();
    }

  private:
    using State = std::uint32_t;
    static constexpr State unlocked = 0;
    static constexpr State locked = 1;
    /// The value when the lock is held and other threads may be waiting for it.
    static constexpr State contended = 2;

    [[gnu::noinline, gnu::cold]] void wait() noexcept {
        waiters_.fetch_add(1, std::memory_order_relaxed);
        while (state_.exchange(contended, std::memory_order_acquire) != unlocked) {
            futex(FUTEX_WAIT_PRIVATE, contended);
        }
        waiters_.fetch_sub(1, std::memory_order_relaxed);
    }
    void futex(int operation, State value) noexcept {
        static_assert(sizeof state_ == sizeof(State) && decltype(state_)::is_always_lock_free);
        ::syscall(SYS_futex, &state_, operation, value, nullptr, nullptr, 0);
    }

    std::atomic<State> state_{unlocked};
    std::atomic<std::uint32_t> waiters_{0};
};

} // namespace softverbs
