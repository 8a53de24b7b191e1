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
#include <thread>
#include <utility>
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

/// Returns true if an entry that was registered with @p access can be used by a caller that needs
/// the flags @p wanted. The entry must have all wanted permissions, and its other flags must be
/// equal to those in @p wanted.
[[nodiscard]] inline bool serves(Access access, Access wanted) noexcept {
    constexpr Access permissions = full_access | Access::memory_window_bind;
    return access == wanted ||
           (has(access, wanted) && (access & ~permissions) == (wanted & ~permissions));
}

/// Returns true if @p entry is valid, covers @p range, and can be used with the flags @p wanted.
/// The caller must be in a read-side section or hold the lock of the cache.
[[nodiscard, gnu::always_inline]] inline bool serves(const CacheEntry& entry,
                                                     const CacheRange& range,
                                                     Access wanted) noexcept {
    return entry.is_found() && range_of(entry).holds(range) && serves(entry.access, wanted);
}

/// Contains the entries of a cache that have the same access flags. A cache has one AccessClass for
/// each set of access flags with which it has registered memory, and never removes an AccessClass.
struct AccessClass {
    AccessClass(Access a, RetireList& retire_list) : access(a), index(retire_list) {}

    const Access access;
    RangeIndex index;
    std::atomic<AccessClass*> next{nullptr};
};

/// The state that a RegistrationCache shares with its leases (use counts of entries). The state is
/// destroyed when the cache and all its leases have been destroyed.
class CacheCore {
  public:
    CacheCore(std::span<const ProtectionDomain> pds, Resolver resolver,
              const RegistrationCacheOptions& options);
    CacheCore(const CacheCore&) = delete;
    CacheCore& operator=(const CacheCore&) = delete;

    /// Returns the access flags that the cache adds to each registration.
    [[nodiscard]] Access added_access() const noexcept { return added_; }

    /// Returns an entry that covers the range, and takes a lease on the entry: the entry stays
    /// registered until the lease is returned. Returns nullptr if no entry covers the range with
    /// these access flags, or if the range is empty or overflows. With CachePolicy::checked, also
    /// returns nullptr if the entry is stale or its exporter cannot be queried.
    [[nodiscard]] CacheEntry* find(std::uintptr_t address, std::size_t length,
                                   Access access) noexcept;
    /// Does the same as find(), but searches only in EntryHints, a hash table that lacks some
    /// entries. May therefore return nullptr although find() would return an entry. Always returns
    /// nullptr with CachePolicy::checked, or if Platform::fast_thread_slot() is the shared slot.
    /// @param access  the access flags of the caller together with added_access()
    [[nodiscard]] CacheEntry* find_fast(std::uintptr_t address, std::size_t length,
                                        Access access) noexcept;
    /// Returns an entry that covers the range, and takes a lease on the entry. Registers the range
    /// if no entry covers the range. Called after find_fast() has returned nullptr.
    /// @throws Error with the same errno values as RegistrationCache::acquire()
    [[nodiscard]] CacheEntry& acquire_slowly(std::uintptr_t address, std::size_t length,
                                             Access access);
    static void give_back(CacheEntry& entry) noexcept;

    /// Implements RegistrationCache::invalidate(). Does nothing in a child process of fork(2), and
    /// while this object is destroyed: a hook of munmap(2) may call this function there.
    void invalidate(std::uintptr_t address, std::size_t length) noexcept;
    void clear() noexcept;
    [[nodiscard]] RegistrationCache::Statistics statistics() const noexcept;

    /// Removes all entries, and releases the exporters. Then deletes this object now, or when the
    /// last lease is returned.
    void close() noexcept;

