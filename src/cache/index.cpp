// SPDX-License-Identifier: BSD-3-Clause
#include "cache/index.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "cache/entries.hpp"

namespace rdmabuf::detail {
namespace {

/// Returns the number of elements of the sorted array @p values that are not greater than @p limit.
/// The search has no branch that depends on the values, because the CPU would mispredict half of
/// these branches.
std::size_t count_up_to(const std::uintptr_t* values, std::size_t size,
                        std::uintptr_t limit) noexcept {
    std::size_t count = 0;
    while (size > 1) {
        const std::size_t half = size / 2;
        const auto all_ones =
            std::size_t{0} - static_cast<std::size_t>(values[count + half - 1] <= limit);
        count += half & all_ones;
        size -= half;
    }
    return count + static_cast<std::size_t>(size == 1 && values[count] <= limit);
}

} // namespace

void RangeIndex::Leaf::add(std::uintptr_t begin, std::uintptr_t end, CacheEntry* entry) noexcept {
    begins[size] = begin;
    ends[size].store(end, std::memory_order_relaxed);
    entries[size] = entry;
    ++size;
}

RangeIndex::RangeIndex(RetireList& retire_list) : retire_list_(retire_list), root_(nullptr) {
    auto root = std::make_unique<Root>(1);
    root->leaves[0].store(std::make_unique<Leaf>().release(), std::memory_order_relaxed);
    root_.store(root.release(), std::memory_order_relaxed);
}

RangeIndex::~RangeIndex() {
    const std::unique_ptr<Root> root(root_.load(std::memory_order_relaxed));
    for (const auto& leaf : root->leaves) {
        delete leaf.load(std::memory_order_relaxed); // NOLINT(cppcoreguidelines-owning-memory)
    }
}

CacheEntry* RangeIndex::find(std::uintptr_t begin, std::uintptr_t end) const noexcept {
    const Root& root = *root_.load(std::memory_order_seq_cst);
    for (std::size_t i = count_up_to(root.keys.data(), root.size(), begin); i > 0; --i) {
        const Leaf& leaf = *root.leaves[i - 1].load(std::memory_order_seq_cst);
        for (std::size_t k = count_up_to(leaf.begins.data(), leaf.size, begin); k > 0; --k) {
            const std::uintptr_t last = leaf.ends[k - 1].load(std::memory_order_seq_cst);
            if (last != gone) {
                return last >= end ? leaf.entries[k - 1] : nullptr;
            }
        }
    }
    return nullptr;
}

std::size_t RangeIndex::first_touching(const Root& root, std::uintptr_t begin) noexcept {
    std::size_t first = count_up_to(root.keys.data(), root.size(), begin) - 1;
    for (std::size_t i = first; i > 0; --i) {
        const Leaf& before = *root.leaves[i - 1].load(std::memory_order_relaxed);
        std::uintptr_t last = gone;
        for (std::size_t k = before.size; k > 0 && last == gone; --k) {
            last = before.ends[k - 1].load(std::memory_order_relaxed);
        }
        if (last != gone && last < begin) {
            break;
        }
        if (last != gone) {
            first = i - 1;
        }
    }
    return first;
}

void RangeIndex::insert(CacheEntry& entry) {
    const Root& root = *root_.load(std::memory_order_relaxed);
    const std::size_t i = count_up_to(root.keys.data(), root.size(), entry.address) - 1;
    const Leaf& old = *root.leaves[i].load(std::memory_order_relaxed);
    const std::size_t total = old.size - old.removed + 1;
    const std::size_t in_first = total > leaf_capacity ? total / 2 : total;

    auto first = std::make_unique<Leaf>();
    auto second = in_first < total ? std::make_unique<Leaf>() : nullptr;
    const auto add = [&](std::uintptr_t begin, std::uintptr_t end, CacheEntry* added_entry) {
        (first->size < in_first ? *first : *second).add(begin, end, added_entry);
    };
    bool added = false;
    for (std::size_t k = 0; k < old.size; ++k) {
        const std::uintptr_t last = old.ends[k].load(std::memory_order_relaxed);
        if (last == gone) {
            continue;
        }
        if (!added && old.begins[k] > entry.address) {
            add(entry.address, entry.end, &entry);
            added = true;
        }
        add(old.begins[k], last, old.entries[k]);
    }
    if (!added) {
        add(entry.address, entry.end, &entry);
    }
    replace(i, std::move(first), std::move(second));
}

void RangeIndex::replace(std::size_t i, std::unique_ptr<Leaf> first, std::unique_ptr<Leaf> second) {
    Root* const root = root_.load(std::memory_order_relaxed);
    Leaf* const old = root->leaves[i].load(std::memory_order_relaxed);
    const bool drop = first->size == 0 && root->size() > 1;
    if (second == nullptr && !drop) {
        root->leaves[i].store(first.release(), std::memory_order_seq_cst);
        retire_list_.put(std::unique_ptr<Leaf>(old));
        return;
    }
    auto next = std::make_unique<Root>(drop ? root->size() - 1 : root->size() + 1);
    std::size_t to = 0;
    const auto put = [&](std::uintptr_t key, Leaf* leaf) {
        next->keys[to] = to == 0 ? 0 : key;
        next->leaves[to++].store(leaf, std::memory_order_relaxed);
    };
    for (std::size_t from = 0; from < root->size(); ++from) {
        if (from != i) {
            put(root->keys[from], root->leaves[from].load(std::memory_order_relaxed));
        } else if (!drop) {
            const std::uintptr_t middle = second->begins[0];
            put(root->keys[from], first.release());
            put(middle, second.release());
        }
    }
    root_.store(next.release(), std::memory_order_seq_cst);
    retire_list_.put(std::unique_ptr<Leaf>(old));
    retire_list_.put(std::unique_ptr<Root>(root));
}

void RangeIndex::remove(const CacheEntry& entry) noexcept {
    const Root& root = *root_.load(std::memory_order_relaxed);
    const std::size_t i = count_up_to(root.keys.data(), root.size(), entry.address) - 1;
    Leaf& leaf = *root.leaves[i].load(std::memory_order_relaxed);
    const std::size_t k = count_up_to(leaf.begins.data(), leaf.size, entry.address) - 1;
    leaf.ends[k].store(gone, std::memory_order_seq_cst);
    ++leaf.removed;
    if (leaf.removed == leaf.size || leaf.removed > leaf_capacity / 2) {
        compact(i);
    }
}

void RangeIndex::compact(std::size_t i) noexcept {
    try {
        const Leaf& old =
            *root_.load(std::memory_order_relaxed)->leaves[i].load(std::memory_order_relaxed);
        auto left = std::make_unique<Leaf>();
        for (std::size_t k = 0; k < old.size; ++k) {
            const std::uintptr_t last = old.ends[k].load(std::memory_order_relaxed);
            if (last != gone) {
                left->add(old.begins[k], last, old.entries[k]);
            }
        }
        replace(i, std::move(left), nullptr);
    } catch (const std::bad_alloc&) {
        // If there is no memory for a copy of the leaf (an array of entries), the leaf keeps its
        // removed entries. A search in this leaf then takes longer, but its result is correct.
    }
}

} // namespace rdmabuf::detail
