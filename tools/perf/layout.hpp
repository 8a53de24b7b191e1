// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "options.hpp"

namespace rdmabuf::tools::perf {

/// The positions in the memory of one end. Each transfer in flight has a slot of its own:
///
///     | guard page | slot 0 | slot 1 | ...                     | guard page |
///                  '------------ the registered region --------'
///     slot:  | guard | outgoing | guard | incoming | guard |
///
/// The region begins in the middle of the buffer, and the data at odd addresses. If a key or an
/// offset is ignored on the way, the bytes arrive in a guard, and --check finds them there. Both
/// ends have the same layout in their regions, so each knows the positions of the other.
class Layout {
  public:
    /// The least number of guard bytes on each side of data.
    static constexpr std::size_t guard = 512;

    /// @param page_size  of this machine; the other end may have another one
    Layout(std::uint64_t size, std::uint32_t depth, Verb verb, std::size_t page_size) noexcept
        : size_(size),
          depth_(depth),
          page_(page_size),
          outgoing_(guard + (is_atomic(verb) ? 8 : 13)) {
        // Atomics need addresses that are multiples of 8.
        incoming_ = round_up(outgoing_ + size + guard) + (is_atomic(verb) ? 24 : 37);
        slot_size_ = round_up(incoming_ + size + guard);
    }

    /// Bytes of one transfer.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
    /// The position of the region in the buffer, and its length.
    [[nodiscard]] std::size_t region_offset() const noexcept { return page_; }
    [[nodiscard]] std::size_t region_length() const noexcept { return slot_size_ * depth_; }
    /// The size of the buffer.
    [[nodiscard]] std::size_t buffer_size() const noexcept { return region_length() + 2 * page_; }

    /// The position of a slot in the region. A multiple of 64, as is the size of a slot.
    [[nodiscard]] std::size_t slot(std::uint64_t transfer) const noexcept {
        return transfer % depth_ * slot_size_;
    }
    [[nodiscard]] std::size_t slot_size() const noexcept { return slot_size_; }
    /// The positions in a slot of the data that is sent or read by the peer, and of the data that
    /// arrives.
    [[nodiscard]] std::size_t outgoing() const noexcept { return outgoing_; }
    [[nodiscard]] std::size_t incoming() const noexcept { return incoming_; }

  private:
    static constexpr std::size_t round_up(std::size_t value) noexcept {
        return (value + 63) / 64 * 64;
    }

    std::size_t size_;
    std::uint32_t depth_;
    std::size_t page_;
    std::size_t outgoing_;
    std::size_t incoming_ = 0;
    std::size_t slot_size_ = 0;
};

} // namespace rdmabuf::tools::perf
