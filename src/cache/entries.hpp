// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rdmabuf/detail/cached_registration.hpp>
#include <rdmabuf/registration.hpp>

#include "cache/pages.hpp"
#include "cache/platform.hpp"

namespace rdmabuf::detail {

class CacheCore;
struct AccessClass;
struct CacheEntry;

/// What hits do not read of an entry.
struct EntryDetails {
    explicit EntryDetails(CacheCore& c) noexcept : core(c) {}

    CacheCore& core;
    AccessClass* access_class = nullptr;
    std::vector<CacheKeys> several = {};
    std::optional<Registration> registration = std::nullopt;
    /// Whose generation can be compared, if that can be done; of those that the resolver holds.
    const Exporter* exporter = nullptr;
    std::uint64_t generation = 0;
    /// No generation can be compared: no exporter knows the memory, its exporter has no
    /// generations, or it belongs to more than one allocation.
    bool mixed = false;
    /// Is deregistered with the last lease.
    bool watched = false;
    /// In the list of free slots, or of entries to be destroyed.
    CacheEntry* next = nullptr;
};

/// Where an entry is kept, and after it the next: what hits read of it, which is one cache line. A
/// thread that gives a lease back looks at it when the entry may be gone already, so it lives as
/// long as the cache's core.
struct alignas(64) CacheEntry : CachedRegistration {
    using Count = LeaseState<Platform>::Count;
    /// How many there are in one block of memory, and its size and alignment. The counts of their
    /// leases follow, so that where those are is known before the slot itself has been read.
    static constexpr std::size_t block_entries = Platform::counts_per_thread_slot;
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
    /// CacheCore::clock when it was last found.
    std::atomic<std::uint64_t> used{0};
    EntryDetails* const details;
};
static_assert(sizeof(CacheEntry) == 64);

/// The slots of a cache. All but the constructor with the cache's lock held.
class EntryPool {
  public:
    explicit EntryPool(CacheCore& core) noexcept : core_(core) {}

    /// One that is free. @throws Error ENOMEM, std::bad_alloc
    [[nodiscard]] CacheEntry& take();
    void put(CacheEntry& entry) noexcept;

    [[nodiscard]] std::size_t size() const noexcept { return details_.size(); }
    /// All there have ever been.
    template <class Visit>
    void for_each(Visit visit) const {
        for (std::size_t i = 0; i < size(); ++i) {
            visit(at(i));
        }
    }

  private:
    /// Up to this many lie in small pages.
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
