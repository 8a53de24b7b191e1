// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

// This file synchronises threads that find entries of a cache (readers) with the thread that
// removes entries (the writer, which holds the lock of the cache). A reader writes only to words of
// its own thread slot, and needs no memory barriers if P::barrier_is_enough(): the writer calls
// P::barrier(), and then sees the earlier stores of all threads.
//
// The template parameter P provides the atomics and the barrier. In programs, P is the class
// Platform with real atomics and membarrier(2). Tests use a model for P that tries all
// interleavings. Q is P, or a variant of P for threads for which P::barrier_is_enough() is true.

/// Stores @p value in @p word before the later loads of this thread. If P::barrier_is_enough() is
/// true, this order holds only with respect to threads that call P::barrier().
template <class P, class T>
void store_before_loads(typename P::template Atomic<T>& word, T value) noexcept {
    if (P::barrier_is_enough()) {
        word.store(value, std::memory_order_release);
        P::compiler_barrier();
    } else {
        word.exchange(value, std::memory_order_seq_cst);
    }
}

/// Read-side critical sections, as in RCU. An entry that a thread finds in a section is not
/// destroyed before the section ends. Sections are short: a thread does not wait in a section. Each
/// thread slot has a word in a cache line of its own, because slot indexes are multiples of
/// P::thread_slot_step.
template <class P>
class ReadSideSections {
  public:
    template <class Q = P>
    void enter(std::size_t thread_slot) noexcept {
        store_before_loads<Q>(words_[thread_slot], true);
    }
    void exit(std::size_t thread_slot) noexcept {
        words_[thread_slot].store(false, std::memory_order_release);
    }

    /// Waits until every section that began before this call has ended. In a section that begins
    /// later, a thread sees all earlier stores of the calling thread.
    void wait() noexcept {
        P::barrier();
        const std::size_t thread_slots = P::thread_slots_in_use();
        for (std::size_t thread_slot = 0; thread_slot < thread_slots;
             thread_slot += P::thread_slot_step) {
            while (words_[thread_slot].load(std::memory_order_seq_cst)) {
                P::pause();
            }
        }
    }

  private:
    alignas(64) std::array<typename P::template Atomic<bool>, P::thread_slots> words_;
};

/// The state of one cache entry and the number of its leases (uses of the entry). After settle()
/// has returned true, the object can be used for another entry.
///
/// Each thread slot has a word for the entry, which counts the leases taken minus the leases
/// returned. If no more leases are taken, the sum of these words is the number of leases. The words
/// are not members of this object: the parameter `counts` points to the word of slot 0. The word of
/// another slot has the index `slot * P::stride` in this array.
template <class P>
class LeaseState {
  public:
    using Count = typename P::template Atomic<std::uint32_t>;

    /// Returns true if the entry is valid. The caller must be in a read-side section or hold the
    /// lock of the cache. If the result is true, the reader sees the contents that the entry had
    /// when begin() was called. The contents do not change until the section ends, even if retire()
    /// makes the entry invalid before.
    [[nodiscard]] bool found() const noexcept {
        return state_.load(std::memory_order_seq_cst) == State::found;
    }
    /// Takes a lease on an entry for which found() returned true in the same read-side section, or
    /// since the caller has held the lock of the cache.
    void take(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    /// Returns a lease: decrements the lease count of this thread slot.
    /// The caller must be in a read-side section or hold the lock of the cache.
    /// @return true if the caller must call settle() after the section
    template <class Q = P>
    [[nodiscard]] bool give_back(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        store_before_loads<Q>(count, count.load(std::memory_order_relaxed) - 1);
        return attention_.load(std::memory_order_seq_cst);
    }

    // The caller of begin(), retire() and settle() must hold the lock of the cache.

    /// Makes the entry valid, so that readers can take leases on the entry.
    /// @param watched  true if give_back() must return true for each lease
    void begin(bool watched) noexcept {
        attention_.store(watched, std::memory_order_seq_cst);
        state_.store(State::found, std::memory_order_seq_cst);
    }
    /// Makes the entry invalid for readers. The caller must then call ReadSideSections::wait() and
    /// settle().
    void retire() noexcept {
        state_.store(State::draining, std::memory_order_seq_cst);
        attention_.store(true, std::memory_order_seq_cst);
    }
    /// Returns true if the caller must destroy the entry: retire() was called, and no lease on the
    /// entry is left.
    [[nodiscard]] bool settle(const Count* counts) noexcept {
        if (state_.load(std::memory_order_relaxed) != State::draining || leases(counts) != 0) {
            return false;
        }
        state_.store(State::free, std::memory_order_relaxed);
        return true;
    }

    /// Returns the number of leases on the entry. The number may be outdated unless retire() and
    /// ReadSideSections::wait() were called.
    [[nodiscard]] static std::uint32_t leases(const Count* counts) noexcept {
        std::uint32_t sum = 0;
        const std::size_t thread_slots = P::thread_slots_in_use();
        for (std::size_t thread_slot = 0; thread_slot < thread_slots;
             thread_slot += P::thread_slot_step) {
            sum += counts[thread_slot * P::stride].load(std::memory_order_acquire);
        }
        return sum;
    }

  private:
    enum class State : std::uint8_t { free, found, draining };

    typename P::template Atomic<bool> attention_{false};
    typename P::template Atomic<State> state_{State::free};
};

} // namespace rdmabuf::detail
