// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

// Synchronisation between threads that find entries of a cache (readers) and a thread that removes
// entries (the writer, which holds the lock of the cache). A reader writes only to words of its own
// thread slot, without memory barriers. The writer calls P::barrier(), after which it sees the
// earlier stores of all threads.
//
// P is the platform: real atomics and membarrier(2), or the model of a test that tries all
// interleavings. Q is a variant of P for threads that know that P::barrier_is_enough().

/// Stores @p value. A writer that has called P::barrier() sees the store before the later loads of
/// this thread.
template <class P, class T>
void store_before_loads(typename P::template Atomic<T>& word, T value) noexcept {
    if (P::barrier_is_enough()) {
        word.store(value, std::memory_order_release);
        P::compiler_barrier();
    } else {
        word.exchange(value, std::memory_order_seq_cst);
    }
}

/// Read-side critical sections, as in RCU: while a thread is in one, entries that it finds are not
/// destroyed. Sections are short: they neither wait nor call other code. Each thread has a slot,
/// whose number is a multiple of P::thread_slot_step, so that its word is in its own cache line.
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

    /// Waits for the end of all sections that began before the earlier stores of this thread were
    /// visible.
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

/// The state of one entry and the number of its leases. The caller of settle() destroys the entry
/// if the result is true. The object is used again for the next entry at the same place.
///
/// Each thread slot has a word that counts the leases taken minus the leases returned. The sum of
/// all words is the number of leases when no more leases are taken. The words are not in this
/// object:
/// @p counts is the word of slot 0, and the word of another slot is `slot * P::stride` words
/// behind.
template <class P>
class LeaseState {
  public:
    using Count = typename P::template Atomic<std::uint32_t>;

    /// Whether the entry is valid. Called in a read-side section; if the result is true, the reader
    /// sees all that was written to the entry before begin(), and the entry does not change until
    /// the section ends.
    [[nodiscard]] bool found() const noexcept {
        return state_.load(std::memory_order_seq_cst) == State::found;
    }
    /// Takes a lease on an entry for which found() returned true in the same read-side section.
    void take(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    /// Returns a lease; called in a read-side section. @return whether the caller must call
    /// settle() after the section
    template <class Q = P>
    [[nodiscard]] bool give_back(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        store_before_loads<Q>(count, count.load(std::memory_order_relaxed) - 1);
        return attention_.load(std::memory_order_seq_cst);
    }

    // The caller of these functions holds the lock of the cache.

    /// Makes the entry valid; called before it is added to the index.
    /// @param watched  whether give_back() returns true for each lease
    void begin(bool watched) noexcept {
        attention_.store(watched, std::memory_order_seq_cst);
        state_.store(State::found, std::memory_order_seq_cst);
    }
    /// Makes the entry invalid for readers. The caller then calls ReadSideSections::wait() and
    /// settle().
    void retire() noexcept {
        state_.store(State::draining, std::memory_order_seq_cst);
        attention_.store(true, std::memory_order_seq_cst);
    }
    /// Whether the caller must destroy the entry: retire() was called, and no lease is left.
    [[nodiscard]] bool settle(const Count* counts) noexcept {
        if (state_.load(std::memory_order_relaxed) != State::draining || leases(counts) != 0) {
            return false;
        }
        state_.store(State::free, std::memory_order_relaxed);
        return true;
    }

    /// The number of leases. It is exact after retire(), otherwise it may be outdated.
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
