// SPDX-License-Identifier: BSD-3-Clause
// This file finds entries of the cache (hits), removes entries, and enforces the limits of the
// cache. The code for misses is in cache/miss.cpp.
#include "cache/core.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/cancellation.hpp"
#include "memory/exporter_calls.hpp"

namespace rdmabuf::detail {
namespace {

[[noreturn]] void refuse(const char* text) {
    throw Error(EINVAL, "RegistrationCache", text);
}

RegistrationCacheOptions checked_options(std::span<const ProtectionDomain> pds,
                                         RegistrationCacheOptions options) {
    if (pds.empty()) {
        refuse("no protection domain to register on");
    }
    if (options.max_entries == 0 || options.max_bytes == 0) {
        refuse("the limits allow no entry; do not set the limit to 0, or register without a cache");
    }
    if (options.registration.iova) {
        refuse("an iova applies to one registration, but a cache has several; do not set iova");
    }
    if (options.registration.trail != nullptr) {
        refuse(
            "a trail records one registration; use Registration::trail(), or the hint of an error");
    }
    if (options.registration.dma_handle != nullptr) {
        refuse(
            "a DMA handle applies to one registration, but a cache has several; register without a "
            "cache");
    }
    if (options.registration.topology != nullptr) {
        refuse(
            "a cache keeps its topology, and registration.topology is not owned; set "
            "RegistrationCacheOptions::topology");
    }
    options.registration.topology = options.topology.get();
    return options;
}

} // namespace

void CacheCore::Retired::push(CacheEntry& entry) noexcept {
    entry.details->next = first_;
    first_ = &entry;
}

CacheEntry* CacheCore::Retired::pop() noexcept {
    return first_ == nullptr ? nullptr : std::exchange(first_, first_->details->next);
}

CacheCore::CacheCore(std::span<const ProtectionDomain> pds, Resolver resolver,
                     const RegistrationCacheOptions& options)
    : pds_(pds.begin(), pds.end()),
      resolver_(std::move(resolver)),
      options_(checked_options(pds, options)),
      added_(options.registration.relaxed_ordering ? Access::relaxed_ordering
                                                   : Access::local_read) {
    Platform::prepare();
}

void CacheCore::close() noexcept {
    clear();
    // Release the exporters now, because their destructors may call a driver. Leases may outlive
    // the cache, and the last lease may end in a hook of munmap(2), where no driver may be called.
    { const Resolver last = std::move(resolver_); }
    let_go();
}

bool CacheCore::hold() noexcept {
    std::size_t holds = holds_.load(std::memory_order_relaxed);
    while (holds != 0) {
        if (holds_.compare_exchange_weak(holds, holds + 1, std::memory_order_acq_rel)) {
            return true;
        }
    }
    return false;
}

void CacheCore::let_go() noexcept {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        // A thread that returns a lease may still read the entry in a read-side section. wait()
        // returns when all these sections have ended.
        read_side_sections.wait();
        delete this; // NOLINT(cppcoreguidelines-owning-memory)
    }
}

// Hits

CacheEntry* CacheCore::take(CacheRange range, Access access, std::size_t thread_slot) noexcept {
    CacheEntry* entry = hints_.look(range.begin, access, [&](const CacheEntry& hinted) {
        return serves(hinted, range, access);
    });
    if (entry == nullptr) {
        entry = search(range, access);
    }
    if (entry != nullptr) {
        entry->take(thread_slot);
    }
    return entry;
}

CacheEntry* CacheCore::search(CacheRange range, Access access) noexcept {
    for (AccessClass* entries = classes_.load(std::memory_order_seq_cst); entries != nullptr;
         entries = entries->next.load(std::memory_order_seq_cst)) {
        if (!serves(entries->access, access)) {
            continue;
        }
        CacheEntry* const entry = entries->index.find(range.begin, range.end);
        if (entry != nullptr && entry->is_found()) {
            hints_.learn(range.begin, access, *entry);
            return entry;
        }
    }
    return nullptr;
}

