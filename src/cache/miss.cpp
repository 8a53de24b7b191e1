// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "cache/core.hpp"
#include "memory/exporter_calls.hpp"

namespace rdmabuf::detail {
namespace {

/// The retire list contains replaced objects that readers may still read. When the list has this
/// number of objects, the writer waits for the readers and then frees the objects.
constexpr std::size_t retire_list_capacity = 64;

/// acquire() fails with EAGAIN after this number of attempts in which the range was invalidated
/// while it was being registered.
constexpr unsigned max_invalidated_attempts = 16;

void check_request(std::uintptr_t address, std::size_t length, Access access) {
    constexpr const char* function = "RegistrationCache::acquire";
    if (length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    if (length > std::numeric_limits<std::uintptr_t>::max() - address) {
        throw Error(EINVAL, function,
                    std::to_string(length) + " bytes at " + hexadecimal(address) +
                        " exceed the address space");
    }
    if (has(access, Access::zero_based)) {
        throw Error(EINVAL, function,
                    "zero_based: the same address would refer to a different byte in each cache "
                    "entry; do not set zero_based, or register without a cache");
    }
}

} // namespace

/// The destructor deregisters the entries in `retired`. The destructor must run after the lock of
/// the cache was released.
class CacheCore::Cleanup {
  public:
    explicit Cleanup(CacheCore& core) noexcept : core_(core) {}
    ~Cleanup() { now(); }
    Cleanup(const Cleanup&) = delete;
    Cleanup& operator=(const Cleanup&) = delete;

    void now() noexcept { core_.destroy(retired); }

    Retired retired;

  private:
    CacheCore& core_;
};

/// Ends a registration in progress: the destructor removes it from `pending_`, corrects the
/// statistics if no entry was made, and wakes the threads that wait for this registration.
class CacheCore::Finish {
  public:
    Finish(CacheCore& core, Pending& pending) noexcept : core_(core), pending_(pending) {}
    ~Finish() {
        const Lock lock(core_);
        if (!pending_.published) {
            --core_.statistics_.entries;
            core_.statistics_.bytes -= pending_.range.length();
        }
        std::erase_if(core_.pending_, [this](const auto& p) { return p.get() == &pending_; });
        pending_.done = true;
        core_.finished_.notify_all();
    }
    Finish(const Finish&) = delete;
    Finish& operator=(const Finish&) = delete;

  private:
    CacheCore& core_;
    Pending& pending_;
};

/// Lists this thread as a waiter. The destructor removes the thread from the list, also if
/// pthread_cancel(3) unwinds the thread.
class CacheCore::WaiterEntry {
  public:
    WaiterEntry(std::vector<Waiter>& waiters, const Pending& pending) : waiters_(waiters) {
        waiters_.push_back({.thread = std::this_thread::get_id(), .pending = &pending});
    }
    ~WaiterEntry() {
        std::erase_if(waiters_, [](const Waiter& waiter) {
            return waiter.thread == std::this_thread::get_id();
        });
    }
    WaiterEntry(const WaiterEntry&) = delete;
    WaiterEntry& operator=(const WaiterEntry&) = delete;

