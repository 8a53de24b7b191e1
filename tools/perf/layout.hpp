// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "options.hpp"

namespace rdmabuf::tools::perf {

/// The layout of the memory of one end. Each transfer in flight uses a slot of its own:
///
///     | guard page | slot 0 | slot 1 | ...                     | guard page |
///                  '------------ the registered region --------'
///     slot:  | guard | outgoing | guard | incoming | guard |
///
/// The region does not begin at the start of the buffer, and the data has odd addresses, except for
/// atomics. If a key or an offset is ignored, the data arrives in a guard, and --check detects the
/// changed bytes. The regions of both ends have the same layout, so each end can calculate the
/// addresses at the other end.
class Layout {
  public:
    /// The minimum number of guard bytes (bytes that must not change) before and after the data.
    static constexpr std::size_t guard = 512;

    /// @param size       the size of a transfer in bytes
    /// @param depth      the number of slots
    /// @param page_size  the page size of this machine in bytes; the other end can have a different
    ///                   page size
    Layout(std::uint64_t size, std::uint32_t depth, Verb verb, std::size_t page_size) noexcept
        : size_(size),
          depth_(depth),
          page_(page_size),
          // Atomics need addresses that are multiples of 8.
          outgoing_(guard + (is_atomic(verb) ? 8 : 13)),
          incoming_(round_up(outgoing_ + size + guard) + (is_atomic(verb) ? 24 : 37)),
          slot_size_(round_up(incoming_ + size + guard)) {}

    /// The size of one transfer in bytes.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
    /// The offset of the region in the buffer, in bytes.
    [[nodiscard]] std::size_t region_offset() const noexcept { return page_; }
    /// The length of the region in bytes.
    [[nodiscard]] std::size_t region_length() const noexcept { return slot_size_ * depth_; }
    /// The size of the buffer in bytes: the region, one page before the region and one page after
    /// it.
    [[nodiscard]] std::size_t buffer_size() const noexcept { return region_length() + 2 * page_; }

    /// Returns the offset of a transfer's slot in the region, in bytes. All these offsets are
    /// multiples of 64.
    [[nodiscard]] std::size_t slot(std::uint64_t transfer) const noexcept {
        return transfer % depth_ * slot_size_;
    }
    [[nodiscard]] std::size_t slot_size() const noexcept { return slot_size_; }
    /// The offset of the outgoing data in a slot, in bytes. This end sends the outgoing data, or
    /// the peer reads this data.
    [[nodiscard]] std::size_t outgoing() const noexcept { return outgoing_; }
    /// The offset of the incoming data in a slot, in bytes. This data arrives from the peer.
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
