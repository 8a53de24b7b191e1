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

/// Where an entry for an address probably is: spares most hits the search in the index. A hint may
/// be wrong in any way, so whoever follows one looks whether the slot is found and serves; slots
/// live as long as this does.
///
/// Threads write here only when a hint is missing, and rarely when that is for want of room.
class EntryHints {
  public:
    /// @param limbo  outlives this
    explicit EntryHints(RetireList& retire_list);
    EntryHints(const EntryHints&) = delete;
    EntryHints& operator=(const EntryHints&) = delete;
    ~EntryHints();

    // By those who are in a section, or hold the cache's lock.

    /// What may serve; nullptr when there is no hint in the two places where most are.
    [[nodiscard]] CacheEntry* guess(std::uintptr_t address, Access access) const noexcept {
        const Place place(address, access);
        const Table& table = *table_.load(std::memory_order_seq_cst);
        std::byte* const hints = table.hints;
        const std::size_t at = place.hash & table.mask;
        const std::uint64_t first = hint_at(hints, at).load(std::memory_order_acquire);
        const std::uint64_t second =
            hint_at(hints, at ^ sizeof(Hint)).load(std::memory_order_acquire);
        // Which of them it is cannot be predicted: no branch on it.
        return entry_of(place.is_tag_of(first) ? first : second);
    }
    /// The first of all hints that @p serves; nullptr when there is none.
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

    /// With the lock held: makes room for @p entries. @return whether everything was forgotten for
    /// it. @throws Error ENOMEM, std::bad_alloc
    bool fit(std::size_t entries);

  private:
    /// The address of a slot, above a tag that most likely differs from those of other hints in the
    /// same places; 0 for none.
    using Hint = std::atomic<std::uint64_t>;
    static constexpr unsigned tag_bits = 16;
    /// Hints for one address are within a cache line.
    static constexpr std::size_t ways = 64 / sizeof(Hint);

    /// Where the hint for a range belongs, which depends on the page it begins in.
    struct Place {
        Place(std::uintptr_t address, Access access) noexcept
            : key((address >> 12U) + static_cast<std::uint64_t>(access) * access_mixer),
              hash(key * mixer >> 17U) {}
        [[nodiscard]] bool is_tag_of(std::uint64_t hint) const noexcept {
            return static_cast<std::uint16_t>(hint) == static_cast<std::uint16_t>(key);
        }

        std::uint64_t key;
        std::uint64_t hash;

        /// The best of some thousand for pages at equal distances, whatever these are.
        static constexpr std::uint64_t mixer = 0x51652ef7;
        /// Any odd number as large.
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
        /// @param way  counts from the place itself
        [[nodiscard]] Hint& at(const Place& place, std::size_t way) const noexcept {
            return hint_at(hints, (place.hash & mask) ^ way * sizeof(Hint));
        }

        /// Of places, which are in bytes.
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
