// SPDX-License-Identifier: BSD-3-Clause
#include "cache/entries.hpp"

#include <new>
#include <utility>

namespace rdmabuf::detail {
namespace {

/// The size in bytes of the lease counts for one block of cache entries: 16 MiB of address space.
/// The kernel allocates only the pages for thread slots in use.
constexpr std::size_t counts_size =
    Platform::thread_slots * Platform::stride * sizeof(CacheEntry::Count);

} // namespace

CacheEntry& EntryPool::take() {
    if (free_ != nullptr) {
        return *std::exchange(free_, free_->details->next);
    }
    const std::size_t i = size();
    if (blocks_.size() == i / CacheEntry::block_entries) {
        blocks_.push_back(std::make_unique<Pages>(CacheEntry::block_size + counts_size));
    }
    details_.push_back(std::make_unique<EntryDetails>(core_));
    if (i == few || (i != 0 && i % CacheEntry::block_entries == 0)) {
        blocks_.back()->make_huge(CacheEntry::block_size);
    }
    return *::new (&at(i)) CacheEntry(details_.back().get());
}

void EntryPool::put(CacheEntry& entry) noexcept {
    entry.details->next = free_;
    free_ = &entry;
}

} // namespace rdmabuf::detail
