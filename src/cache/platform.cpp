// SPDX-License-Identifier: BSD-3-Clause
#include "cache/platform.hpp"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>

namespace rdmabuf::detail {
namespace {

long membarrier(int command) noexcept {
    return ::syscall(SYS_membarrier, command, 0, 0);
}

std::array<std::atomic<bool>, Platform::thread_slots / Platform::thread_slot_step> taken{};

/// Owns the slot of a thread (its own set of lease counts), and frees the slot when the thread
/// ends. The lease counts are not reset, because the cache uses only the sums over all slots.
class Claim {
  public:
    Claim() = default;
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
        if (thread_slot_ != nullptr) {
            taken[*thread_slot_ / Platform::thread_slot_step].store(false,
                                                                    std::memory_order_release);
            *thread_slot_ = Platform::shared_thread_slot;
            *fast_thread_slot_ = Platform::shared_thread_slot;
        }
        over_ = true;
    }

    /// Assigns a free slot to this thread.
    /// @return false if no slot is free, or if this thread is ending and has already freed its slot
    bool take(std::size_t& thread_slot, std::size_t& fast_thread_slot) noexcept {
        if (over_) {
            return false; // The thread is ending: its slot was freed.
        }
        for (std::size_t i = 0; i < Platform::thread_slots; i += Platform::thread_slot_step) {
            if (i != Platform::shared_thread_slot &&
                !taken[i / Platform::thread_slot_step].exchange(true, std::memory_order_acq_rel)) {
                thread_slot = i;
                thread_slot_ = &thread_slot;
                fast_thread_slot_ = &fast_thread_slot;
                return true;
            }
        }
        return false;
    }

  private:
    std::size_t* thread_slot_ = nullptr;
    std::size_t* fast_thread_slot_ = nullptr;
    bool over_ = false;
};

thread_local Claim claim; // NOLINT(misc-use-internal-linkage)

} // namespace

std::atomic<bool> Platform::membarrier_{false};
std::atomic<std::size_t> Platform::thread_slots_in_use_{Platform::shared_thread_slot +
                                                        Platform::thread_slot_step};
constinit thread_local std::size_t Platform::thread_slot_ = Platform::shared_thread_slot;
constinit thread_local std::size_t Platform::fast_thread_slot_ = Platform::shared_thread_slot;
constinit ReadSideSections<Platform> read_side_sections;

void Platform::prepare() noexcept {
    if (!membarrier_.load(std::memory_order_relaxed) &&
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {
        membarrier_.store(true, std::memory_order_relaxed);
    }
}

void Platform::barrier() noexcept {
    // If membarrier(2) fails, this process may be a child process after fork(2). Such a process
    // must register for membarrier(2) again.
    if (barrier_is_enough() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
        (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)) {
        std::terminate(); // Without the barrier, memory in use would be deregistered.
    }
}

void Platform::pause() noexcept {
    ::sched_yield();
}

std::size_t Platform::claim_thread_slot() noexcept {
    if (claim.take(thread_slot_, fast_thread_slot_)) {
        std::size_t known = thread_slots_in_use_.load(std::memory_order_seq_cst);
        while (known <= thread_slot_ && !thread_slots_in_use_.compare_exchange_weak(
                                            known, thread_slot_ + thread_slot_step)) {
        }
        fast_thread_slot_ = barrier_is_enough() ? thread_slot_ : shared_thread_slot;
    }
    return thread_slot_;
}

} // namespace rdmabuf::detail
