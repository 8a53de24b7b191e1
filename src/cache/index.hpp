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

/// Entries by their addresses. None of them lies inside of another, so they are in the order of
/// their ends, too, and the last that begins where a range does, or before, is the only one that
/// can hold it.
///
/// Readers are in a section; writers have the cache's lock. Leaves are copied when entries are
/// added, which costs a leaf, and now and then the list of leaves; an entry is taken out in place.
class RangeIndex {
  public:
    explicit RangeIndex(RetireList& retire_list);
    RangeIndex(const RangeIndex&) = delete;
    RangeIndex& operator=(const RangeIndex&) = delete;
    ~RangeIndex();

    /// The entry that holds [begin, end).
    [[nodiscard]] CacheEntry* find(std::uintptr_t begin, std::uintptr_t end) const noexcept;

    /// @p slot is not inside of another, and no other is inside of it. @throws std::bad_alloc, and
    /// nothing has changed.
    void insert(CacheEntry& entry);
    void remove(const CacheEntry& entry) noexcept;

    /// Calls @p visit with each entry that overlaps or touches [begin, end); it may remove it.
    template <class Visit>
    void for_each_touching(std::uintptr_t begin, std::uintptr_t end, Visit visit) const {
        // Every leaf before this one ends with an entry that begins, and ends, earlier still.
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
    /// The end of an entry that was taken out.
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

        /// Entries of a leaf do not begin before its key; the first is 0.
        std::vector<std::uintptr_t> keys;
        std::vector<std::atomic<Leaf*>> leaves;
    };

    [[nodiscard]] static std::size_t first_touching(const Root& root,
                                                    std::uintptr_t begin) noexcept;
    /// Puts @p replacements, of at most two leaves, in the place of leaf @p i.
    void replace(std::size_t i, std::unique_ptr<Leaf> first, std::unique_ptr<Leaf> second);
    /// Copies what is left of a leaf, if there is memory.
    void compact(std::size_t i) noexcept;

    RetireList& retire_list_;
    std::atomic<Root*> root_;
};

} // namespace rdmabuf::detail
