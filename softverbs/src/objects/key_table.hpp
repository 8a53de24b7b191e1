// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace softverbs {

struct Grant;

/// Finds what a key opens. Keys look random, differ from one process to the next, and are not given
/// out again for a long time, so that a stale one opens nothing.
///
/// As in hardware, the upper 24 bits of a key name an entry, and the lower 8 bits are a variant of
/// it: those of a memory window change each time that it is bound.
class KeyTable {
  public:
    KeyTable();
    /// A new key for @p grant, which is to be put into its key for find() to find it; 0: there is
    /// no memory, or all are in use.
    [[nodiscard]] std::uint32_t insert(Grant& grant) noexcept;
    void erase(std::uint32_t key) noexcept;
    /// Null: it opens nothing.
    [[nodiscard]] Grant* find(std::uint32_t key) const noexcept;
    /// Whose entry it is in, whatever the variant.
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
        std::uint32_t name = 0; // 0: free
        Grant* grant = nullptr;
    };
    [[nodiscard]] std::uint32_t next_key() noexcept;
    [[nodiscard]] std::uint32_t permute(std::uint32_t number) const noexcept;
    /// Where the entry of that name is, or would be.
    [[nodiscard]] std::size_t place(std::uint32_t name) const noexcept;
    void grow();

    /// Open addressing: a power of two of them, at most half of them used. Names are random, so
    /// they serve as their own hashes.
    std::vector<Entry> entries_;
    std::size_t used_ = 0;
    std::uint32_t counter_ = 0;
    std::uint32_t secrets_[4] = {};
};

} // namespace softverbs
