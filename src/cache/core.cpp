// SPDX-License-Identifier: BSD-3-Clause
// Hits, the end of entries, and their limits; misses are in cache/miss.cpp.
#include "cache/core.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace rdmabuf::detail {
namespace {

[[noreturn]] void refuse(const char* text) {
    throw Error(EINVAL, "RegistrationCache", text);
}

const RegistrationCacheOptions& checked_options(std::span<const ProtectionDomain> pds,
                                                const RegistrationCacheOptions& options) {
    if (pds.empty()) {
        refuse("no protection domain to register on");
    }
    if (options.max_entries == 0 || options.max_bytes == 0) {
        refuse("a cache that may keep nothing; leave the limit out, or use register_memory()");
    }
    if (options.registration.iova) {
        refuse("an iova is of one registration; entries have their own address");
    }
    if (options.registration.trail != nullptr) {
        refuse(
            "a trail is of one registration; see Registration::trail(), and the hints of errors");
    }
    if (options.registration.dma_handle != nullptr) {
        refuse("a DMA handle is read during one registration only; use register_memory()");
    }
    return options;
}

} // namespace

void CacheCore::Retired::push(CacheSlot& slot) noexcept {
    slot.rest->next = first_;
    first_ = &slot;
}

CacheSlot* CacheCore::Retired::pop() noexcept {
    return first_ == nullptr ? nullptr : std::exchange(first_, first_->rest->next);
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
        // Those who have just given their leases back still look at the slots.
        reader_sections.wait();
        delete this; // NOLINT(cppcoreguidelines-owning-memory)
    }
}

// Hits

CacheSlot* CacheCore::take(CacheRange range, Access access, std::size_t row) noexcept {
    CacheSlot* slot = hints_.look(range.begin, access, [&](const CacheSlot& hinted) {
        return serves(hinted, range, access);
    });
    if (slot == nullptr) {
        slot = search(range, access);
    }
    if (slot != nullptr) {
        slot->take(row);
    }
    return slot;
}

CacheSlot* CacheCore::search(CacheRange range, Access access) noexcept {
    for (AccessClass* entries = classes_.load(std::memory_order_seq_cst); entries != nullptr;
         entries = entries->next.load(std::memory_order_seq_cst)) {
        if (!serves(entries->access, access)) {
            continue;
        }
        CacheSlot* const slot = entries->index.find(range.begin, range.end);
        if (slot != nullptr && slot->is_found()) {
            hints_.learn(range.begin, access, *slot);
            return slot;
        }
    }
    return nullptr;
}

CacheSlot* CacheCore::take_locked(CacheRange range, Access access) noexcept {
    const Lock lock(mutex_);
    return take(range, access, Platform::shared_row);
}

CacheSlot* CacheCore::take_current(CacheRange range, Access access, std::size_t row) noexcept {
    CacheSlot* slot = nullptr;
    if (row != Platform::shared_row) [[likely]] {
        const ReaderSection section(row);
        slot = take(range, access, row);
    } else {
        slot = take_locked(range, access);
    }
    if (slot == nullptr) [[unlikely]] {
        return nullptr;
    }
    if (options_.policy == CachePolicy::checked && slot->rest->exporter != nullptr &&
        !is_current(*slot)) [[unlikely]] {
        drop_stale(*slot);
        give_back_slowly(*slot);
        return nullptr;
    }
    note_use(*slot);
    return slot;
}

inline void CacheCore::note_use(CacheSlot& slot) const noexcept {
    // Written when it changes only: others read it, too.
    const std::uint64_t now = clock_.load(std::memory_order_relaxed);
    if (slot.used.load(std::memory_order_relaxed) != now) [[unlikely]] {
        slot.used.store(now, std::memory_order_relaxed);
    }
}

inline std::atomic<std::uint64_t>& CacheCore::hits_of(std::size_t row) noexcept {
    static_assert(sizeof(Hits) == Platform::row_step);
    auto* const first = reinterpret_cast<std::byte*>(hits_.data());
    return reinterpret_cast<Hits*>(first + row)->count;
}

