// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/transport/detail/bounce_pool.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>

namespace rdmabuf::transport::detail {

/// The send buffers of the posted messages of a channel, in the order in which the messages were
/// posted. A buffer returns to the pool when its message has completed.
///
/// The messages of a channel do not complete while its peer receives nothing. Such channels must
/// not block the others. Therefore a channel that holds 8 buffers takes none from the last half of
/// the pool, and a channel that holds any takes none from the last quarter.
class HeldBuffers {
  public:
    explicit HeldBuffers(BouncePool& pool) noexcept : pool_(pool) {}

    /// Returns true if the channel may take another send buffer from the pool.
    [[nodiscard]] bool may_hold() const noexcept {
        return pool_.unused() > pool_.send_buffers() / 2 || may_hold_scarce();
    }

    /// Adds a send buffer.
    /// @param sequence  the sequence number of the work request that reads the buffer
    void hold(std::uint32_t buffer, std::uint32_t sequence) noexcept {
        pool_.use(buffer) = {.next = BouncePool::none, .sequence = sequence};
        if (first_ == BouncePool::none) {
            first_ = buffer;
        } else {
            pool_.use(last_).next = buffer;
        }
        last_ = buffer;
    }
    /// Returns the send buffers of completed messages to the pool.
    /// @param queue  the send queue on which the messages were posted
    void release_completed(const SendQueue& queue) noexcept {
        while (first_ != BouncePool::none && queue.is_completed(pool_.use(first_).sequence)) {
            release_first();
        }
    }
    void release_all() noexcept {
        while (first_ != BouncePool::none) {
            release_first();
        }
    }

  private:
    static constexpr std::size_t few = 8;

    [[gnu::noinline]] bool may_hold_scarce() const noexcept {
        std::size_t held = 0;
        for (std::uint32_t i = first_; i != BouncePool::none && held < few; i = pool_.use(i).next) {
            ++held;
        }
        return held < few && pool_.unused() > (held == 0 ? 0 : pool_.send_buffers() / 4);
    }
    void release_first() noexcept {
        const std::uint32_t buffer = first_;
        first_ = pool_.use(buffer).next;
        pool_.give_back(buffer);
    }

    BouncePool& pool_;
    std::uint32_t first_ = BouncePool::none;
    std::uint32_t last_ = BouncePool::none;
};

} // namespace rdmabuf::transport::detail
