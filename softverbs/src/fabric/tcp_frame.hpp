// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/connection.hpp"

namespace softverbs::fabric {

/// The format of data on a TCP connection between hosts. A frame consists of a header of 24 bytes
/// and a record, padded to a multiple of 8. The TCP connection carries two lanes (independent
/// streams of records): requests and responses. The header reports how many bytes of each lane the
/// sender of the frame has consumed, so that each lane has its own flow control.
inline constexpr std::size_t frame_header_bytes = 24;
/// Maximum length of a record in bytes.
inline constexpr std::size_t longest_frame_record = std::size_t{64} * 1024 - 64;
/// Flow-control window of a lane: maximum number of frame bytes that were sent but not yet
/// consumed.
inline constexpr std::uint32_t window_bytes = std::uint32_t{1} << 20U;

enum class FrameKind : std::uint16_t {
    request,
    response,
    /// A frame without a record, which reports only the counters in its header.
    credit,
};

struct FrameHeader {
    std::uint32_t length = 0; // length of the record in bytes
    FrameKind kind = FrameKind::credit;
    /// Number of requests that the sender of this frame has consumed, modulo 2^32.
    std::uint32_t requests_consumed = 0;
    /// For each lane: number of frame bytes that the sender of this frame has consumed, modulo
    /// 2^32.
    std::array<std::uint32_t, lanes> bytes_consumed{};
};

/// Returns the size in bytes of a frame with a record of @p length bytes.
[[nodiscard]] constexpr std::uint32_t frame_bytes(std::size_t length) noexcept {
    return static_cast<std::uint32_t>(frame_header_bytes + ((length + 7) & ~std::size_t{7}));
}

using FrameHeaderBytes = std::array<std::byte, frame_header_bytes>;
[[nodiscard]] FrameHeaderBytes encode(const FrameHeader& header) noexcept;
/// Decodes a frame header. Returns no value if the header is invalid.
[[nodiscard]] std::optional<FrameHeader> decode(
    std::span<const std::byte, frame_header_bytes> bytes) noexcept;

} // namespace softverbs::fabric