inline void CacheCore::count_hit(std::size_t row) noexcept {
    auto& hits = hits_of(row);
    hits.store(hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

[[gnu::always_inline]] inline CacheSlot* CacheCore::find_fast(std::uintptr_t address,
                                                              std::size_t length,
                                                              Access access) noexcept {
    const std::size_t row = Platform::fast_row();
    if (row == Platform::shared_row || options_.policy == CachePolicy::checked) [[unlikely]] {
        return nullptr;
    }
    const CacheRange range{.begin = address, .end = address + length};
    CacheSlot* slot = nullptr;
    {
        const ReaderSection<FastPlatform> section(row);
        slot = hints_.guess(address, access);
        if (slot == nullptr || range.end <= range.begin || !serves(*slot, range, access))
            [[unlikely]] {
            return nullptr;
        }
        slot->take(row);
    }
    note_use(*slot);
    count_hit(row);
    return slot;
}

CacheSlot* CacheCore::find(std::uintptr_t address, std::size_t length, Access access) noexcept {
    const CacheRange range{.begin = address, .end = address + length};
    if (range.end <= range.begin) [[unlikely]] {
        return nullptr;
    }
    const std::size_t row = Platform::row();
    CacheSlot* const slot = take_current(range, access | added_, row);
    if (slot != nullptr) {
        if (row != Platform::shared_row) {
            count_hit(row);
        } else {
            hits_of(row).fetch_add(1, std::memory_order_relaxed);
        }
    }
    return slot;
}

CacheSlot* CacheCore::find_again(const CacheRange& range, Access access) noexcept {
    return take_current(range, access, Platform::row());
}

bool CacheCore::is_current(const CacheSlot& slot) noexcept {
    try {
        const std::optional<Allocation> now =
            slot.rest->exporter->find_range(slot.address, slot.end - slot.address);
        return now && now->generation == slot.rest->generation;
    } catch (...) {
        return false; // registering it anew says why it cannot be said
    }
}

void CacheCore::drop_stale(CacheSlot& slot) noexcept {
    const Lock lock(mutex_);
    if (slot.is_found()) {
        ++statistics_.stale;
        take_out(slot);
        wait(); // the caller's own lease keeps it
    }
}

template <class P>
[[gnu::always_inline]] inline void CacheCore::give_back_in(std::size_t row,
                                                           CacheSlot& slot) noexcept {
    reader_sections.enter<P>(row);
    if (slot.give_back<P>(row)) [[unlikely]] {
        attend(row, slot);
        return;
    }
    reader_sections.exit(row);
}

[[gnu::always_inline]] inline void CacheCore::give_back(CacheSlot& slot) noexcept {
    const std::size_t row = Platform::fast_row();
    if (row == Platform::shared_row) [[unlikely]] {
        give_back_slowly(slot);
        return;
    }
    give_back_in<FastPlatform>(row, slot);
}

[[gnu::noinline]] void CacheCore::give_back_slowly(CacheSlot& slot) noexcept {
    const std::size_t row = Platform::row();
    if (row == Platform::shared_row) {
        slot.rest->core.give_back_locked(slot);
        return;
    }
    give_back_in<Platform>(row, slot);
}

[[gnu::noinline]] void CacheCore::attend(std::size_t row, CacheSlot& slot) noexcept {
    CacheCore& core = slot.rest->core;
    const bool held = core.hold();
    reader_sections.exit(row);
    if (held) { // else it ends: others have settled everything
        core.settle_after_lease(slot);
    }
}

void CacheCore::give_back_locked(CacheSlot& slot) noexcept {
    {
        const Lock lock(mutex_);
        const bool held = hold(); // as the entry that the lease is on does
        static_cast<void>(held);
        static_cast<void>(slot.give_back(Platform::shared_row));
    }
    settle_after_lease(slot);
}

void CacheCore::settle_after_lease(CacheSlot& slot) noexcept {
    Retired retired;
    {
        const Lock lock(mutex_);
        if (slot.rest->watched && slot.is_idle()) {
            take_out(slot);
            wait();
        }
        settle(slot, retired);
    }
    destroy(retired);
    let_go();
}

// The end of entries

void CacheCore::take_out(CacheSlot& slot) noexcept {
    slot.rest->access_class->index.remove(slot);
    slot.state.retire();
}

void CacheCore::wait() noexcept {
    reader_sections.wait();
    limbo_.free();
}

void CacheCore::settle(CacheSlot& slot, Retired& retired) noexcept {
    if (slot.settle()) {
        --statistics_.entries;
        statistics_.bytes -= slot.length();
        retired.push(slot);
    }
}

std::size_t CacheCore::settle_all(Retired& taken_out, Retired& retired) noexcept {
    if (taken_out.empty()) {
        return 0;
    }
    wait();
    const std::size_t before = statistics_.entries;
    while (CacheSlot* const slot = taken_out.pop()) {
        settle(*slot, retired);
    }
    return before - statistics_.entries;
}

void CacheCore::destroy(Retired& retired) noexcept {
    Retired empty;
    std::size_t count = 0;
    while (CacheSlot* const slot = retired.pop()) {
        slot->rest->registration.reset();
        empty.push(*slot);
        ++count;
    }
    if (count == 0) {
        return;
    }
    {
        const Lock lock(mutex_);
        while (CacheSlot* const slot = empty.pop()) {
            slots_.put(*slot);
        }
    }
    for (; count > 0; --count) {
        let_go();
    }
}

void CacheCore::take_out_overlapping(const CacheRange& range, Retired& taken_out) noexcept {
    for (const auto& entries : all_classes_) {
        entries->index.for_each_touching(range.begin, range.end, [&](CacheSlot& slot) {
            if (range_of(slot).overlaps(range)) {
                ++statistics_.invalidations;
                take_out(slot);
                taken_out.push(slot);
            }
        });
    }
}

void CacheCore::invalidate(std::uintptr_t address, std::size_t length) noexcept {
    constexpr auto last = std::numeric_limits<std::uintptr_t>::max();
    const CacheRange range{.begin = address,
                           .end = length < last - address ? address + length : last};
    Retired retired;
    {
        const Lock lock(mutex_);
        for (const auto& pending : pending_) {
            pending->invalidated = pending->invalidated || pending->range.overlaps(range);
        }
        Retired taken_out;
        take_out_overlapping(range, taken_out);
        settle_all(taken_out, retired);
    }
    destroy(retired);
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
        // As many as it takes, so as to wait for readers once.
        Retired taken_out;
        std::size_t entries = statistics_.entries;
        std::uint64_t bytes = statistics_.bytes;
        while (entries >= options_.max_entries || bytes > options_.max_bytes - length) {
            CacheSlot* const victim = next_victim();
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

CacheSlot* CacheCore::next_victim() noexcept {
    for (int round = 0; round < 2; ++round) {
        while (!victims_.empty()) {
            const Candidate candidate = victims_.back();
            victims_.pop_back();
            const CacheSlot& slot = *candidate.slot;
            // All others were used later than this one, if it was not used since.
            if (slot.is_idle() && slot.used.load(std::memory_order_relaxed) == candidate.used) {
                return candidate.slot;
            }
        }
        if (round == 0) {
            look_for_victims();
        }
    }
    return nullptr;
}

void CacheCore::look_for_victims() noexcept {
    slots_.for_each([this](CacheSlot& slot) {
        if (slot.is_idle()) {
            victims_.push_back({&slot, slot.used.load(std::memory_order_relaxed)});
        }
    });
    // A part of them, so that looking at all is rare, and sorting cheap.
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
        const Lock lock(mutex_);
        Retired taken_out;
        slots_.for_each([&](CacheSlot& slot) {
            if (slot.is_idle()) {
                take_out(slot);
                taken_out.push(slot);
            }
        });
        count = settle_all(taken_out, retired);
        statistics_.evictions += count;
    }
    destroy(retired);
    return count != 0;
}

RegistrationCache::Statistics CacheCore::statistics() const noexcept {
    const Lock lock(mutex_);
    RegistrationCache::Statistics all = statistics_;
    for (const Hits& hits : hits_) {
        all.hits += hits.count.load(std::memory_order_relaxed);
    }
    return all;
}

CachedRegistration& acquire(CacheCore& core, std::uintptr_t address, std::size_t length,
                            Access access) {
    access |= core.added_access();
    CacheSlot* const slot = core.find_fast(address, length, access);
    if (slot == nullptr) [[unlikely]] {
        return core.acquire_slowly(address, length, access);
    }
    return *slot;
}

CachedRegistration* find(CacheCore& core, std::uintptr_t address, std::size_t length,
                         Access access) noexcept {
    access |= core.added_access();
    CacheSlot* const slot = core.find_fast(address, length, access);
    if (slot == nullptr) [[unlikely]] {
        return core.find(address, length, access);
    }
    return slot;
}

void give_back(CachedRegistration& entry) noexcept {
    CacheCore::give_back(static_cast<CacheSlot&>(entry));
}

} // namespace rdmabuf::detail