  private:
    std::vector<Waiter>& waiters_;
};

CacheEntry& CacheCore::acquire_slowly(std::uintptr_t address, std::size_t length, Access access) {
    CacheEntry* const entry = find(address, length, access);
    return entry != nullptr ? *entry : acquire_missed(address, length, access);
}

CacheEntry& CacheCore::acquire_missed(std::uintptr_t address, std::size_t length, Access access) {
    check_request(address, length, access);
    const CacheRange range{.begin = address, .end = address + length};
    {
        const Lock lock(*this);
        ++statistics_.misses;
    }
    Attempts attempts;
    while (attempts.invalidated < max_invalidated_attempts) {
        if (CacheEntry* const entry = try_acquire(range, access | added_, attempts);
            entry != nullptr) {
            return *entry;
        }
    }
    throw Error(EAGAIN, "RegistrationCache::acquire",
                std::to_string(length) + " bytes at " + hexadecimal(address) +
                    " were invalidated during each of " + std::to_string(attempts.invalidated) +
                    " registrations; do not call invalidate() for memory that is in use, or try "
                    "again later");
}

/// Tries once to find an entry for the range or to register the range.
/// @return nullptr if the caller must try again, for example because the cache has changed
CacheEntry* CacheCore::try_acquire(const CacheRange& range, Access access, Attempts& attempts) {
    std::optional<Owner>& owner = attempts.owner;
    Cleanup cleanup(*this);
    std::shared_ptr<Pending> mine;
    {
        Lock lock(*this);
        if (is_found(range, access)) {
            lock.unlock();
            return find_again(range, access);
        }
        if (const auto other = pending_for(range, access)) {
            wait_for(*other, lock);
            attempts.invalidated += other->invalidated ? 1 : 0;
            lock.unlock();
            if (other->error && other->range == range && other->access == access) {
                throw Error(*other->error);
            }
            return find_again(range, access);
        }
        if (!owner && touches_others(range, access)) {
            lock.unlock();
            owner = owner_of(range);
            return nullptr;
        }
        mine = std::make_shared<Pending>(Pending{.range = range, .access = access});
        if (owner && owner->one) {
            const CacheRange wide = merged(range, access, *owner);
            mine->range = fits(wide.length()) ? wide : range;
        }
        pending_.push_back(mine);
        mine->kept = make_room(mine->range.length(), cleanup.retired);
        ++statistics_.entries;
        statistics_.bytes += mine->range.length();
    }
    const Finish finish(*this, *mine);
    cleanup.now();
    Registration made = register_pending(*mine, range);
    const Lock lock(*this);
    if (mine->invalidated) {
        ++attempts.invalidated;
        owner = Owner(); // Merge nothing: the neighbouring memory may have been freed.
        return nullptr;
    }
    if (is_found(range, access)) {
        return nullptr;
    }
    CacheEntry& entry = publish(std::move(made), *mine, cleanup.retired);
    mine->published = true;
    return &entry;
}

std::shared_ptr<CacheCore::Pending> CacheCore::pending_for(const CacheRange& range,
                                                           Access access) const noexcept {
    const auto found = std::ranges::find_if(pending_, [&](const auto& pending) {
        return pending->range.holds(range) && serves(pending->access, access);
    });
    return found == pending_.end() ? nullptr : *found;
}

void CacheCore::wait_for(const Pending& pending, Lock& lock) {
    if (depends_on_caller(pending)) {
        throw Error(EDEADLK, "RegistrationCache::acquire",
                    "this thread registers the same memory, or a thread that does waits for this "
                    "one; do not call acquire() for the exported memory in an exporter");
    }
    const WaiterEntry entry(waiters_, pending);
    while (!pending.done) {
        lock.wait(finished_);
    }
}

bool CacheCore::depends_on_caller(const Pending& pending) const noexcept {
    const std::thread::id self = std::this_thread::get_id();
    for (const Pending* next = &pending; !next->done;) {
        if (next->thread == self) {
            return true;
        }
        const auto waiter = std::ranges::find(waiters_, next->thread, &Waiter::thread);
        if (waiter == waiters_.end()) {
            return false;
        }
        next = waiter->pending;
    }
    return false;
}

CacheCore::Owner CacheCore::owner_of(const CacheRange& range) const {
    try {
        for (const auto& exporter : resolver_.exporters()) {
            if (auto allocation = detail::find_range(*exporter, range.begin, range.length())) {
                const CacheRange all{.begin = allocation->base,
                                     .end = allocation->base + allocation->length};
                return {.one = all.holds(range),
                        .exporter = exporter.get(),
                        .allocation = std::move(*allocation)};
            }
        }
    } catch (const Error&) {
        return {}; // The registration reports the error.
    }
    return {.one = true};
}

bool CacheCore::touches_others(const CacheRange& range, Access access) const noexcept {
    bool any = false;
    if (const AccessClass* const entries = class_of(access); entries != nullptr) {
        entries->index.for_each_touching(range.begin, range.end, [&](CacheEntry&) { any = true; });
    }
    return any;
}

CacheRange CacheCore::merged(const CacheRange& range, Access access,
                             const Owner& owner) const noexcept {
    const AccessClass* const entries = class_of(access);
    CacheRange wide = range;
    for (bool grown = entries != nullptr; grown;) {
        grown = false;
        entries->index.for_each_touching(wide.begin, wide.end, [&](const CacheEntry& entry) {
            const CacheRange both{.begin = std::min(wide.begin, entry.address),
                                  .end = std::max(wide.end, entry.end)};
            const bool same = !entry.details->mixed && entry.details->exporter == owner.exporter &&
                              entry.details->generation == owner.allocation.generation;
            if (both != wide && same && !entry.details->watched && entry.is_idle() &&
                both.length() - entry.length() >= entry.length() / 2) {
                wide = both;
                grown = true;
            }
        });
    }
    return wide;
}

Registration CacheCore::register_range(const CacheRange& range, Access access) {
    RegistrationOptions options = options_.registration;
    options.access = access;
    try {
        return register_memory(pds_, resolver_, range.begin, range.length(), options);
    } catch (const Error& error) {
        if (error.error() != ENOMEM || !evict_idle()) {
            throw;
        }
    }
    return register_memory(pds_, resolver_, range.begin, range.length(), options);
}

Registration CacheCore::register_pending(Pending& pending, const CacheRange& asked) {
    if (pending.range != asked) {
        RegistrationOptions options = options_.registration;
        options.access = pending.access;
        try {
            return register_memory(pds_, resolver_, pending.range.begin, pending.range.length(),
                                   options);
        } catch (const Error&) {
            const Lock lock(*this);
            statistics_.bytes -= pending.range.length() - asked.length();
            pending.range = asked;
        }
    }
    try {
        return register_range(asked, pending.access);
    } catch (const Error& error) {
        pending.error = error;
        throw;
    }
}

CacheEntry& CacheCore::publish(Registration registration, const Pending& pending,
                               Retired& retired) {
    AccessClass& entries = make_class(pending.access);
    CacheEntry& entry = entries_.take();
    try {
        if (victims_.capacity() < entries_.size()) {
            victims_.reserve(2 * entries_.size());
        }
        if (hints_.fit(entries_.size())) {
            entries_.for_each([this](CacheEntry& other) {
                if (other.is_found()) {
                    hints_.learn(other.address, other.access, other);
                }
            });
        }
        fill(entry, std::move(registration), pending);
        entry.details->access_class = &entries;
        const std::uint64_t now = clock_.load(std::memory_order_relaxed) + 1;
        entry.used.store(now, std::memory_order_relaxed);
        clock_.store(now + 1, std::memory_order_relaxed);

        Retired taken_out;
        entries.index.for_each_touching(pending.range.begin, pending.range.end,
                                        [&](CacheEntry& other) {
                                            if (pending.range.holds(range_of(other))) {
                                                ++statistics_.merges;
                                                take_out(other);
                                                taken_out.push(other);
                                            }
                                        });
        settle_all(taken_out, retired);
        if (is_shared(entry)) {
            entries.index.insert(entry);
        }
    } catch (...) {
        entry.details->registration.reset();
        entries_.put(entry);
        throw;
    }
    entry.state.begin(entry.details->watched); // From here on, readers may take leases.
    entry.take(Platform::thread_slot());       // Until here, the lock prevents an eviction.
    if (is_shared(entry)) {
        hints_.learn(entry.address, entry.access, entry);
    } else {
        entry.state.retire();
    }
    ++holds_;
    if (retire_list_.size() >= retire_list_capacity) {
        wait();
    }
    return entry;
}

bool CacheCore::is_shared(const CacheEntry& entry) const noexcept {
    return options_.policy != CachePolicy::checked || entry.details->exporter != nullptr;
}

void CacheCore::fill(CacheEntry& entry, Registration registration, const Pending& pending) const {
    entry.details->several.clear();
    if (pds_.size() > 1) {
        entry.details->several.reserve(pds_.size());
    }
    entry.first = {.lkey = registration.lkey(), .rkey = registration.rkey()};
    for (std::size_t i = 0; pds_.size() > 1 && i < pds_.size(); ++i) {
        entry.details->several.push_back(
            {.lkey = registration.lkey(i), .rkey = registration.rkey(i)});
    }
    entry.keys = pds_.size() > 1 ? entry.details->several.data() : &entry.first;
    entry.address = pending.range.begin;
    entry.end = pending.range.end;
    entry.access = registration.access();
    entry.details->exporter = nullptr;
    entry.details->generation = 0;
    entry.details->mixed = false;
    if (const auto& allocation = registration.allocation(); allocation) {
        const CacheRange all{.begin = allocation->base,
                             .end = allocation->base + allocation->length};
        entry.details->mixed = !all.holds(pending.range) || allocation->generation == 0;
        if (!entry.details->mixed) {
            entry.details->exporter = registration.set().source.lock().get();
            entry.details->generation = allocation->generation;
        }
    }
    entry.details->watched = !pending.kept || (options_.policy == CachePolicy::checked &&
                                               entry.details->exporter == nullptr);
    entry.details->registration.emplace(std::move(registration));
}

AccessClass* CacheCore::class_of(Access access) const noexcept {
    const auto found = std::ranges::find_if(
        all_classes_, [access](const auto& entries) { return entries->access == access; });
    return found == all_classes_.end() ? nullptr : found->get();
}

AccessClass& CacheCore::make_class(Access access) {
    if (AccessClass* const there = class_of(access); there != nullptr) {
        return *there;
    }
    AccessClass* const last = all_classes_.empty() ? nullptr : all_classes_.back().get();
    AccessClass& made =
        *all_classes_.emplace_back(std::make_unique<AccessClass>(access, retire_list_));
    (last == nullptr ? classes_ : last->next).store(&made, std::memory_order_seq_cst);
    return made;
}

bool CacheCore::is_found(const CacheRange& range, Access access) const noexcept {
    return std::ranges::any_of(all_classes_, [&](const auto& entries) {
        return serves(entries->access, access) &&
               entries->index.find(range.begin, range.end) != nullptr;
    });
}

} // namespace rdmabuf::detail
