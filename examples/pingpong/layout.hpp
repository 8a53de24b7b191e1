// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "verb.hpp"

namespace pingpong {

/// Where things lie in the memory of one end:
///
///     | guard page | guard  outgoing  guard  incoming  guard | guard page |
///                  '------------- the registered region -----'
///
/// The region begins in the middle of the buffer, and what is transferred at odd addresses of it: a
/// key or an offset that is ignored somewhere on the way puts the bytes where a guard stands. Both
/// ends have the same layout inside their regions, so that each knows the other's.
struct Layout {
    /// Bytes of one transfer.
    std::size_t size = 0;
    /// Of the region in the buffer: a page, so that also device memory can be registered there.
    std::size_t region_offset = 0;
    std::size_t region_length = 0;
    /// In the region: what this end gives to the other.
    std::size_t outgoing = 0;
    /// In the region: what this end gets from the other.
    std::size_t incoming = 0;
    /// The whole buffer, in bytes; a multiple of 64.
    std::size_t total = 0;

    /// Guard bytes before, between and behind the two areas.
    static constexpr std::size_t guard = 4096;
};

/// @param page_size  of this machine
[[nodiscard]] Layout make_layout(std::uint64_t size, Verb verb, std::size_t page_size) noexcept;
/// The same, of this machine's pages.
[[nodiscard]] Layout make_layout(std::uint64_t size, Verb verb) noexcept;

} // namespace pingpong
