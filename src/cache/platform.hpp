// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>

#include "cache/protocol.hpp"

namespace rdmabuf::detail {

/// The machine that a cache runs on.
struct Platform {
    template <class T>
    using Atomic = std::atomic<T>;

    /// One row for threads that have none of their own, used with the cache's lock held, and those
    /// of threads. In steps of a cache line, so that a row also says where in memory its words are.
    static constexpr std::size_t thread_slot_step = 64;
    static constexpr std::size_t thread_slots = 128 * thread_slot_step;
    static constexpr std::size_t shared_thread_slot = 0;
    /// The counts of as many entries lie together. Those of another row are in pages of their own.
    static constexpr std::size_t counts_per_thread_slot = 32768;
    static constexpr std::size_t stride = counts_per_thread_slot / thread_slot_step;

    /// Before the first section. Finds out whether there is membarrier(2).
    static void prepare() noexcept;
    [[nodiscard]] static bool barrier_is_enough() noexcept {
        return membarrier_.load(std::memory_order_relaxed);
    }
    static void compiler_barrier() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
    static void barrier() noexcept;
    static void pause() noexcept;

    /// Rows from here on have never been used.
    [[nodiscard]] static std::size_t thread_slots_in_use() noexcept {
        return thread_slots_in_use_.load(std::memory_order_seq_cst);
    }

    /// This thread's, if it has one already and barrier_is_enough(); else shared_row.
    [[nodiscard]] static std::size_t fast_thread_slot() noexcept { return fast_thread_slot_; }
    /// This thread's; shared_row when there is none left.
    [[nodiscard]] static std::size_t thread_slot() noexcept {
        const std::size_t thread_slot = thread_slot_;
        return thread_slot != shared_thread_slot ? thread_slot : claim_thread_slot();
    }

  private:
    [[nodiscard]] static std::size_t claim_thread_slot() noexcept;

    // Hidden: a shared library would look for their addresses in a table first. And it would call a
    // function for those of a thread, in the other model.
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

/// For the threads that have a fast_row().
struct FastPlatform : Platform {
    [[nodiscard]] static constexpr bool barrier_is_enough() noexcept { return true; }
};

/// Of all caches of the process: rows are threads, and a thread is in one section at a time.
[[gnu::visibility("hidden")]] extern ReadSideSections<Platform> read_side_sections;

/// A section of this thread.
/// @tparam P  Platform, or FastPlatform in a fast_row()
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
