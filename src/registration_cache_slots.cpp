// SPDX-License-Identifier: BSD-3-Clause
#include "registration_cache_slots.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

using Count = LeaseState<Platform>::Count;

SlotPool::Pages::Pages(std::size_t size)
    : pages_(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
      size_(size) {
    if (pages_ == MAP_FAILED) {
        throw Error(errno, "mmap", "no memory for the leases of a registration cache");
    }
}

SlotPool::Pages::~Pages() {
    ::munmap(pages_, size_);
}

SlotPool::Chunk::Chunk() : counts(Platform::rows * Platform::stride * sizeof(Count)) {
    slots.reserve(Platform::stride);
}

CacheSlot& SlotPool::take() {
    if (free_ != nullptr) {
        return *std::exchange(free_, free_->next);
    }
    if (chunks_.empty() || chunks_.back()->slots.size() == Platform::stride) {
        chunks_.push_back(std::make_unique<Chunk>());
    }
    Chunk& chunk = *chunks_.back();
    auto* const counts = static_cast<Count*>(chunk.counts.get()) + chunk.slots.size();
    chunk.slots.push_back(std::make_unique<CacheSlot>(counts));
    chunk.slots.back()->core = &core_;
    return *chunk.slots.back();
}

void SlotPool::put(CacheSlot& slot) noexcept {
    slot.next = free_;
    free_ = &slot;
}

} // namespace rdmabuf::detail