  private:
    /// A list of entries that were removed from the index, linked by EntryDetails::next.
    class Retired {
      public:
        void push(CacheEntry& entry) noexcept;
        [[nodiscard]] CacheEntry* pop() noexcept;
        [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

      private:
        CacheEntry* first_ = nullptr;
    };
    /// A registration in progress. The statistics already count the new entry and the bytes of its
    /// range.
    struct Pending {
        CacheRange range = {};
        Access access{};
        /// True if the limits of the cache allow the entry to stay in the cache after its last
        /// lease was returned.
        bool kept = false;
        bool published = false;
        /// True if a part of the range was invalidated after the registration began.
        bool invalidated = false;
        bool done = false;
        std::optional<Error> error = std::nullopt;
        std::thread::id thread = std::this_thread::get_id();
    };
    /// A thread that waits until another thread has finished a registration.
    struct Waiter {
        std::thread::id thread{};
        const Pending* pending = nullptr;
    };
    /// The exporter of the first byte of a range, and the allocation that contains this byte.
    struct Owner {
        /// True if the whole range is in one allocation, and if no exporter finds the first byte of
        /// the range. False if an exporter could not be queried.
        bool one = false;
        /// The exporter of the allocation; nullptr if none finds the first byte of the range, or if
        /// an exporter could not be queried.
        const Exporter* exporter = nullptr;
        Allocation allocation = {};
    };
    /// The values that the attempts of one call of acquire() share.
    struct Attempts {
        /// The owner of the range; empty until it is needed. If Owner::one is false, the range is
        /// not merged with neighbouring entries.
        std::optional<Owner> owner = std::nullopt;
        /// The number of attempts that failed because the range was invalidated during the
        /// registration.
        unsigned invalidated = 0;
    };
    struct Candidate {
        CacheEntry* entry;
        std::uint64_t used;
    };
    class Lock;

    ~CacheCore() = default;

    // Hits
    [[nodiscard]] CacheEntry* take(CacheRange range, Access access,
                                   std::size_t thread_slot) noexcept;
    [[nodiscard]] CacheEntry* search(CacheRange range, Access access) noexcept;
    [[nodiscard]] CacheEntry* take_locked(CacheRange range, Access access) noexcept;
    [[nodiscard]] CacheEntry* take_current(CacheRange range, Access access,
                                           std::size_t thread_slot) noexcept;
    /// Does the same as find(), but does not count a hit in the statistics.
    [[nodiscard]] CacheEntry* find_again(const CacheRange& range, Access access) noexcept;
    void note_use(CacheEntry& entry) const noexcept;
    /// Returns the hit counter of a thread slot, which is written only by the thread of the slot.
    /// The threads without a slot of their own share one counter.
    [[nodiscard]] std::atomic<std::uint64_t>& hits_of(std::size_t thread_slot) noexcept;
    void count_hit(std::size_t thread_slot) noexcept;
    template <class P>
    static void give_back_in(std::size_t thread_slot, CacheEntry& entry) noexcept;
    static void give_back_slowly(CacheEntry& entry) noexcept;
    /// Deregisters the entry if it must not stay in the cache and no lease on it is left; in a
    /// thread that holds the lock of the cache, this is done when the thread releases the lock.
    /// Called if CacheEntry::give_back() has returned true: the entry is no longer valid, or
    /// EntryDetails::watched is true. The caller must be in a read-side section. This function ends
    /// the section.
    static void attend(std::size_t thread_slot, CacheEntry& entry) noexcept;
    [[nodiscard]] static bool is_current(const CacheEntry& entry) noexcept;
    void drop_stale(CacheEntry& entry) noexcept;

    // The following functions are defined in cache/miss.cpp.
    [[nodiscard]] CacheEntry& acquire_missed(std::uintptr_t address, std::size_t length,
                                             Access access);
    class Cleanup;
    class Finish;
    class WaiterEntry;
    [[nodiscard]] CacheEntry* try_acquire(const CacheRange& range, Access access,
                                          Attempts& attempts);
    [[nodiscard]] std::shared_ptr<Pending> pending_for(const CacheRange& range,
                                                       Access access) const noexcept;
    /// Waits until another thread has finished a registration.
    /// @param lock  the lock of the cache
    /// @throws Error EDEADLK if that registration cannot finish before this thread continues
    void wait_for(const Pending& pending, Lock& lock);
    /// Returns true if waiting for @p pending would deadlock: the calling thread performs this
    /// registration itself, or the thread that performs it waits, directly or through other
    /// threads, for a registration of the calling thread.
    [[nodiscard]] bool depends_on_caller(const Pending& pending) const noexcept;
    [[nodiscard]] Owner owner_of(const CacheRange& range) const;
    [[nodiscard]] bool touches_others(const CacheRange& range, Access access) const noexcept;
    [[nodiscard]] CacheRange merged(const CacheRange& range, Access access,
                                    const Owner& owner) const noexcept;
    [[nodiscard]] Registration register_range(const CacheRange& range, Access access);
    [[nodiscard]] Registration register_pending(Pending& pending, const CacheRange& asked);
    [[nodiscard]] CacheEntry& publish(Registration registration, const Pending& pending,
                                      Retired& retired);
    /// Returns false if the entry is for one lease only: with CachePolicy::checked, a later hit
    /// could not check an entry that has no generation to compare.
    [[nodiscard]] bool is_shared(const CacheEntry& entry) const noexcept;
    void fill(CacheEntry& entry, Registration registration, const Pending& pending) const;

