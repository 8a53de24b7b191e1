// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/region.hpp>

#include "cache/pages.hpp"
#include "cache/retire_list.hpp"

namespace rdmabuf::detail {

struct CacheEntry;

/// A hash table that maps addresses to cache entries. With this table, most hits need no search in
/// the index. An element of the table is a pointer to an entry and is called a hint, because the
/// pointer may be outdated: the reader checks that the entry is still valid and covers the range.
/// The memory of an entry can be read even if the hint is outdated.
///
/// A hint is written for a new entry, and when a thread finds an entry that has no hint for the
/// address. If all places for the hint are in use, one in `replacement_interval` insertions
/// replaces an old hint.
class EntryHints {
  public:
    /// @param retire_list  gets each replaced table, and frees it when no reader uses it any more;
    ///                     must outlive this object
    explicit EntryHints(RetireList& retire_list);
    EntryHints(const EntryHints&) = delete;
    EntryHints& operator=(const EntryHints&) = delete;
    ~EntryHints();

    // The caller of guess() and look() must be in a read-side section or hold the lock of the
    // cache.

    /// Returns an entry that may cover @p address; the caller must check the entry. Reads only the
    /// first two of the places where a hint for the address may be. May return nullptr although the
    /// table has a hint for the address.
    [[nodiscard]] CacheEntry* guess(std::uintptr_t address, Access access) const noexcept {
        const Place place(address, access);
        const Table& table = *table_.load(std::memory_order_seq_cst);
        std::byte* const hints = table.hints;
        const std::size_t at = place.hash & table.mask;
        const std::uint64_t first = hint_at(hints, at).load(std::memory_order_acquire);
        const std::uint64_t second =
            hint_at(hints, at ^ sizeof(Hint)).load(std::memory_order_acquire);
        // The compiler can use a conditional move for this expression. The CPU would often
        // mispredict a branch.
        return entry_of(place.is_tag_of(first) ? first : second);
    }
    /// Calls @p serves for each entry to which the table has a hint for @p address. Returns the
    /// first entry for which @p serves returns true, or nullptr if @p serves never returns true.
    template <class Serves>
    [[nodiscard]] CacheEntry* look(std::uintptr_t address, Access access,
                                   const Serves& serves) const noexcept {
        const Place place(address, access);
        const Table& table = *table_.load(std::memory_order_seq_cst);
        for (std::size_t way = 0; way < ways; ++way) {
            const std::uint64_t hint = table.at(place, way).load(std::memory_order_acquire);
            CacheEntry* const entry = entry_of(hint);
            if (place.is_tag_of(hint) && entry != nullptr && serves(*entry)) {
                return entry;
            }
        }
        return nullptr;
    }
    void learn(std::uintptr_t address, Access access, CacheEntry& entry) noexcept;

    /// Grows the table, if it is too small for the hints to @p entries cache entries and has not
    /// reached its largest size. The caller must hold the lock of the cache.
    /// @return true if an empty table has replaced the previous table
    /// @throws Error ENOMEM if mmap(2) has no memory; std::bad_alloc
    bool fit(std::size_t entries);

  private:
    /// A hint has the address of a cache entry in the upper 48 bits, and 16 bits of the key in the
    /// lower bits. The bits of the key distinguish most addresses that have the same hash value.
    /// The value 0 means that there is no hint.
    using Hint = std::atomic<std::uint64_t>;
    static constexpr unsigned tag_bits = 16;
    /// The number of places in the table where a hint for one address may be. These places are in
    /// one cache line.
    static constexpr std::size_t ways = 64 / sizeof(Hint);

    /// Computes the key and the hash value of a hint from the page of the address and from the
    /// access flags.
    struct Place {
        Place(std::uintptr_t address, Access access) noexcept
            : key((address >> 12U) + static_cast<std::uint64_t>(access) * access_mixer),
              hash(key * mixer >> 17U) {}
        [[nodiscard]] bool is_tag_of(std::uint64_t hint) const noexcept {
            return static_cast<std::uint16_t>(hint) == static_cast<std::uint16_t>(key);
        }

        std::uint64_t key;
        std::uint64_t hash;

        /// Of thousands of multipliers that were compared, this one causes the fewest collisions
        /// for addresses at equal distances.
        static constexpr std::uint64_t mixer = 0x51652ef7;
        /// A multiplier for the access flags. Any large odd number is suitable.
        static constexpr std::uint64_t access_mixer = 0x51ed270b;
    };
    [[nodiscard]] static Hint& hint_at(std::byte* hints, std::size_t offset) noexcept {
        return *reinterpret_cast<Hint*>(hints + offset);
    }
    struct Table final : RetireList::Node {
        explicit Table(unsigned bits)
            : mask(((std::size_t{1} << bits) - 1) * sizeof(Hint)),
              pages(mask + sizeof(Hint)),
              hints(static_cast<std::byte*>(pages.get())) {
            if (mask + sizeof(Hint) >= Pages::huge) {
                pages.make_huge(mask + sizeof(Hint));
            }
        }
        /// @param way  the index of the place, from 0 to ways - 1
        [[nodiscard]] Hint& at(const Place& place, std::size_t way) const noexcept {
            return hint_at(hints, (place.hash & mask) ^ way * sizeof(Hint));
        }

        /// Converts a hash value to the offset of a hint in the table, in bytes: `hash & mask`.
        std::size_t mask;
        Pages pages;
        std::byte* hints;
    };

    [[nodiscard]] static CacheEntry* entry_of(std::uint64_t hint) noexcept {
        return reinterpret_cast<CacheEntry*>(hint >> tag_bits);
    }

    RetireList& retire_list_;
    unsigned bits_;
    std::atomic<Table*> table_;
};

} // namespace rdmabuf::detail
