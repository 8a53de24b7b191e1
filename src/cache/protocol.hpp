// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmabuf::detail {

// How threads that find entries of a cache agree with one that takes entries out of it: a reader
// writes to words of its own only, and pays for no ordering; a writer, who holds the cache's lock,
// pays for both with P::barrier(), which makes every thread's stores seen.
//
// P is the machine: real atomics and membarrier(2), or a model of them in which a test tries
// all that can happen. Q is what one of its threads already knows of it.

/// Stores, before whatever this thread loads afterwards, as seen by one who called P::barrier().
template <class P, class T>
void store_before_loads(typename P::template Atomic<T>& word, T value) noexcept {
    if (P::barrier_is_enough()) {
        word.store(value, std::memory_order_release);
        P::compiler_barrier();
    } else {
        word.exchange(value, std::memory_order_seq_cst);
    }
}

/// Where each thread says that it is looking at what others may take away. Sections are short: they
/// neither wait nor call anybody. Rows are threads, numbered in steps of P::row_step, so that their
/// words are in cache lines of their own.
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

    /// Returns when every section that may have seen what this thread has changed before is over.
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

/// The leases of one entry, and who may destroy it: the one to whom settle() says so. Outlives the
/// entry: the next one takes its place.
///
/// Each thread counts what it took and gave back in a word of its own; their sum is the number of
/// leases, once nobody takes any more. The words lie elsewhere: @p counts is that of the first row,
/// that of another is row * P::stride words further.
template <class P>
class LeaseState {
  public:
    using Count = typename P::template Atomic<std::uint32_t>;

    /// Whether the entry may be taken, by those who are in a section since before they asked. What
    /// was written of it before begin() is seen then, and stays as it is until the section ends.
    [[nodiscard]] bool found() const noexcept {
        return state_.load(std::memory_order_seq_cst) == State::found;
    }
    /// Of an entry that was found() in the section the thread is in.
    void take(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    /// Inside of a section. @return whether settle() has to be called after it
    template <class Q = P>
    [[nodiscard]] bool give_back(Count* counts, std::size_t thread_slot) noexcept {
        Count& count = counts[thread_slot * P::stride];
        store_before_loads<Q>(count, count.load(std::memory_order_relaxed) - 1);
        return attention_.load(std::memory_order_seq_cst);
    }

    // With the cache's lock held.

    /// Before the entry can be found.
    /// @param watched  whether settle() is to be called for each lease given back
    void begin(bool watched) noexcept {
        attention_.store(watched, std::memory_order_seq_cst);
        state_.store(State::found, std::memory_order_seq_cst);
    }
    /// It can no longer be found. ReaderSections::wait() has to follow, and settle().
    void retire() noexcept {
        state_.store(State::draining, std::memory_order_seq_cst);
        attention_.store(true, std::memory_order_seq_cst);
    }
    /// Whether the caller destroys the entry: it has been retired, and this was the last lease.
    [[nodiscard]] bool settle(const Count* counts) noexcept {
        if (state_.load(std::memory_order_relaxed) != State::draining || leases(counts) != 0) {
            return false;
        }
        state_.store(State::free, std::memory_order_relaxed);
        return true;
    }

    /// Exact of an entry that is draining, and a good guess of another.
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
