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

/// Whether an entry of @p access is as good as one of @p wanted.
[[nodiscard]] inline bool serves(Access access, Access wanted) noexcept {
    constexpr Access permissions = full_access | Access::memory_window_bind;
    return access == wanted ||
           (has(access, wanted) && (access & ~permissions) == (wanted & ~permissions));
}

/// Whether an entry may be taken, by who is in a section or holds the lock, and is what is wanted.
[[nodiscard, gnu::always_inline]] inline bool serves(const CacheEntry& entry,
                                                     const CacheRange& range,
                                                     Access wanted) noexcept {
    return entry.is_found() && range_of(entry).holds(range) && serves(entry.access, wanted);
}

/// The entries of one access. There are few of them, and they stay.
struct AccessClass {
    AccessClass(Access a, RetireList& retire_list) : access(a), index(retire_list) {}

    const Access access;
    RangeIndex index;
    std::atomic<AccessClass*> next{nullptr};
};

/// What a RegistrationCache and its leases share. Exists for as long as the cache does, or an entry
/// has leases.
class CacheCore {
  public:
    CacheCore(std::span<const ProtectionDomain> pds, Resolver resolver,
              const RegistrationCacheOptions& options);
    CacheCore(const CacheCore&) = delete;
    CacheCore& operator=(const CacheCore&) = delete;

    /// What every registration has.
    [[nodiscard]] Access added_access() const noexcept { return added_; }

    /// A lease on an entry that serves; nullptr when there is none.
    [[nodiscard]] CacheEntry* find(std::uintptr_t address, std::size_t length,
                                   Access access) noexcept;
    /// find() of most hits; nullptr also where it takes more to find it.
    /// @param access  with added_access()
    [[nodiscard]] CacheEntry* find_fast(std::uintptr_t address, std::size_t length,
                                        Access access) noexcept;
    /// A lease on an entry that serves, or on a new one, after find_fast() has found none.
    [[nodiscard]] CacheEntry& acquire_slowly(std::uintptr_t address, std::size_t length,
                                             Access access);
    static void give_back(CacheEntry& entry) noexcept;

    void invalidate(std::uintptr_t address, std::size_t length) noexcept;
    void clear() noexcept;
    [[nodiscard]] RegistrationCache::Statistics statistics() const noexcept;

    /// The cache is gone. Ends this, now or with the last lease.
    void close() noexcept;

  private:
    /// Entries that nobody uses and nobody can find, chained by CacheSlot::next.
    class Retired {
      public:
        void push(CacheEntry& entry) noexcept;
        [[nodiscard]] CacheEntry* pop() noexcept;
        [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

      private:
        CacheEntry* first_ = nullptr;
    };
    /// A registration that is being made. Counted in the statistics like an entry.
    struct Pending {
        CacheRange range = {};
        Access access{};
        /// Whether there is room to keep it.
        bool kept = false;
        bool published = false;
        /// Something of it was invalidated since it began.
        bool invalidated = false;
        bool done = false;
        std::optional<Error> error = std::nullopt;
    };
    /// Whose memory a range is.
    struct Owner {
        /// Whether all of it is of one allocation, or of none that an exporter knows.
        bool one = false;
        /// The one that knows it, if any.
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
    /// find() that does not count.
    [[nodiscard]] CacheEntry* find_again(const CacheRange& range, Access access) noexcept;
    void note_use(CacheEntry& entry) const noexcept;
    /// Written by the threads of the row.
    [[nodiscard]] std::atomic<std::uint64_t>& hits_of(std::size_t thread_slot) noexcept;
    void count_hit(std::size_t thread_slot) noexcept;
    template <class P>
    static void give_back_in(std::size_t thread_slot, CacheEntry& entry) noexcept;
    static void give_back_slowly(CacheEntry& entry) noexcept;
    /// Inside of the section in which a lease was given back that somebody waits for; ends it.
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
    /// Takes an entry out of the index; wait() and settle() have to follow.
    void take_out(CacheEntry& entry) noexcept;
    /// Until no reader is left that may find what was taken out.
    void wait() noexcept;
    /// Whether nobody uses an entry that was taken out.
    void settle(CacheEntry& entry, Retired& retired) noexcept;
    /// wait(), and settle() for each. @return how many are retired.
    std::size_t settle_all(Retired& taken_out, Retired& retired) noexcept;
    void take_out_overlapping(const CacheRange& range, Retired& taken_out) noexcept;

    /// Without the lock.
    void destroy(Retired& retired) noexcept;
    void give_back_locked(CacheEntry& entry) noexcept;
    /// Lets go of a hold() of the caller's.
    void settle_after_lease(CacheEntry& entry) noexcept;
    [[nodiscard]] bool evict_idle() noexcept;
    [[nodiscard]] bool hold() noexcept;
    void let_go() noexcept;

    const std::vector<ProtectionDomain> pds_;
    const Resolver resolver_;
    const RegistrationCacheOptions options_;
    const Access added_;

    RetireList retire_list_;

    // What hits read.
    EntryHints hints_{retire_list_};
    std::atomic<AccessClass*> classes_{nullptr};
    /// Goes on with every registration.
    std::atomic<std::uint64_t> clock_{0};
    struct alignas(64) Hits {
        std::atomic<std::uint64_t> count{0};
    };
    std::array<Hits, Platform::thread_slots / Platform::thread_slot_step> hits_;

    /// The cache, every entry, and whoever is at work in here for a lease that has ended.
    std::atomic<std::size_t> holds_{1};

    mutable std::mutex mutex_;
    std::condition_variable finished_;
    std::vector<std::unique_ptr<AccessClass>> all_classes_;
    EntryPool entries_{*this};
    std::vector<std::shared_ptr<Pending>> pending_;
    /// The least recently used ones when they were last looked for, those to go first at the end.
    /// Has the capacity for all slots.
    std::vector<Candidate> victims_;
    RegistrationCache::Statistics statistics_;
};

} // namespace rdmabuf::detail
