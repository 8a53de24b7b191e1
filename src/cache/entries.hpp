// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <rdmabuf/registration.hpp>
#include <rdmabuf/registration_cache.hpp>

#include "cache/pages.hpp"
#include "cache/platform.hpp"

namespace rdmabuf::detail {

class CacheCore;
struct AccessClass;
struct CacheEntry;

/// The members of a cache entry that a hit does not read, except with CachePolicy::checked.
struct EntryDetails {
    explicit EntryDetails(CacheCore& c) noexcept : core(c) {}

    CacheCore& core;
    AccessClass* access_class = nullptr;
    std::vector<CacheKeys> several = {};
    std::optional<Registration> registration = std::nullopt;
    /// The exporter that returns the current generation (allocation number) of the memory. A hit
    /// with CachePolicy::checked compares `generation` with the current generation. Null if the
    /// memory has no generation to compare. The resolver of the cache owns the exporter.
    const Exporter* exporter = nullptr;
    std::uint64_t generation = 0;
    /// True if an exporter finds the memory, but the cache has no generation to compare. Either the
    /// exporter reports no generations, or the memory belongs to more than one allocation.
    bool mixed = false;
    /// True if the entry is deregistered when its last lease is returned.
    bool watched = false;
    /// The next entry in a list of free entries or of removed entries.
    CacheEntry* next = nullptr;
    struct Deregistration {
        std::thread::id thread{};
        /// A later deregistration has a higher number.
        std::uint64_t number = 0;
    };
    /// Set while a thread deregisters the removed entry, without the lock of the cache.
    std::optional<Deregistration> deregistration = std::nullopt;
};

/// The members of a cache entry that a hit reads, in one cache line. A thread that returns a lease
/// may still read an entry that was destroyed. The memory of an entry is therefore reused only for
/// other entries, and is freed with the CacheCore.
struct alignas(64) CacheEntry : CachedRegistration {
    using Count = LeaseState<Platform>::Count;
    static constexpr std::size_t block_entries = Platform::counts_per_thread_slot;
    /// The total size in bytes of the entries in one block, which are 64 bytes long. A block is
    /// aligned to this size, and its lease counts begin after its entries. So counts() can compute
    /// the address of a lease count from the address of the entry.
    static constexpr std::size_t block_size = block_entries * 64;

    explicit CacheEntry(EntryDetails* r) noexcept : details(r) {}

    [[nodiscard]] Count* counts() const noexcept {
        const auto here = reinterpret_cast<std::uintptr_t>(this);
        return reinterpret_cast<Count*>(here - here % block_size + block_size +
                                        here % block_size / 64 * sizeof(Count));
    }
    void take(std::size_t thread_slot) noexcept { state.take(counts(), thread_slot); }
    template <class P = Platform>
    [[nodiscard]] bool give_back(std::size_t thread_slot) noexcept {
        return state.give_back<P>(counts(), thread_slot);
    }
    [[nodiscard]] bool settle() noexcept { return state.settle(counts()); }
    [[nodiscard]] bool is_found() const noexcept { return state.found(); }
    [[nodiscard]] bool is_idle() const noexcept {
        return state.found() && LeaseState<Platform>::leases(counts()) == 0;
    }
    [[nodiscard]] std::size_t length() const noexcept { return end - address; }

    LeaseState<Platform> state;
    /// The time of the last hit that found this entry, or of its registration if there was no hit:
    /// a value of CacheCore::clock_.
    std::atomic<std::uint64_t> used{0};
    EntryDetails* const details;
};
static_assert(sizeof(CacheEntry) == 64);

/// Allocates the entries of a cache. The caller of each function must hold the lock of the cache.
class EntryPool {
  public:
    explicit EntryPool(CacheCore& core) noexcept : core_(core) {}

    /// Returns an unused entry.
    /// @throws Error ENOMEM if mmap(2) has no memory; std::bad_alloc
    [[nodiscard]] CacheEntry& take();
    void put(CacheEntry& entry) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return details_.size(); }
    /// Calls @p visit once for each entry, whether the entry is in use or not.
    template <class Visit>
    void for_each(Visit visit) const {
        for (std::size_t i = 0; i < size(); ++i) {
            visit(at(i));
        }
    }

  private:
    /// The first block uses huge pages if the cache has more entries than this number.
    static constexpr std::size_t few = 1024;

    [[nodiscard]] CacheEntry& at(std::size_t i) const noexcept {
        return static_cast<CacheEntry*>(
            blocks_[i / CacheEntry::block_entries]->get())[i % CacheEntry::block_entries];
    }

    CacheCore& core_;
    std::vector<std::unique_ptr<Pages>> blocks_;
    std::vector<std::unique_ptr<EntryDetails>> details_;
    CacheEntry* free_ = nullptr;
};

} // namespace rdmabuf::detail