    // The caller of the following functions must hold the lock of the cache.
    [[nodiscard]] AccessClass* class_of(Access access) const noexcept;
    [[nodiscard]] AccessClass& make_class(Access access);
    [[nodiscard]] bool is_found(const CacheRange& range, Access access) const noexcept;
    [[nodiscard]] bool make_room(std::size_t length, Retired& retired) noexcept;
    [[nodiscard]] bool fits(std::size_t length) const noexcept;
    [[nodiscard]] CacheEntry* next_victim() noexcept;
    void look_for_victims() noexcept;
    /// Removes an entry from the index, so that readers no longer find the entry. The caller must
    /// then call wait() and settle(), so that the entry is deregistered if no lease is left.
    void take_out(CacheEntry& entry) noexcept;
    /// Waits until all read-side sections have ended in which a thread may have found an entry that
    /// was removed from the index. Then frees the objects in the retire list (objects that were
    /// replaced, such as leaves of the index).
    void wait() noexcept;
    /// Adds @p entry to @p retired, and subtracts it from the statistics, if take_out() was called
    /// for the entry and no lease on it is left. wait() must have been called after take_out().
    void settle(CacheEntry& entry, Retired& retired) noexcept;
    /// Calls wait(), and then settle() for each entry of @p taken_out.
    /// @return the number of entries that were added to @p retired
    std::size_t settle_all(Retired& taken_out, Retired& retired) noexcept;
    void take_out_overlapping(const CacheRange& range, Retired& taken_out) noexcept;
    /// Removes all entries that overlap @p range, and marks the registrations in progress that
    /// overlap @p range as invalidated. Adds the removed entries without leases to @p retired.
    void remove_overlapping(const CacheRange& range, Retired& retired) noexcept;

    // The following functions take the lock themselves if they need it, unless their comments say
    // that the caller must hold it.

    /// Waits until the other threads have deregistered the entries that overlap @p range and whose
    /// deregistration has already begun. Does not wait if the calling thread itself deregisters
    /// entries.
    void await_deregistrations(const CacheRange& range) noexcept;
    /// Implements invalidate() for a thread that holds the lock: marks the entries, so that no
    /// reader finds them any more. Lock removes these entries from the index before it releases the
    /// lock. The caller must hold the lock.
    void invalidate_locked(const CacheRange& range) noexcept;

    /// Deregisters the entries in @p retired. The caller must not hold the lock of the cache.
    void destroy(Retired& retired) noexcept;
    void give_back_locked(CacheEntry& entry) noexcept;
    /// Deregisters an entry after its last lease was returned, if the entry must not stay in the
    /// cache. In a thread that holds the lock, Lock does this instead when it releases the lock.
    /// Also releases the reference to this CacheCore that the caller obtained with hold().
    void settle_after_lease(CacheEntry& entry) noexcept;
    /// Adds to @p retired the entries that must not stay in the cache and whose last lease ended
    /// while this thread held the lock. The caller must hold the lock. If a hook invalidates
    /// entries meanwhile, sets `lease_ended_` instead, so that this function is called again. Must
    /// not be called while an entry is in a list `taken_out`
    /// (see settle_all()): this function can add the same entry to @p retired, and an entry can be
    /// in only one list.
    void settle_all_after_leases(Retired& retired) noexcept;
    /// Returns true if this thread already holds the lock: the caller then runs in a hook of the
    /// program, for example of munmap(2).
    [[nodiscard]] bool is_locked_by_caller() const noexcept {
        return owner_.load(std::memory_order_relaxed) == std::this_thread::get_id();
    }
    [[nodiscard]] bool evict_idle() noexcept;
    [[nodiscard]] bool hold() noexcept;
    void let_go() noexcept;

    const CreatorProcess creator_;
    const std::vector<ProtectionDomain> pds_;
    /// Empty after close().
    Resolver resolver_;
    const RegistrationCacheOptions options_;
    const Access added_;

