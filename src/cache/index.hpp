// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/retire_list.hpp"

namespace rdmabuf::detail {

struct CacheEntry;

/// The entries of one AccessClass, sorted by address. No entry contains another one, so their ends
/// are sorted too, and only the last entry that does not begin after a range can contain the range.
///
/// Readers are in a read-side section; writers hold the lock of the cache. Adding an entry copies
/// one leaf, and sometimes the list of leaves. Removing an entry changes its leaf in place.
class RangeIndex {
  public:
    explicit RangeIndex(RetireList& retire_list);
    RangeIndex(const RangeIndex&) = delete;
    RangeIndex& operator=(const RangeIndex&) = delete;
    ~RangeIndex();

    /// Returns the entry that contains [begin, end), or nullptr.
    [[nodiscard]] CacheEntry* find(std::uintptr_t begin, std::uintptr_t end) const noexcept;

    /// Adds an entry that neither contains another entry nor is contained in one.
    /// @throws std::bad_alloc; the index is unchanged then
    void insert(CacheEntry& entry);
    void remove(const CacheEntry& entry) noexcept;

    /// Calls @p visit with each entry that overlaps or touches [begin, end). @p visit may remove
    /// this entry from the index.
    template <class Visit>
    void for_each_touching(std::uintptr_t begin, std::uintptr_t end, Visit visit) const {
        // The entries of all leaves before this one end before `begin`.
        const Root& root = *root_.load(std::memory_order_relaxed);
        std::size_t i = first_touching(root, begin);
        for (; i < root.size(); ++i) {
            const Leaf& leaf = *root.leaves[i].load(std::memory_order_relaxed);
            for (std::size_t k = 0; k < leaf.size; ++k) {
                const std::uintptr_t last = leaf.ends[k].load(std::memory_order_relaxed);
                if (last != gone && leaf.begins[k] > end) {
                    return;
                }
                if (last != gone && last >= begin) {
                    visit(*leaf.entries[k]);
                }
            }
        }
    }

  private:
    /// Stands in place of the end of an entry that was removed.
    static constexpr std::uintptr_t gone = 0;
    static constexpr std::size_t leaf_capacity = 64;

    struct Leaf final : RetireList::Node {
        std::size_t size = 0;
        std::size_t removed = 0;
        std::array<std::uintptr_t, leaf_capacity> begins;
        std::array<std::atomic<std::uintptr_t>, leaf_capacity> ends;
        std::array<CacheEntry*, leaf_capacity> entries;

        void add(std::uintptr_t begin, std::uintptr_t end, CacheEntry* entry) noexcept;
    };
    struct Root final : RetireList::Node {
        explicit Root(std::size_t size) : keys(size), leaves(size) {}
        [[nodiscard]] std::size_t size() const noexcept { return keys.size(); }

        /// Keys: no entry of a leaf begins before the key of the leaf. The first key is 0.
        std::vector<std::uintptr_t> keys;
        std::vector<std::atomic<Leaf*>> leaves;
    };

    [[nodiscard]] static std::size_t first_touching(const Root& root,
                                                    std::uintptr_t begin) noexcept;
    /// Replaces leaf @p i by one or two leaves; @p second may be null.
    void replace(std::size_t i, std::unique_ptr<Leaf> first, std::unique_ptr<Leaf> second);
    /// Replaces a leaf by a copy without the removed entries, if there is memory for it.
    void compact(std::size_t i) noexcept;

    RetireList& retire_list_;
    std::atomic<Root*> root_;
};

} // namespace rdmabuf::detail
