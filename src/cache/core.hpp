// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/registration_cache.hpp>

#include "cache/entries.hpp"
#include "cache/hints.hpp"
#include "cache/index.hpp"

namespace rdmabuf::detail {

struct CacheRange {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;

    [[nodiscard]] std::size_t length() const noexcept { return end - begin; }
    [[nodiscard]] bool holds(const CacheRange& other) const noexcept {
        return begin <= other.begin && other.end <= end;
    }
    [[nodiscard]] bool overlaps(const CacheRange& other) const noexcept {
        return begin < other.end && other.begin < end;
    }
    friend bool operator==(const CacheRange&, const CacheRange&) noexcept = default;
};

[[nodiscard]] inline CacheRange range_of(const CacheEntry& entry) noexcept {
    return {.begin = entry.address, .end = entry.end};
}

/// Whether an entry with the flags @p access can be used by a caller that needs @p wanted: it has
/// at least these permissions, and the same other flags.
[[nodiscard]] inline bool serves(Access access, Access wanted) noexcept {
    constexpr Access permissions = full_access | Access::memory_window_bind;
    return access == wanted ||
           (has(access, wanted) && (access & ~permissions) == (wanted & ~permissions));
}

/// Whether @p entry can be found, covers @p range and has the flags @p wanted. The caller is in a
/// read-side section or holds the lock of the cache.
[[nodiscard, gnu::always_inline]] inline bool serves(const CacheEntry& entry,
                                                     const CacheRange& range,
                                                     Access wanted) noexcept {
    return entry.is_found() && range_of(entry).holds(range) && serves(entry.access, wanted);
}

/// The entries with the same access flags. A cache has few of these lists and never removes one.
struct AccessClass {
    AccessClass(Access a, RetireList& retire_list) : access(a), index(retire_list) {}

    const Access access;
    RangeIndex index;
    std::atomic<AccessClass*> next{nullptr};
};

/// The state that a RegistrationCache shares with its leases. It is destroyed after the cache and
/// the last lease.
class CacheCore {
  public:
    CacheCore(std::span<const ProtectionDomain> pds, Resolver resolver,
              const RegistrationCacheOptions& options);
    CacheCore(const CacheCore&) = delete;
    CacheCore& operator=(const CacheCore&) = delete;

    /// The access flags that the cache adds to each registration.
    [[nodiscard]] Access added_access() const noexcept { return added_; }

    /// Returns an entry that covers the range, with a new lease; nullptr if there is no such entry.
    [[nodiscard]] CacheEntry* find(std::uintptr_t address, std::size_t length,
                                   Access access) noexcept;
    /// As find(), but looks only at the hints, so it can also return nullptr for an existing entry.
    /// @param access  includes added_access()
    [[nodiscard]] CacheEntry* find_fast(std::uintptr_t address, std::size_t length,
                                        Access access) noexcept;
    /// Returns an entry that covers the range, with a new lease, and registers the range if
    /// necessary. Called after find_fast() has returned nullptr.
    [[nodiscard]] CacheEntry& acquire_slowly(std::uintptr_t address, std::size_t length,
                                             Access access);
    static void give_back(CacheEntry& entry) noexcept;

    void invalidate(std::uintptr_t address, std::size_t length) noexcept;
    void clear() noexcept;
    [[nodiscard]] RegistrationCache::Statistics statistics() const noexcept;

    /// Called by the destructor of the cache. Deletes this object now, or with the last lease.
    void close() noexcept;

  private:
    /// Entries without leases that can no longer be found, linked by EntryDetails::next.
    class Retired {
      public:
        void push(CacheEntry& entry) noexcept;
        [[nodiscard]] CacheEntry* pop() noexcept;
        [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

      private:
        CacheEntry* first_ = nullptr;
    };
    /// A registration in progress. The statistics count it as an entry.
    struct Pending {
        CacheRange range = {};
        Access access{};
        /// The limits of the cache allow the entry to stay after its last lease.
        bool kept = false;
        bool published = false;
        /// Part of the range was invalidated after the registration began.
        bool invalidated = false;
        bool done = false;
        std::optional<Error> error = std::nullopt;
    };
    /// The exporter and the allocation of a range.
    struct Owner {
        /// The whole range is in one allocation, or no exporter knows any of it.
        bool one = false;
        /// The exporter of the allocation; nullptr if no exporter knows the range.
        const Exporter* exporter = nullptr;
        Allocation allocation = {};
    };
    struct Candidate {
        CacheEntry* entry;
        std::uint64_t used;
    };
    using Lock = std::unique_lock<std::mutex>;

    ~CacheCore() = default;

