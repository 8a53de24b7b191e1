// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>

#include "cache/protocol.hpp"

namespace rdmabuf::detail {

/// The real machine, as the template parameter P of cache/protocol.hpp.
struct Platform {
    template <class T>
    using Atomic = std::atomic<T>;

    /// The numbers of thread slots are multiples of the size of a cache line, so that a number is
    /// also the offset of the words of the slot. Slot 0 is shared by the threads without a slot of
    /// their own, which hold the lock of the cache when they use it.
    static constexpr std::size_t thread_slot_step = 64;
    static constexpr std::size_t thread_slots = 128 * thread_slot_step;
    static constexpr std::size_t shared_thread_slot = 0;
    /// Lease counts of one thread slot that are contiguous in memory. The counts of different slots
    /// are in different pages.
    static constexpr std::size_t counts_per_thread_slot = 32768;
    static constexpr std::size_t stride = counts_per_thread_slot / thread_slot_step;

    /// Called before the first read-side section. Checks whether the kernel has membarrier(2).
    static void prepare() noexcept;
    [[nodiscard]] static bool barrier_is_enough() noexcept {
        return membarrier_.load(std::memory_order_relaxed);
    }
    static void compiler_barrier() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
    static void barrier() noexcept;
    static void pause() noexcept;

    /// Thread slots from this number on were never used.
    [[nodiscard]] static std::size_t thread_slots_in_use() noexcept {
        return thread_slots_in_use_.load(std::memory_order_seq_cst);
    }

    /// Returns the slot of this thread, if it has one and barrier_is_enough(); otherwise
    /// shared_thread_slot.
    [[nodiscard]] static std::size_t fast_thread_slot() noexcept { return fast_thread_slot_; }
    /// Returns the slot of this thread, and assigns one if necessary; shared_thread_slot if all
    /// slots are in use.
    [[nodiscard]] static std::size_t thread_slot() noexcept {
        const std::size_t thread_slot = thread_slot_;
        return thread_slot != shared_thread_slot ? thread_slot : claim_thread_slot();
    }

  private:
    [[nodiscard]] static std::size_t claim_thread_slot() noexcept;

    // Hidden visibility and the initial-exec model save instructions in a shared library: otherwise
    // the addresses of these members come from the global offset table, and those of thread-local
    // members from a function call.
    [[gnu::visibility("hidden")]] static std::atomic<bool> membarrier_; // NOLINT(*-naming)
    [[gnu::visibility("hidden")]] static std::atomic<std::size_t>
        thread_slots_in_use_; // NOLINT(*-naming)
    [[gnu::visibility("hidden"),
      gnu::tls_model("initial-exec")]] static constinit thread_local std::size_t
        thread_slot_; // NOLINT(*-naming)
    [[gnu::visibility("hidden"),
      gnu::tls_model("initial-exec")]] static constinit thread_local std::size_t
        fast_thread_slot_; // NOLINT(*-naming)
};

/// As Platform, for threads whose fast_thread_slot() is not the shared one.
struct FastPlatform : Platform {
    [[nodiscard]] static constexpr bool barrier_is_enough() noexcept { return true; }
};

/// The read-side sections of all caches of the process. A thread is in at most one of them.
[[gnu::visibility("hidden")]] extern ReadSideSections<Platform> read_side_sections;

/// Enters a read-side section for the lifetime of the object.
/// @tparam P  FastPlatform for a fast_thread_slot(), otherwise Platform
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
