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

/// The entries of one AccessClass (a set of access flags), sorted by address. The entries are
/// stored in several arrays, called leaves. No entry contains another entry, so that the ends of
/// the entries are sorted too. Only the last entry that begins at or before the first byte of a
/// range can contain this range.
///
/// Readers must be in a read-side section; writers must hold the lock of the cache. Adding an entry
/// copies one leaf, and sometimes the list of leaves. Removing an entry changes its leaf in place.
/// If all entries of a leaf, or more entries than half of its capacity, were removed, a copy
/// without them replaces the leaf.
class RangeIndex {
  public:
    explicit RangeIndex(RetireList& retire_list);
    RangeIndex(const RangeIndex&) = delete;
    RangeIndex& operator=(const RangeIndex&) = delete;
    ~RangeIndex();

    /// Returns the entry that contains the range [begin, end), or nullptr if no entry contains the
    /// range.
    [[nodiscard]] CacheEntry* find(std::uintptr_t begin, std::uintptr_t end) const noexcept;

    /// Adds an entry. The range of the entry must not contain the range of another entry, and must
    /// not lie within the range of another entry.
    /// @throws std::bad_alloc if there is no memory; the index is then unchanged
    void insert(CacheEntry& entry);
    void remove(const CacheEntry& entry) noexcept;

    /// Calls @p visit with each entry that overlaps or touches the range [begin, end). The function
    /// @p visit may remove this entry from the index. The caller must hold the lock of the cache.
    template <class Visit>
    void for_each_touching(std::uintptr_t begin, std::uintptr_t end, Visit visit) const {
        // The search skips the leaves in which all entries end before `begin`.
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
    /// The value of `ends` for an entry that was removed from its leaf.
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

        /// The keys of the leaves. No entry of a leaf begins before the key of this leaf. The first
        /// key is 0.
        std::vector<std::uintptr_t> keys;
        std::vector<std::atomic<Leaf*>> leaves;
    };

    [[nodiscard]] static std::size_t first_touching(const Root& root,
                                                    std::uintptr_t begin) noexcept;
    /// Replaces the leaf with the index @p i by @p first, and, unless @p second is null, also by @p
    /// second. If @p first is empty and there are other leaves, the leaf is only removed.
    void replace(std::size_t i, std::unique_ptr<Leaf> first, std::unique_ptr<Leaf> second);
    /// Replaces the leaf with the index @p i by a copy without the removed entries. Does nothing if
    /// there is no memory for the copy.
    void compact(std::size_t i) noexcept;

    RetireList& retire_list_;
    std::atomic<Root*> root_;
};

} // namespace rdmabuf::detail
