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

/// How many pieces of memory may wait to be freed, before readers are waited for on their account.
constexpr std::size_t limbo_capacity = 64;

void check_request(std::uintptr_t address, std::size_t length, Access access) {
    constexpr const char* function = "RegistrationCache::acquire";
    if (length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    if (length > std::numeric_limits<std::uintptr_t>::max() - address) {
        throw Error(EINVAL, function,
                    std::to_string(length) + " bytes at " + hexadecimal(address) +
                        " go past the last address");
    }
    if (has(access, Access::zero_based)) {
        throw Error(EINVAL, function,
                    "zero_based: an address would mean another byte in every entry that serves; "
                    "leave it out, or use register_memory()");
    }
}

} // namespace

/// Destroys what was retired, once the lock is no longer held.
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

/// Ends a registration that is being made, however it ends: lets go those who wait for it.
class CacheCore::Finish {
  public:
    Finish(CacheCore& core, Pending& pending) noexcept : core_(core), pending_(pending) {}
    ~Finish() {
        const Lock lock(core_.mutex_);
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

CacheSlot& CacheCore::acquire_slowly(std::uintptr_t address, std::size_t length, Access access) {
    CacheSlot* const slot = find(address, length, access);
    return slot != nullptr ? *slot : acquire_missed(address, length, access);
}

CacheSlot& CacheCore::acquire_missed(std::uintptr_t address, std::size_t length, Access access) {
    check_request(address, length, access);
    const CacheRange range{.begin = address, .end = address + length};
    {
        const Lock lock(mutex_);
        ++statistics_.misses;
    }
    // Found out once it matters.
    std::optional<Owner> owner;
    for (;;) {
        if (CacheSlot* const slot = try_acquire(range, access | added_, owner); slot != nullptr) {
            return *slot;
        }
    }
}

/// @return nullptr when something has changed meanwhile, and it has to be tried again
CacheSlot* CacheCore::try_acquire(const CacheRange& range, Access access,
                                  std::optional<Owner>& owner) {
    Cleanup cleanup(*this);
    std::shared_ptr<Pending> mine;
    {
        Lock lock(mutex_);
        if (is_found(range, access)) {
            lock.unlock();
            return find_again(range, access);
        }
        if (const auto other = pending_for(range, access)) {
            finished_.wait(lock, [&] { return other->done; });
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
    const Lock lock(mutex_);
    if (mine->invalidated) {
        owner = Owner(); // what was beside it may be what has gone
        return nullptr;
    }
    if (is_found(range, access)) {
        return nullptr;
    }
    CacheSlot& slot = publish(std::move(made), *mine, cleanup.retired);
    mine->published = true;
    return &slot;
}

std::shared_ptr<CacheCore::Pending> CacheCore::pending_for(const CacheRange& range,
                                                           Access access) const noexcept {
    const auto found = std::ranges::find_if(pending_, [&](const auto& pending) {
        return pending->range.holds(range) && serves(pending->access, access);
    });
    return found == pending_.end() ? nullptr : *found;
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
        for (const auto& exporter : resolver_.exporters()) {
            if (detail::find(*exporter, range.end - 1)) {
                return {};
            }
        }
    } catch (const Error&) {
        return {}; // registering it says so again
    }
    return {.one = true};
}

bool CacheCore::touches_others(const CacheRange& range, Access access) const noexcept {
    bool any = false;
    if (const AccessClass* const entries = class_of(access); entries != nullptr) {
        entries->index.for_each_touching(range.begin, range.end, [&](CacheSlot&) { any = true; });
    }
    return any;
}

CacheRange CacheCore::merged(const CacheRange& range, Access access,
                             const Owner& owner) const noexcept {
    const AccessClass* const entries = class_of(access);
    CacheRange wide = range;
    for (bool grown = entries != nullptr; grown;) {
        grown = false;
        entries->index.for_each_touching(wide.begin, wide.end, [&](const CacheSlot& slot) {
            const CacheRange both{.begin = std::min(wide.begin, slot.address),
                                  .end = std::max(wide.end, slot.end)};
            const bool same = !slot.rest->mixed && slot.rest->exporter == owner.exporter &&
                              slot.rest->generation == owner.allocation.generation;
            if (both != wide && same && !slot.rest->watched && slot.is_idle() &&
                both.length() - slot.length() >= slot.length() / 2) {
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
            const Lock lock(mutex_);
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

CacheSlot& CacheCore::publish(Registration registration, const Pending& pending, Retired& retired) {
    AccessClass& entries = make_class(pending.access);
    CacheSlot& slot = slots_.take();
    try {
        if (victims_.capacity() < slots_.size()) {
            victims_.reserve(2 * slots_.size());
        }
        if (hints_.fit(slots_.size())) {
            slots_.for_each([this](CacheSlot& other) {
                if (other.is_found()) {
                    hints_.learn(other.address, other.access, other);
                }
            });
        }
        fill(slot, std::move(registration), pending);
        slot.rest->access_class = &entries;
        const std::uint64_t now = clock_.load(std::memory_order_relaxed) + 1;
        slot.used.store(now, std::memory_order_relaxed);
        clock_.store(now + 1, std::memory_order_relaxed);

        Retired taken_out;
        entries.index.for_each_touching(pending.range.begin, pending.range.end,
                                        [&](CacheSlot& other) {
                                            if (pending.range.holds(range_of(other))) {
                                                ++statistics_.merges;
                                                take_out(other);
                                                taken_out.push(other);
                                            }
                                        });
        settle_all(taken_out, retired);
        entries.index.insert(slot);
    } catch (...) {
        slot.rest->registration.reset();
        slots_.put(slot);
        throw;
    }
    slot.state.begin(slot.rest->watched); // who finds it from now on may take it
    slot.take(Platform::row());           // nobody takes it out before the lock is free
    hints_.learn(slot.address, slot.access, slot);
    ++holds_;
    if (limbo_.size() >= limbo_capacity) {
        wait();
    }
    return slot;
}

void CacheCore::fill(CacheSlot& slot, Registration registration, const Pending& pending) const {
    slot.rest->several.clear();
    if (pds_.size() > 1) {
        slot.rest->several.reserve(pds_.size());
    }
    slot.first = {.lkey = registration.lkey(), .rkey = registration.rkey()};
    for (std::size_t i = 0; pds_.size() > 1 && i < pds_.size(); ++i) {
        slot.rest->several.push_back({.lkey = registration.lkey(i), .rkey = registration.rkey(i)});
    }
    slot.keys = pds_.size() > 1 ? slot.rest->several.data() : &slot.first;
    slot.address = pending.range.begin;
    slot.end = pending.range.end;
    slot.access = registration.access();
    slot.rest->exporter = nullptr;
    slot.rest->generation = 0;
    slot.rest->mixed = false;
    if (const auto& allocation = registration.allocation(); allocation) {
        const CacheRange all{.begin = allocation->base,
                             .end = allocation->base + allocation->length};
        slot.rest->mixed = !all.holds(pending.range) || allocation->generation == 0;
        if (!slot.rest->mixed) {
            slot.rest->exporter = resolver_.exporter(registration.exporter()).get();
            slot.rest->generation = allocation->generation;
        }
    }
    slot.rest->watched = !pending.kept || (options_.policy == CachePolicy::checked &&
                                           slot.rest->exporter == nullptr);
    slot.rest->registration.emplace(std::move(registration));
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
    AccessClass& made = *all_classes_.emplace_back(std::make_unique<AccessClass>(access, limbo_));
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
