// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rdmabuf/transport/detail/arena.hpp>
#include <rdmabuf/transport/detail/protocol.hpp>

namespace rdmabuf::transport::detail {

/// The queue of unexpected messages and of notifications. A message is unexpected if it arrives
/// before the receive for it is posted. Each queued message or notification remains in its bounce
/// buffer (slot).
class Inbox {
  public:
    static constexpr std::uint32_t none = 0xffffffff;

    explicit Inbox(const Arena& arena) : arena_(&arena), next_(arena.receive_slots(), none) {}

    [[nodiscard]] Header header(std::uint32_t slot) const noexcept {
        Header header;
        std::memcpy(&header, arena_->receive_slot(slot), sizeof header);
        return header;
    }
    [[nodiscard]] const std::byte* body(std::uint32_t slot) const noexcept {
        return arena_->receive_slot(slot) + sizeof(Header);
    }

    void hold(std::uint32_t slot) noexcept {
        next_[slot] = none;
        (last_ == none ? first_ : next_[last_]) = slot;
        last_ = slot;
    }
    /// Removes the first message for whose header @p wanted returns true.
    /// @return the index of its bounce buffer, or none
    template <class Wanted>
    [[nodiscard]] std::uint32_t take(const Wanted& wanted) noexcept {
        std::uint32_t before = none;
        for (std::uint32_t slot = first_; slot != none; before = slot, slot = next_[slot]) {
            if (!wanted(header(slot))) {
                continue;
            }
            (before == none ? first_ : next_[before]) = next_[slot];
            if (last_ == slot) {
                last_ = before;
            }
            return slot;
        }
        return none;
    }

  private:
    const Arena* arena_;
    std::vector<std::uint32_t> next_;
    std::uint32_t first_ = none;
    std::uint32_t last_ = none;
};

} // namespace rdmabuf::transport::detail