    // Hits
    [[nodiscard]] CacheEntry* take(CacheRange range, Access access,
                                   std::size_t thread_slot) noexcept;
    [[nodiscard]] CacheEntry* search(CacheRange range, Access access) noexcept;
    [[nodiscard]] CacheEntry* take_locked(CacheRange range, Access access) noexcept;
    [[nodiscard]] CacheEntry* take_current(CacheRange range, Access access,
                                           std::size_t thread_slot) noexcept;
    /// As find(), without counting a hit in the statistics.
    [[nodiscard]] CacheEntry* find_again(const CacheRange& range, Access access) noexcept;
    void note_use(CacheEntry& entry) const noexcept;
    /// The number of hits that was counted in a thread slot.
    [[nodiscard]] std::atomic<std::uint64_t>& hits_of(std::size_t thread_slot) noexcept;
    void count_hit(std::size_t thread_slot) noexcept;
    template <class P>
    static void give_back_in(std::size_t thread_slot, CacheEntry& entry) noexcept;
    static void give_back_slowly(CacheEntry& entry) noexcept;
    /// Finishes the return of a lease whose entry was retired or is watched. Called in the
    /// read-side section of the return, and leaves this section.
    static void attend(std::size_t thread_slot, CacheEntry& entry) noexcept;
    [[nodiscard]] static bool is_current(const CacheEntry& entry) noexcept;
    void drop_stale(CacheEntry& entry) noexcept;

    // Defined in cache/miss.cpp.
    [[nodiscard]] CacheEntry& acquire_missed(std::uintptr_t address, std::size_t length,
                                             Access access);
    class Cleanup;
    class Finish;
    [[nodiscard]] CacheEntry* try_acquire(const CacheRange& range, Access access,
                                          std::optional<Owner>& owner);
    [[nodiscard]] std::shared_ptr<Pending> pending_for(const CacheRange& range,
                                                       Access access) const noexcept;
    [[nodiscard]] Owner owner_of(const CacheRange& range) const;
    [[nodiscard]] bool touches_others(const CacheRange& range, Access access) const noexcept;
    [[nodiscard]] CacheRange merged(const CacheRange& range, Access access,
                                    const Owner& owner) const noexcept;
    [[nodiscard]] Registration register_range(const CacheRange& range, Access access);
    [[nodiscard]] Registration register_pending(Pending& pending, const CacheRange& asked);
    [[nodiscard]] CacheEntry& publish(Registration registration, const Pending& pending,
                                      Retired& retired);
    void fill(CacheEntry& entry, Registration registration, const Pending& pending) const;

    // With the lock held.
    [[nodiscard]] AccessClass* class_of(Access access) const noexcept;
    [[nodiscard]] AccessClass& make_class(Access access);
    [[nodiscard]] bool is_found(const CacheRange& range, Access access) const noexcept;
    [[nodiscard]] bool make_room(std::size_t length, Retired& retired) noexcept;
    [[nodiscard]] bool fits(std::size_t length) const noexcept;
    [[nodiscard]] CacheEntry* next_victim() noexcept;
    void look_for_victims() noexcept;
    /// Removes an entry from the index, so that it can no longer be found. The caller calls wait()
    /// and then settle().
    void take_out(CacheEntry& entry) noexcept;
    /// Waits until no reader can still see entries that were removed from the index.
    void wait() noexcept;
    /// Moves an entry that was removed from the index to @p retired if it has no leases.
    void settle(CacheEntry& entry, Retired& retired) noexcept;
    /// Calls wait(), and settle() for each entry of @p taken_out. @return the number of entries
    /// moved to @p retired
    std::size_t settle_all(Retired& taken_out, Retired& retired) noexcept;
    void take_out_overlapping(const CacheRange& range, Retired& taken_out) noexcept;

    /// Deregisters the entries. The caller does not hold the lock.
    void destroy(Retired& retired) noexcept;
    void give_back_locked(CacheEntry& entry) noexcept;
    /// Settles an entry after a lease was returned, and releases a reference of the caller
    /// (hold()).
    void settle_after_lease(CacheEntry& entry) noexcept;
    [[nodiscard]] bool evict_idle() noexcept;
    [[nodiscard]] bool hold() noexcept;
    void let_go() noexcept;

    const std::vector<ProtectionDomain> pds_;
    const Resolver resolver_;
    const RegistrationCacheOptions options_;
    const Access added_;

    RetireList retire_list_;

    // Members that hits read.
    EntryHints hints_{retire_list_};
    std::atomic<AccessClass*> classes_{nullptr};
    /// Incremented by each registration: the clock of "least recently used".
    std::atomic<std::uint64_t> clock_{0};
    struct alignas(64) Hits {
        std::atomic<std::uint64_t> count{0};
    };
    std::array<Hits, Platform::thread_slots / Platform::thread_slot_step> hits_;

    /// References: one for the cache, one for each entry, and one for each thread that finishes the
    /// return of a lease.
    std::atomic<std::size_t> holds_{1};

    mutable std::mutex mutex_;
    std::condition_variable finished_;
    std::vector<std::unique_ptr<AccessClass>> all_classes_;
    EntryPool entries_{*this};
    std::vector<std::shared_ptr<Pending>> pending_;
    /// The least recently used entries at the time of the last search; the oldest is the last
    /// element. Its capacity is the number of entries, so that it never allocates.
    std::vector<Candidate> victims_;
    RegistrationCache::Statistics statistics_;
};

} // namespace rdmabuf::detail
