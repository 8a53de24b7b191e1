// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>

#include "registration_cache_protocol.hpp"

namespace rdmabuf::detail {

/// The machine that a cache runs on.
struct Platform {
    template <class T>
    using Atomic = std::atomic<T>;

    /// One row for threads that have none of their own, used with the cache's lock held, and those
    /// of threads.
    static constexpr unsigned rows = 128;
    static constexpr unsigned shared_row = 0;
    /// From a thread's count of one entry to the next thread's: in pages of their own.
    static constexpr std::size_t stride = 1024;

    /// Before the first section. Finds out whether there is membarrier(2).
    static void prepare() noexcept;
    [[nodiscard]] static bool barrier_is_enough() noexcept {
        return membarrier_.load(std::memory_order_relaxed);
    }
    static void compiler_barrier() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }
    static void barrier() noexcept;
    static void pause() noexcept;

    /// Rows from here on have never been used.
    [[nodiscard]] static unsigned rows_in_use() noexcept {
        return rows_in_use_.load(std::memory_order_seq_cst);
    }

    /// This thread's; shared_row when there is none left.
    [[nodiscard]] static unsigned row() noexcept {
        const unsigned row = row_;
        return row != shared_row ? row : claim_row();
    }

  private:
    [[nodiscard]] static unsigned claim_row() noexcept;

    // Hidden: a shared library would look for their addresses in a table first.
    [[gnu::visibility("hidden")]] static std::atomic<bool> membarrier_;        // NOLINT(*-naming)
    [[gnu::visibility("hidden")]] static std::atomic<unsigned> rows_in_use_;   // NOLINT(*-naming)
    [[gnu::visibility("hidden")]] static constinit thread_local unsigned row_; // NOLINT(*-naming)
};

/// Of all caches of the process: rows are threads, and a thread is in one section at a time.
[[gnu::visibility("hidden")]] extern ReaderSections<Platform> reader_sections;

/// A section of this thread.
class ReaderSection {
  public:
    explicit ReaderSection(unsigned row) noexcept : row_(row) { reader_sections.enter(row); }
    ~ReaderSection() { reader_sections.exit(row_); }
    ReaderSection(const ReaderSection&) = delete;
    ReaderSection& operator=(const ReaderSection&) = delete;

  private:
    unsigned row_;
};

} // namespace rdmabuf::detail
