// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs {

struct Grant;

/// Maps an lkey or rkey to its memory region or window. Keys look random and differ between
/// processes. A key is not reused for a long time, so a stale key matches nothing.
///
/// As in hardware, the upper 24 bits of a key are the index of an entry and the lower 8 bits are a
/// variant. A memory window gets another variant each time it is bound.
class KeyTable {
  public:
    KeyTable();
    /// Allocates a key for @p grant. The caller stores the key in grant.key; find() does not return
    /// the grant before that. 0: out of memory, or all keys are in use.
    [[nodiscard]] std::uint32_t insert(Grant& grant) noexcept;
    void erase(std::uint32_t key) noexcept;
    /// The grant with exactly this key; null: there is none.
    [[nodiscard]] Grant* find(std::uint32_t key) const noexcept;
    /// Returns the grant whose table entry this key names, even if the variant (the low 8 bits) of
    /// the key differs; null: there is none.
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
    struct Entry {
        std::uint32_t name = 0; // 0: the entry is free
        Grant* grant = nullptr;
    };
    [[nodiscard]] std::uint32_t next_key() noexcept;
    [[nodiscard]] std::uint32_t permute(std::uint32_t number) const noexcept;
    /// Index of the entry with this name, or of the free entry where it would be inserted.
    [[nodiscard]] std::size_t place(std::uint32_t name) const noexcept;
    void grow();

    /// Open addressing with linear probing. The size is a power of two, and at most half of the
    /// entries are used. Names are random, so a name is its own hash.
    std::vector<Entry> entries_;
    std::size_t used_ = 0;
    std::uint32_t counter_ = 0;
    std::uint32_t secrets_[4] = {};
};

} // namespace softverbs
