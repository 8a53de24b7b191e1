// SPDX-License-Identifier: BSD-3-Clause
#include "cache/slots.hpp"

#include <new>
#include <utility>

namespace rdmabuf::detail {
namespace {

/// 16 MiB, of which takes memory what threads use.
constexpr std::size_t counts_size = Platform::rows * Platform::stride * sizeof(CacheSlot::Count);

} // namespace

CacheSlot& SlotPool::take() {
    if (free_ != nullptr) {
        return *std::exchange(free_, free_->rest->next);
    }
    const std::size_t i = size();
    if (blocks_.size() == i / CacheSlot::block_slots) {
        blocks_.push_back(std::make_unique<Pages>(CacheSlot::block_size + counts_size));
    }
    rests_.push_back(std::make_unique<SlotRest>(core_));
    if (i == few || (i != 0 && i % CacheSlot::block_slots == 0)) {
        blocks_.back()->make_huge(CacheSlot::block_size);
    }
    return *::new (&at(i)) CacheSlot(rests_.back().get());
}

void SlotPool::put(CacheSlot& slot) noexcept {
    slot.rest->next = free_;
    free_ = &slot;
}

} // namespace rdmabuf::detail
