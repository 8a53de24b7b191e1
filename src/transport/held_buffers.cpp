// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/held_buffers.hpp>

namespace rdmabuf::transport::detail {

void HeldBuffers::hold(std::uint32_t buffer, std::uint32_t sequence) noexcept {
    pool_.use(buffer) = {.next = BouncePool::none, .sequence = sequence};
    if (first_ == BouncePool::none) {
        first_ = buffer;
    } else {
        pool_.use(last_).next = buffer;
    }
    last_ = buffer;
}

void HeldBuffers::release_completed(const SendQueue& queue) noexcept {
    while (first_ != BouncePool::none && queue.is_completed(pool_.use(first_).sequence)) {
        release_first();
    }
}

void HeldBuffers::release_all() noexcept {
    while (first_ != BouncePool::none) {
        release_first();
    }
}

bool HeldBuffers::may_hold_scarce(std::size_t count) const noexcept {
    std::size_t held = 0;
    for (std::uint32_t i = first_; i != BouncePool::none && held < few; i = pool_.use(i).next) {
        ++held;
    }
    const std::size_t left = held + count <= 1     ? 0
                             : held + count <= few ? pool_.send_buffers() / 4
                                                   : pool_.send_buffers();
    return pool_.unused() >= left + count;
}

void HeldBuffers::release_first() noexcept {
    const std::uint32_t buffer = first_;
    first_ = pool_.use(buffer).next;
    pool_.give_back(buffer);
}

} // namespace rdmabuf::transport::detail
