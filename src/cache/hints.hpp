// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <rdmabuf/access.hpp>

#include "cache/pages.hpp"
#include "cache/retire_list.hpp"

namespace rdmabuf::detail {

struct CacheEntry;

/// A hash table from addresses to entries, so that most hits need no search in the index. A hint
/// may be wrong: the reader checks that the entry can still be found and covers its range. The
/// memory of entries lives as long as this table.
///
/// A thread writes a hint only if it found none. If there is no free place for it, one in
/// `replacement_interval` hints replaces another.
class EntryHints {
  public:
    /// @param retire_list  must outlive this object
    explicit EntryHints(RetireList& retire_list);
    EntryHints(const EntryHints&) = delete;
    EntryHints& operator=(const EntryHints&) = delete;
    ~EntryHints();

    // The caller of these functions is in a read-side section or holds the lock of the cache.

    /// Returns an entry that may cover the address, from the first two places of the hint; nullptr
    /// if there is none.
    [[nodiscard]] CacheEntry* guess(std::uintptr_t address, Access access) const noexcept {
        const Place place(address, access);
        const Table& table = *table_.load(std::memory_order_seq_cst);
        std::byte* const hints = table.hints;
        const std::size_t at = place.hash & table.mask;
        const std::uint64_t first = hint_at(hints, at).load(std::memory_order_acquire);
        const std::uint64_t second =
            hint_at(hints, at ^ sizeof(Hint)).load(std::memory_order_acquire);
        // The compiler makes this a conditional move: a branch would often be mispredicted.
        return entry_of(place.is_tag_of(first) ? first : second);
    }
    /// Returns the first hinted entry for which @p serves returns true; nullptr if there is none.
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

    /// Makes the table large enough for @p entries. The caller holds the lock of the cache.
    /// @return true if the table was replaced by an empty one
    /// @throws Error ENOMEM, std::bad_alloc
    bool fit(std::size_t entries);

  private:
    /// The address of an entry in the upper 48 bits, and 16 bits of the key, which distinguish most
    /// hints in the same place; 0 for none.
    using Hint = std::atomic<std::uint64_t>;
    static constexpr unsigned tag_bits = 16;
    /// The places for one address: all in one cache line.
    static constexpr std::size_t ways = 64 / sizeof(Hint);

    /// The place of the hint for a range, computed from the page in which the range begins.
    struct Place {
        Place(std::uintptr_t address, Access access) noexcept
            : key((address >> 12U) + static_cast<std::uint64_t>(access) * access_mixer),
              hash(key * mixer >> 17U) {}
        [[nodiscard]] bool is_tag_of(std::uint64_t hint) const noexcept {
            return static_cast<std::uint16_t>(hint) == static_cast<std::uint16_t>(key);
        }

        std::uint64_t key;
        std::uint64_t hash;

        /// Of some thousand multipliers, the one with the fewest collisions for addresses at equal
        /// distances.
        static constexpr std::uint64_t mixer = 0x51652ef7;
        /// Any large odd number.
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
        /// @param way  0 for the first place of the hint, up to ways - 1
        [[nodiscard]] Hint& at(const Place& place, std::size_t way) const noexcept {
            return hint_at(hints, (place.hash & mask) ^ way * sizeof(Hint));
        }

        /// The mask for offsets of hints, in bytes.
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
