// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/access.hpp>

#include "registration_cache_limbo.hpp"

namespace rdmabuf::detail {

struct CacheSlot;

/// Where an entry for an address probably is: spares most hits the search in the index. A hint may
/// be wrong in any way, so whoever follows one looks whether the slot is found and serves; slots
/// live as long as this does.
///
/// Threads write here only when a hint is missing, and rarely when that is for want of room.
class EntryHints {
  public:
    /// @param limbo  outlives this
    explicit EntryHints(Limbo& limbo);
    EntryHints(const EntryHints&) = delete;
    EntryHints& operator=(const EntryHints&) = delete;
    ~EntryHints();

    // By those who are in a section, or hold the cache's lock.

    /// What may serve, if there is a hint.
    [[nodiscard]] CacheSlot* look(std::uintptr_t address, Access access) const noexcept {
        const std::uint64_t key = key_of(address, access);
        const Set& set = table_.load(std::memory_order_seq_cst)->of(key);
        // Without a branch on which of them it is: that cannot be predicted. Should two be it, this
        // may find none.
        const auto is = [&](std::size_t way) {
            return static_cast<std::size_t>(set.keys[way].load(std::memory_order_relaxed) == key);
        };
        const std::size_t way = (is(1) + 2 * is(2) + 3 * is(3)) % ways;
        return set.keys[way].load(std::memory_order_relaxed) == key
                   ? set.slots[way].load(std::memory_order_acquire)
                   : nullptr;
    }
    void learn(std::uintptr_t address, Access access, CacheSlot& slot) noexcept;

    /// With the lock held: makes room for @p entries. @throws std::bad_alloc
    void fit(std::size_t entries);

  private:
    static constexpr unsigned page_shift = 12;

    static constexpr std::size_t ways = 4;

    /// A cache line.
    struct alignas(64) Set {
        /// No range has the key 0.
        std::array<std::atomic<std::uint64_t>, ways> keys;
        std::array<std::atomic<CacheSlot*>, ways> slots;
    };
    struct Table final : Limbo::Node {
        explicit Table(unsigned bits)
            : shift(64 - bits), sets(std::make_unique<Set[]>(std::size_t{1} << bits)) {}
        [[nodiscard]] Set& of(std::uint64_t key) const noexcept {
            return sets[(key * mixer) >> shift];
        }
        unsigned shift;
        std::unique_ptr<Set[]> sets;
    };

    /// 2^64 by the golden ratio: the upper bits of a product with it depend on all lower ones.
    static constexpr std::uint64_t mixer = 0x9e3779b97f4a7c15;

    [[nodiscard]] static std::uint64_t key_of(std::uintptr_t address, Access access) noexcept {
        return ((address >> page_shift) + 1) ^ (static_cast<std::uint64_t>(access) << 44U);
    }

    Limbo& limbo_;
    unsigned bits_;
    std::atomic<Table*> table_;
};

} // namespace rdmabuf::detail
