// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "objects/memory.hpp"

namespace softverbs {

/// The lkeys and rkeys of all memory regions and windows. Keys look random, so they usually differ
/// between processes. A freed key is not reused soon, so that the use of a stale key is detected.
///
/// As in hardware, the upper 24 bits of a key are an index and the lower 8 bits are a variant. Each
/// bind of a type 1 window changes the variant of its key. For a type 2 window, the program chooses
/// the variant. The lkey and the rkey of a region have the same index and different variants, so
/// that a program that confuses them fails, as it does on NICs whose lkeys and rkeys differ.
class KeyTable {
  public:
    KeyTable();
    /// Allocates a key for a memory region or memory window. @p grant describes the memory and the
    /// access rights. For a region, the caller must store the key in grant.lkey and, unless it is a
    /// null memory region, remote_key(key) in grant.rkey. For a window, it must store the key in
    /// grant.rkey while the window is bound. find_local() and find_remote() compare these members,
    /// so they do not find the key before. Returns 0 if the allocation of memory fails, or if 2^23
    /// keys are in use.
    [[nodiscard]] std::uint32_t insert(Grant& grant) noexcept;
    /// Adds the keys of a memory region of another process, grant.lkey and grant.rkey. Returns
    /// false if the allocation of memory fails, if 2^23 keys are in use, or if their index is 0 or
    /// in use in this process.
    [[nodiscard]] bool insert_foreign(Grant& grant) noexcept;
    void erase(std::uint32_t key) noexcept;
    /// Returns the rkey of the memory region with this lkey.
    [[nodiscard]] static std::uint32_t remote_key(std::uint32_t lkey) noexcept {
        return lkey ^ (1U << (variant_bits - 1));
    }
    /// Returns the Grant (memory and access rights) of this lkey, or null if the lkey is unknown.
    [[nodiscard]] Grant* find_local(std::uint32_t lkey) const noexcept {
        Grant* const grant = candidate(lkey);
        return grant != nullptr && grant->lkey == lkey ? grant : nullptr;
    }
    /// Returns the Grant (memory and access rights) of this rkey, or null if the rkey is unknown.
    [[nodiscard]] Grant* find_remote(std::uint32_t rkey) const noexcept {
        Grant* const grant = candidate(rkey);
        return grant != nullptr && grant->rkey == rkey ? grant : nullptr;
    }
    /// Returns the Grant (memory and access rights) whose key has the same index (the upper 24
    /// bits) as @p key. The variant (the lower 8 bits) may differ. Returns null if no key has this
    /// index.
    [[nodiscard]] Grant* owner(std::uint32_t key) const noexcept;
    template <class Function>
    void for_each(const Function& function) const {
        for (const Entry& entry : entries_) {
            if (entry.name != 0) {
                function(*entry.grant);
            }
        }
    }

  private:
    static constexpr unsigned variant_bits = 8;
    struct Entry {
        std::uint32_t name = 0; // 0: the entry is free
        Grant* grant = nullptr;
    };
    /// Like owner(), but inline.
    [[nodiscard]] Grant* candidate(std::uint32_t key) const noexcept {
        // Usually the first entry of the search is the right one, so compare this entry here,
        // without a call of owner(). No key in use has the name (the upper 24 bits) 0. For an
        // invalid key with this name, this comparison can find a free entry, whose Grant is null,
        // so the result is right.
        const std::uint32_t name = key >> variant_bits;
        const Entry& first = entries_[name & mask_];
        return first.name == name ? first.grant : owner(key);
    }
    [[nodiscard]] std::uint32_t next_key() noexcept;
    [[nodiscard]] std::uint32_t permute(std::uint32_t number) const noexcept;
    /// Returns the position of the table entry with this name (the upper 24 bits of a key). If no
    /// entry has this name, returns the position of the free entry at which the name can be
    /// inserted.
    [[nodiscard]] std::size_t place(std::uint32_t name) const noexcept;
    void grow();
    /// Adds an entry for which reserve() has made room. Returns false if the name is 0 or in use.
    [[nodiscard]] bool add(std::uint32_t name, Grant& grant) noexcept;
    /// Makes room for another entry. Returns false if the allocation of memory fails, or if 2^23
    /// keys are in use.
    [[nodiscard]] bool reserve() noexcept;

    /// A hash table with linear probing. Its size is a power of two, and at most half of the
    /// entries are used. A name (the upper 24 bits of a key) is random, so it is its own hash
    /// value.
    std::vector<Entry> entries_;
    /// entries_.size() - 1
    std::size_t mask_;
    std::size_t used_ = 0;
    std::uint32_t counter_ = 0;
    std::uint32_t secrets_[4] = {};
};

} // namespace softverbs
