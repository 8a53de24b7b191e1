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

std::array<std::atomic<bool>, Platform::rows / Platform::row_step> taken{};

/// Gives a thread's row to the next thread. What is counted in it stays: only sums matter.
class Claim {
  public:
    Claim() = default;
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
        if (row_ != nullptr) {
            taken[*row_ / Platform::row_step].store(false, std::memory_order_release);
            *row_ = Platform::shared_row;
            *fast_row_ = Platform::shared_row;
        }
        over_ = true;
    }

    /// @return whether the thread has a row from now on
    bool take(std::size_t& row, std::size_t& fast_row) noexcept {
        if (over_) {
            return false; // destructors of thread locals still use caches, and nobody would give
                          // back
        }
        for (std::size_t i = 0; i < Platform::rows; i += Platform::row_step) {
            if (i != Platform::shared_row &&
                !taken[i / Platform::row_step].exchange(true, std::memory_order_acq_rel)) {
                row = i;
                row_ = &row;
                fast_row_ = &fast_row;
                return true;
            }
        }
        return false;
    }

  private:
    std::size_t* row_ = nullptr;
    std::size_t* fast_row_ = nullptr;
    bool over_ = false;
};

thread_local Claim claim; // NOLINT(misc-use-internal-linkage)

} // namespace

std::atomic<bool> Platform::membarrier_{false};
std::atomic<std::size_t> Platform::rows_in_use_{Platform::shared_row + Platform::row_step};
constinit thread_local std::size_t Platform::row_ = Platform::shared_row;
constinit thread_local std::size_t Platform::fast_row_ = Platform::shared_row;
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

std::size_t Platform::claim_row() noexcept {
    if (claim.take(row_, fast_row_)) {
        std::size_t known = rows_in_use_.load(std::memory_order_seq_cst);
        while (known <= row_ && !rows_in_use_.compare_exchange_weak(known, row_ + row_step)) {
        }
        fast_row_ = barrier_is_enough() ? row_ : shared_row;
    }
    return row_;
}

} // namespace rdmabuf::detail
