// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/node.hpp"

namespace softverbs::fabric {

/// A TCP connection carries frames: a header of 24 bytes and a record, padded to a multiple of 8.
/// Each header also says what its sender has consumed, as the indices of a ring would, so that each
/// lane has a window of its own although both share the connection.
inline constexpr std::size_t frame_header_bytes = 24;
/// The longest record in a frame.
inline constexpr std::size_t longest_frame_record = std::size_t{64} * 1024 - 64;
/// Bytes of frames in one lane that may be on the way or not consumed yet.
inline constexpr std::uint32_t window_bytes = std::uint32_t{1} << 20U;

enum class FrameKind : std::uint16_t {
    request,
    response,
    /// No record: only the counters of the header.
    credit,
};

struct FrameHeader {
    std::uint32_t length = 0; // of the record
    FrameKind kind = FrameKind::credit;
    /// Requests that the sender of this frame has consumed so far, modulo 2^32.
    std::uint32_t requests_consumed = 0;
    /// Bytes of frames that it has consumed so far in each lane, modulo 2^32.
    std::array<std::uint32_t, lanes> bytes_consumed{};
};

/// Bytes of the frame for a record of @p length bytes.
[[nodiscard]] constexpr std::uint32_t frame_bytes(std::size_t length) noexcept {
    return static_cast<std::uint32_t>(frame_header_bytes + ((length + 7) & ~std::size_t{7}));
}

using FrameHeaderBytes = std::array<std::byte, frame_header_bytes>;
[[nodiscard]] FrameHeaderBytes encode(const FrameHeader& header) noexcept;
/// Nothing where the bytes are no possible header.
[[nodiscard]] std::optional<FrameHeader> decode(
    std::span<const std::byte, frame_header_bytes> bytes) noexcept;

} // namespace softverbs::fabric