CacheEntry* CacheCore::take_locked(CacheRange range, Access access) noexcept {
    const Lock lock(*this);
    return take(range, access, Platform::shared_thread_slot);
}

CacheEntry* CacheCore::take_current(CacheRange range, Access access,
                                    std::size_t thread_slot) noexcept {
    CacheEntry* entry = nullptr;
    if (thread_slot != Platform::shared_thread_slot) [[likely]] {
        const ReadSideSection section(thread_slot);
        entry = take(range, access, thread_slot);
    } else {
        entry = take_locked(range, access);
    }
    if (entry == nullptr) [[unlikely]] {
        return nullptr;
    }
    // Test is_found() again after is_current(): invalidate() may have run while is_current() called
    // the exporter.
    if (options_.policy == CachePolicy::checked && entry->details->exporter != nullptr &&
        (!is_current(*entry) || !entry->is_found())) [[unlikely]] {
        drop_stale(*entry);
        give_back_slowly(*entry);
        return nullptr;
    }
    note_use(*entry);
    return entry;
}

inline void CacheCore::note_use(CacheEntry& entry) const noexcept {
    // The member `used` is written only if its value changes, because a write to `used` invalidates
    // the cache line in the caches of the other CPUs.
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    if (entry.used.load(std::memory_order_relaxed) != now) [[unlikely]] {
        entry.used.store(now, std::memory_order_relaxed);
    }
}

inline std::atomic<std::uint64_t>& CacheCore::hits_of(std::size_t thread_slot) noexcept {
    static_assert(sizeof(Hits) == Platform::thread_slot_step);
    auto* const first = reinterpret_cast<std::byte*>(hits_.data());
    return reinterpret_cast<Hits*>(first + thread_slot)->count;
}

