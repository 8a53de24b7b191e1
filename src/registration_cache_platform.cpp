// SPDX-License-Identifier: BSD-3-Clause
#include "registration_cache_platform.hpp"

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

std::array<std::atomic<bool>, Platform::rows> taken{};

/// Gives a thread's row to the next thread. What is counted in it stays: only sums matter.
class Claim {
  public:
    Claim() = default;
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
        if (row_ != nullptr) {
            taken[*row_].store(false, std::memory_order_release);
            *row_ = Platform::shared_row;
        }
        over_ = true;
    }

    /// @return whether the thread has a row from now on
    bool take(unsigned& row) noexcept {
        if (over_) {
            return false; // destructors of thread locals still use caches, and nobody would give
                          // back
        }
        for (unsigned i = 0; i < Platform::rows; ++i) {
            if (i != Platform::shared_row && !taken[i].exchange(true, std::memory_order_acq_rel)) {
                row = i;
                row_ = &row;
                return true;
            }
        }
        return false;
    }

  private:
    unsigned* row_ = nullptr;
    bool over_ = false;
};

thread_local Claim claim; // NOLINT(misc-use-internal-linkage)

} // namespace

std::atomic<bool> Platform::membarrier_{false};
std::atomic<unsigned> Platform::rows_in_use_{Platform::shared_row + 1};
constinit thread_local unsigned Platform::row_ = Platform::shared_row;
constinit ReaderSections<Platform> reader_sections;

void Platform::prepare() noexcept {
    if (!membarrier_.load(std::memory_order_relaxed) &&
        membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0) {
        membarrier_.store(true, std::memory_order_relaxed);
    }
}

void Platform::barrier() noexcept {
    // A process that was forked may have to register again.
    if (barrier_is_enough() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 &&
        (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)) {
        std::terminate(); // forbidden since: memory would be deregistered under its users
    }
}

void Platform::pause() noexcept {
    ::sched_yield();
}

unsigned Platform::claim_row() noexcept {
    if (claim.take(row_)) {
        unsigned known = rows_in_use_.load(std::memory_order_seq_cst);
        while (known <= row_ && !rows_in_use_.compare_exchange_weak(known, row_ + 1)) {
        }
    }
    return row_;
}

} // namespace rdmabuf::detail