    RetireList retire_list_;

    // A cache hit uses the following members, up to `hits_`.
    EntryHints hints_{retire_list_};
    std::atomic<AccessClass*> classes_{nullptr};
    /// A logical clock, which advances with each new registration. The times of the last hits
    /// determine the least recently used entry.
    std::atomic<std::uint64_t> clock_{0};
    struct alignas(64) Hits {
        std::atomic<std::uint64_t> count{0};
    };
    std::array<Hits, Platform::thread_slots / Platform::thread_slot_step> hits_;

    /// The number of references to this object: one for the cache, one for each registered entry,
    /// and one for each thread that finishes the return of a lease.
    std::atomic<std::size_t> holds_{1};

    mutable std::mutex mutex_;
    /// The thread that holds the lock of the cache through an object of the class Lock.
    std::atomic<std::thread::id> owner_;
    /// A range that contains all ranges that invalidate_locked() has invalidated. Empty after Lock
    /// has removed the entries in these ranges.
    std::optional<CacheRange> invalidated_;
    /// True if a hook of the program (for example of munmap(2)) has ended a lease in the thread
    /// that holds the lock. The entry may have to be deregistered: Lock removes it from the cache
    /// before it releases the lock, and deregisters it afterwards.
    bool lease_ended_ = false;
    /// Notified when a registration in progress has finished, and when removed entries have been
    /// deregistered.
    std::condition_variable finished_;
    std::vector<std::unique_ptr<AccessClass>> all_classes_;
    EntryPool entries_{*this};
    /// The number of entries that threads deregister now, without the lock.
    std::size_t deregistering_ = 0;
    /// The value of Deregistration::number for the deregistration that began last.
    std::uint64_t last_deregistration_ = 0;
    std::vector<std::shared_ptr<Pending>> pending_;
    std::vector<Waiter> waiters_;
    /// The list of the entries that are evicted next; the least recently used entry is the last
    /// element. The capacity is at least the number of all entries, so that adding an element never
    /// allocates memory.
    std::vector<Candidate> victims_;
    RegistrationCache::Statistics statistics_;
};

/// Holds the lock of a cache. The thread that holds the lock may allocate, free and unmap memory.
/// If a program has a hook that calls invalidate() or ends leases before memory is unmapped, the
/// hook runs in this thread, and does not wait for the lock. Lock then finishes the work of the
/// hook: it removes the entries before it releases the lock, and deregisters them afterwards.
class CacheCore::Lock {
  public:
    explicit Lock(CacheCore& core) : core_(core), lock_(core.mutex_) { take(); }
    ~Lock() {
        if (lock_.owns_lock()) {
            unlock();
        }
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    void unlock() noexcept {
        give_back();
        lock_.unlock();
        core_.destroy(retired_);
    }
    /// Waits for a notification. If a hook has left entries to deregister, does not wait, but
    /// deregisters these entries. The caller must test its condition again.
    void wait(std::condition_variable& condition) {
        // If pthread_cancel(3) unwinds a thread that waits, the mutex is locked again before the
        // destructor of `waiting` runs.
        struct Waiting {
            explicit Waiting(Lock& l) noexcept : lock(l) { lock.give_back(); }
            ~Waiting() { lock.take(); }
            Waiting(const Waiting&) = delete;
            Waiting& operator=(const Waiting&) = delete;
            Lock& lock;
        } const waiting(*this);
        if (retired_.empty()) {
            condition.wait(lock_);
        } else { // The thread that this one waits for may itself wait for their deregistration.
            lock_.unlock();
            core_.destroy(retired_);
            lock_.lock();
        }
    }

  private:
    void take() noexcept {
        core_.owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    void give_back() noexcept {
        while (core_.invalidated_ || core_.lease_ended_) {
            if (core_.invalidated_) {
                core_.remove_overlapping(*std::exchange(core_.invalidated_, std::nullopt),
                                         retired_);
            } else {
                core_.lease_ended_ = false;
                core_.settle_all_after_leases(retired_);
            }
        }
        core_.owner_.store({}, std::memory_order_relaxed);
    }

    CacheCore& core_;
    std::unique_lock<std::mutex> lock_;
    /// The entries to deregister: those that a hook of the program has invalidated, and those whose
    /// last lease a hook has returned.
    Retired retired_;
};

} // namespace rdmabuf::detail
