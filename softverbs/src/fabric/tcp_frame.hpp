// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/node.hpp"

namespace softverbs::fabric {

/// The frames of a TCP connection: a 24-byte header and a record, padded to a multiple of 8. Each
/// header also carries the number of bytes that its sender has consumed in each lane. So each lane
/// has its own flow-control window, although both lanes share one TCP connection.
inline constexpr std::size_t frame_header_bytes = 24;
/// The maximum length of a record in a frame, in bytes.
inline constexpr std::size_t longest_frame_record = std::size_t{64} * 1024 - 64;
/// The flow-control window of a lane: the maximum number of frame bytes that are sent and not yet
/// consumed.
inline constexpr std::uint32_t window_bytes = std::uint32_t{1} << 20U;

enum class FrameKind : std::uint16_t {
    request,
    response,
    /// A frame that contains no record. Its header reports how much its sender has consumed.
    credit,
};

struct FrameHeader {
    std::uint32_t length = 0; // of the record
    FrameKind kind = FrameKind::credit;
    /// Number of requests that the sender of this frame has consumed, modulo 2^32.
    std::uint32_t requests_consumed = 0;
    /// Number of frame bytes that the sender of this frame has consumed in each lane, modulo 2^32.
    std::array<std::uint32_t, lanes> bytes_consumed{};
};

/// The size of the frame for a record of @p length bytes.
[[nodiscard]] constexpr std::uint32_t frame_bytes(std::size_t length) noexcept {
    return static_cast<std::uint32_t>(frame_header_bytes + ((length + 7) & ~std::size_t{7}));
}

using FrameHeaderBytes = std::array<std::byte, frame_header_bytes>;
[[nodiscard]] FrameHeaderBytes encode(const FrameHeader& header) noexcept;
/// Decodes a frame header. Returns no value if it is invalid.
[[nodiscard]] std::optional<FrameHeader> decode(
    std::span<const std::byte, frame_header_bytes> bytes) noexcept;

} // namespace softverbs::fabric
