// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>

#include "cache/protocol.hpp"

namespace rdmabuf::detail {

/// Provides atomics, memory barriers and thread slots to the templates in cache/protocol.hpp: this
/// class is their template argument for P. Only tests use another class.
struct Platform {
    template <class T>
    using Atomic = std::atomic<T>;

    /// The indexes of thread slots are multiples of this number of bytes, the size of a cache line.
    /// An index is used as the byte offset of data that only the thread of the slot writes, so that
    /// no two threads write to the same cache line. Threads without a slot of their own share slot
    /// 0, and hold the lock of the cache while they write the lease counts of this slot.
    static constexpr std::size_t thread_slot_step = 64;
    static constexpr std::size_t thread_slots = 128 * thread_slot_step;
    static constexpr std::size_t shared_thread_slot = 0;
    /// The number of lease counts that one thread slot has in a block of cache entries. The counts
    /// of different slots are in different pages.
    static constexpr std::size_t counts_per_thread_slot = 32768;
    static constexpr std::size_t stride = counts_per_thread_slot / thread_slot_step;

    /// Registers the process for membarrier(2), if the kernel has this system call. Must be called
    /// before the first read-side section.
    static void prepare() noexcept;
    /// Returns true if membarrier(2) works. barrier() then also orders the memory accesses of the
    /// other threads, so that readers need only a compiler barrier.
    [[nodiscard]] static bool barrier_is_enough() noexcept {
        return membarrier_.load(std::memory_order_relaxed);
    }
    static void compiler_barrier() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
    static void barrier() noexcept;
    static void pause() noexcept;

    /// Returns the exclusive upper bound for a loop over all thread slots that are or were in use.
    [[nodiscard]] static std::size_t thread_slots_in_use() noexcept {
        return thread_slots_in_use_.load(std::memory_order_seq_cst);
    }

    /// Returns the slot index of this thread if the thread has a slot and barrier_is_enough() is
    /// true. Otherwise returns shared_thread_slot.
    [[nodiscard]] static std::size_t fast_thread_slot() noexcept { return fast_thread_slot_; }
    /// Returns the slot index of this thread. A thread without a slot gets a free slot. Returns
    /// shared_thread_slot if all slots are in use, if the thread is ending, or if the C library has
    /// no memory.
    [[nodiscard]] static std::size_t thread_slot() noexcept {
        const std::size_t thread_slot = thread_slot_;
        return thread_slot != shared_thread_slot ? thread_slot : claim_thread_slot();
    }

  private:
    [[nodiscard]] static std::size_t claim_thread_slot() noexcept;
    /// Frees the slot of a thread that ends; a destructor for pthread_key_create(3).
    static void free_thread_slot(void* argument) noexcept;

    // Hidden visibility saves instructions in a shared library: the code need not read addresses
    // from the global offset table.
    [[gnu::visibility("hidden")]] static std::atomic<bool> membarrier_; // NOLINT(*-naming)
    [[gnu::visibility("hidden")]] static std::atomic<std::size_t>
        thread_slots_in_use_; // NOLINT(*-naming)
    // The thread-local members do not use the initial-exec model, because this code may be part of
    // a plugin: dlopen(3) cannot load a library that uses this model if the static thread-local
    // storage of the process is exhausted. In programs, the linker replaces the access by the
    // local-exec model.
    [[gnu::visibility(
        "hidden")]] static constinit thread_local std::size_t thread_slot_; // NOLINT(*-naming)
    [[gnu::visibility(
        "hidden")]] static constinit thread_local std::size_t fast_thread_slot_; // NOLINT(*-naming)
};

/// A variant of Platform for threads whose fast_thread_slot() is not shared_thread_slot. Threads
/// have such a slot only if barrier_is_enough() is true.
struct FastPlatform : Platform {
    [[nodiscard]] static constexpr bool barrier_is_enough() noexcept { return true; }
};

/// The read-side critical sections of all caches of the process. A thread is in at most one section
/// at a time.
[[gnu::visibility("hidden")]] extern ReadSideSections<Platform> read_side_sections;

/// Enters a read-side section in the constructor and leaves the section in the destructor.
/// @tparam P  FastPlatform if the slot was returned by fast_thread_slot(); otherwise Platform
template <class P = Platform>
class ReadSideSection {
  public:
    explicit ReadSideSection(std::size_t thread_slot) noexcept : thread_slot_(thread_slot) {
        read_side_sections.enter<P>(thread_slot);
    }
    ~ReadSideSection() { read_side_sections.exit(thread_slot_); }
    ReadSideSection(const ReadSideSection&) = delete;
    ReadSideSection& operator=(const ReadSideSection&) = delete;

  private:
    std::size_t thread_slot_;
};

} // namespace rdmabuf::detail