inline void CacheCore::count_hit(std::size_t thread_slot) noexcept {
    auto& hits = hits_of(thread_slot);
    hits.store(hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline CacheEntry* CacheCore::find_fast(std::uintptr_t address,
                                                               std::size_t length,
                                                               Access access) noexcept {
    const std::size_t thread_slot = Platform::fast_thread_slot();
    if (thread_slot == Platform::shared_thread_slot || options_.policy == CachePolicy::checked)
        [[unlikely]] {
        return nullptr;
    }
    const CacheRange range{.begin = address, .end = address + length};
    CacheEntry* entry = nullptr;
    {
        const ReadSideSection<FastPlatform> section(thread_slot);
        entry = hints_.guess(address, access);
        if (entry == nullptr || range.end <= range.begin || !serves(*entry, range, access))
            [[unlikely]] {
            return nullptr;
        }
        entry->take(thread_slot);
    }
    note_use(*entry);
    count_hit(thread_slot);
    return entry;
}

CacheEntry* CacheCore::find(std::uintptr_t address, std::size_t length, Access access) noexcept {
    const CacheRange range{.begin = address, .end = address + length};
    if (range.end <= range.begin) [[unlikely]] {
        return nullptr;
    }
    const std::size_t thread_slot = Platform::thread_slot();
    CacheEntry* const entry = take_current(range, access | added_, thread_slot);
    if (entry != nullptr) {
        if (thread_slot != Platform::shared_thread_slot) {
            count_hit(thread_slot);
        } else {
            hits_of(thread_slot).fetch_add(1, std::memory_order_relaxed);
        }
    }
    return entry;
}

CacheEntry* CacheCore::find_again(const CacheRange& range, Access access) noexcept {
    return take_current(range, access, Platform::thread_slot());
}

bool CacheCore::is_current(const CacheEntry& entry) noexcept {
    const CancellationDisabled uncancelled; // The exporter may call a cancellation point.
    try {
        const std::optional<Allocation> now =
            detail::find_range(*entry.details->exporter, entry.address, entry.end - entry.address);
        return now && now->generation == entry.details->generation;
    } catch (...) {
        return false; // acquire() then registers the memory again, and reports the error.
    }
}

void CacheCore::drop_stale(CacheEntry& entry) noexcept {
    const Lock lock(*this);
    if (entry.is_found()) {
        ++statistics_.stale;
        take_out(entry);
        wait(); // settle() follows when the caller returns its lease.
    }
}

template <class P>
[[gnu::always_inline]] inline void CacheCore::give_back_in(std::size_t thread_slot,
                                                           CacheEntry& entry) noexcept {
    read_side_sections.enter<P>(thread_slot);
    if (entry.give_back<P>(thread_slot)) [[unlikely]] {
        attend(thread_slot, entry);
        return;
    }
    read_side_sections.exit(thread_slot);
}

[[gnu::always_inline]] inline void CacheCore::give_back(CacheEntry& entry) noexcept {
    const std::size_t thread_slot = Platform::fast_thread_slot();
    if (thread_slot == Platform::shared_thread_slot) [[unlikely]] {
        give_back_slowly(entry);
        return;
    }
    give_back_in<FastPlatform>(thread_slot, entry);
}

[[gnu::noinline]] void CacheCore::give_back_slowly(CacheEntry& entry) noexcept {
    const std::size_t thread_slot = Platform::thread_slot();
    if (thread_slot == Platform::shared_thread_slot) {
        entry.details->core.give_back_locked(entry);
        return;
    }
    give_back_in<Platform>(thread_slot, entry);
}

[[gnu::noinline]] void CacheCore::attend(std::size_t thread_slot, CacheEntry& entry) noexcept {
    CacheCore& core = entry.details->core;
    const bool held = core.hold();
    read_side_sections.exit(thread_slot);
    if (held) { // Otherwise the cache is being deleted and has settled all entries.
        core.settle_after_lease(entry);
    }
}

void CacheCore::give_back_locked(CacheEntry& entry) noexcept {
    {
        std::optional<Lock> lock;
        if (!is_locked_by_caller()) {
            lock.emplace(*this);
        }
        const bool held = hold(); // Succeeds, because the entry of the lease has a reference.
        static_cast<void>(held);
        static_cast<void>(entry.give_back(Platform::shared_thread_slot));
    }
    settle_after_lease(entry);
}

void CacheCore::settle_after_lease(CacheEntry& entry) noexcept {
    if (is_locked_by_caller()) {
        lease_ended_ = true;
        let_go(); // Deletes nothing: the entry still has its reference.
        return;
    }
    Retired retired;
    {
        const Lock lock(*this);
        if (entry.details->watched && entry.is_idle()) {
            take_out(entry);
            wait();
        }
        settle(entry, retired);
    }
    destroy(retired);
    let_go();
}

void CacheCore::settle_all_after_leases(Retired& retired) noexcept {
    entries_.for_each([this](CacheEntry& entry) {
        if (entry.details->watched && entry.is_idle()) {
            take_out(entry);
        }
    });
    wait();
    if (invalidated_) {
        // A hook has invalidated entries that are still in the index. Make Lock::give_back() remove
        // them and then call this function again.
        lease_ended_ = true;
        return;
    }
    entries_.for_each([&](CacheEntry& entry) { settle(entry, retired); });
}

// Removal of entries

void CacheCore::take_out(CacheEntry& entry) noexcept {
    entry.details->access_class->index.remove(entry);
    entry.state.retire();
}

void CacheCore::wait() noexcept {
    read_side_sections.wait();
    retire_list_.free();
}

void CacheCore::settle(CacheEntry& entry, Retired& retired) noexcept {
    if (entry.settle()) {
        --statistics_.entries;
        statistics_.bytes -= entry.length();
        entry.details->deregistration = {.thread = std::this_thread::get_id(),
                                         .number = ++last_deregistration_};
        ++deregistering_;
        retired.push(entry);
    }
}

std::size_t CacheCore::settle_all(Retired& taken_out, Retired& retired) noexcept {
    if (taken_out.empty()) {
        return 0;
    }
    wait();
    const std::size_t before = statistics_.entries;
    while (CacheEntry* const entry = taken_out.pop()) {
        settle(*entry, retired);
    }
    return before - statistics_.entries;
}

void CacheCore::destroy(Retired& retired) noexcept {
    Retired empty;
    std::size_t count = 0;
    while (CacheEntry* const entry = retired.pop()) {
        entry->details->registration.reset();
        empty.push(*entry);
        ++count;
    }
    if (count == 0) {
        return;
    }
    {
        const Lock lock(*this);
        while (CacheEntry* const entry = empty.pop()) {
            entry->details->deregistration.reset();
            --deregistering_;
            entries_.put(*entry);
        }
        finished_.notify_all();
    }
    for (; count > 0; --count) {
        let_go();
    }
}

void CacheCore::take_out_overlapping(const CacheRange& range, Retired& taken_out) noexcept {
    for (const auto& entries : all_classes_) {
        entries->index.for_each_touching(range.begin, range.end, [&](CacheEntry& entry) {
            if (range_of(entry).overlaps(range)) {
                ++statistics_.invalidations;
                take_out(entry);
                taken_out.push(entry);
            }
        });
    }
}

void CacheCore::invalidate(std::uintptr_t address, std::size_t length) noexcept {
    // Do nothing in a child process of fork(2). Also do nothing while ~CacheCore() runs, when
    // holds_ is 0: the destructor can unmap memory, and a hook of munmap(2) in the program then
    // calls this function.
    if (!creator_.is_current() || holds_.load(std::memory_order_relaxed) == 0) {
        return;
    }
    constexpr auto last = std::numeric_limits<std::uintptr_t>::max();
    const CacheRange range{.begin = address,
                           .end = length < last - address ? address + length : last};
    if (is_locked_by_caller()) {
        invalidate_locked(range);
        return;
    }
    Retired retired;
    {
        const Lock lock(*this);
        remove_overlapping(range, retired);
    }
    destroy(retired);
    await_deregistrations(range);
}

void CacheCore::await_deregistrations(const CacheRange& range) noexcept {
    const CancellationDisabled uncancelled; // This function is noexcept.
    Lock lock(*this);
    const std::uint64_t last = last_deregistration_;
    const auto has = [&](const auto& wanted) {
        bool found = false;
        if (deregistering_ != 0) {
            entries_.for_each([&](const CacheEntry& entry) {
                const auto& deregistration = entry.details->deregistration;
                found = found || (deregistration && wanted(entry, *deregistration));
            });
        }
        return found;
    };
    // If this thread itself deregisters entries, this call comes from a hook. Do not wait then:
    // another thread that deregisters entries could be waiting for this thread.
    if (has([self = std::this_thread::get_id()](const CacheEntry&, const auto& deregistration) {
            return deregistration.thread == self;
        })) {
        return;
    }
    while (has([&](const CacheEntry& entry, const auto& deregistration) {
        return deregistration.number <= last && range_of(entry).overlaps(range);
    })) {
        lock.wait(finished_);
    }
}

void CacheCore::remove_overlapping(const CacheRange& range, Retired& retired) noexcept {
    for (const auto& pending : pending_) {
        pending->invalidated = pending->invalidated || pending->range.overlaps(range);
    }
    Retired taken_out;
    take_out_overlapping(range, taken_out);
    settle_all(taken_out, retired);
}

void CacheCore::invalidate_locked(const CacheRange& range) noexcept {
    // This function runs in a hook, so this thread may be in the middle of changing any member. The
    // loop uses only members that readers may read at any time.
    for (AccessClass* entries = classes_.load(std::memory_order_relaxed); entries != nullptr;
         entries = entries->next.load(std::memory_order_relaxed)) {
        entries->index.for_each_touching(range.begin, range.end, [&](CacheEntry& entry) {
            if (range_of(entry).overlaps(range)) {
                entry.state.retire();
            }
        });
    }
    read_side_sections.wait();
    invalidated_ = invalidated_ ? CacheRange{.begin = std::min(invalidated_->begin, range.begin),
                                             .end = std::max(invalidated_->end, range.end)}
                                : range;
}

void CacheCore::clear() noexcept {
    invalidate(0, std::numeric_limits<std::size_t>::max());
}

// Limits

bool CacheCore::fits(std::size_t length) const noexcept {
    return statistics_.entries < options_.max_entries && length <= options_.max_bytes &&
           statistics_.bytes <= options_.max_bytes - length;
}

bool CacheCore::make_room(std::size_t length, Retired& retired) noexcept {
    while (!fits(length)) {
        if (length > options_.max_bytes) {
            return false;
        }
        // This loop removes from the index all entries that must be evicted to make room for @p
        // length bytes. settle_all() then waits only once for the threads that read these entries.
        Retired taken_out;
        std::size_t entries = statistics_.entries;
        std::uint64_t bytes = statistics_.bytes;
        while (entries >= options_.max_entries || bytes > options_.max_bytes - length) {
            CacheEntry* const victim = next_victim();
            if (victim == nullptr) {
                break;
            }
            take_out(*victim);
            taken_out.push(*victim);
            --entries;
            bytes -= victim->length();
        }
        if (taken_out.empty()) {
            return false;
        }
        statistics_.evictions += settle_all(taken_out, retired);
    }
    return true;
}

CacheEntry* CacheCore::next_victim() noexcept {
    for (int round = 0; round < 2; ++round) {
        while (!victims_.empty()) {
            const Candidate candidate = victims_.back();
            victims_.pop_back();
            const CacheEntry& entry = *candidate.entry;
            // An entry that is in use, or that was used after look_for_victims() has listed it, is
            // not evicted.
            if (entry.is_idle() && entry.used.load(std::memory_order_relaxed) == candidate.used) {
                return candidate.entry;
            }
        }
        if (round == 0) {
            look_for_victims();
        }
    }
    return nullptr;
}

void CacheCore::look_for_victims() noexcept {
    entries_.for_each([this](CacheEntry& entry) {
        if (entry.is_idle()) {
            victims_.push_back({&entry, entry.used.load(std::memory_order_relaxed)});
        }
    });
    // The list of entries to evict gets one sixteenth of the idle entries, but at least 64 entries
    // if so many are idle. With this size, the list is rarely refilled, and sorting the list is
    // fast.
    const auto earlier = [](const Candidate& a, const Candidate& b) { return a.used < b.used; };
    const std::size_t part =
        std::min(victims_.size(), std::max<std::size_t>(64, victims_.size() / 16));
    const auto middle = victims_.begin() + static_cast<std::ptrdiff_t>(part);
    if (middle != victims_.end()) {
        std::nth_element(victims_.begin(), middle, victims_.end(), earlier);
        victims_.erase(middle, victims_.end());
    }
    std::sort(victims_.rbegin(), victims_.rend(), earlier);
}

bool CacheCore::evict_idle() noexcept {
    Retired retired;
    std::size_t count = 0;
    {
        const Lock lock(*this);
        Retired taken_out;
        entries_.for_each([&](CacheEntry& entry) {
            if (entry.is_idle()) {
                take_out(entry);
                taken_out.push(entry);
            }
        });
        count = settle_all(taken_out, retired);
        statistics_.evictions += count;
    }
    destroy(retired);
    return count != 0;
}

RegistrationCache::Statistics CacheCore::statistics() const noexcept {
    const std::lock_guard lock(mutex_);
    RegistrationCache::Statistics all = statistics_;
    for (const Hits& hits : hits_) {
        all.hits += hits.count.load(std::memory_order_relaxed);
    }
    return all;
}

CachedRegistration& acquire(CacheCore& core, std::uintptr_t address, std::size_t length,
                            Access access) {
    access |= core.added_access();
    CacheEntry* const entry = core.find_fast(address, length, access);
    if (entry == nullptr) [[unlikely]] {
        return core.acquire_slowly(address, length, access);
    }
    return *entry;
}

CachedRegistration* find(CacheCore& core, std::uintptr_t address, std::size_t length,
                         Access access) noexcept {
    access |= core.added_access();
    CacheEntry* const entry = core.find_fast(address, length, access);
    if (entry == nullptr) [[unlikely]] {
        return core.find(address, length, access);
    }
    return entry;
}

void give_back(CachedRegistration& entry) noexcept {
    CacheCore::give_back(static_cast<CacheEntry&>(entry));
}

} // namespace rdmabuf::detail
