// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fabric/connection.hpp"

namespace softverbs::fabric {

/// The format of data on a TCP connection between hosts. A frame consists of a header and a record
/// (a request or a response), padded to a multiple of 8. Numbers are little-endian. Requests and
/// responses have separate flow control: for each of them, the header reports how many bytes the
/// sender of the frame has consumed.
static_assert(std::endian::native == std::endian::little);

/// Maximum length in bytes of a record (a request or a response).
inline constexpr std::size_t longest_frame_record = std::size_t{64} * 1024 - 64;
/// Flow-control window, separate for requests and for responses: maximum number of frame bytes that
/// were sent but that the receiving process has not consumed yet.
inline constexpr std::uint32_t window_bytes = std::uint32_t{1} << 20U;

enum class FrameKind : std::uint16_t {
    request,
    response,
    /// A frame without a record, which only reports how much its sender has consumed.
    credit,
};

/// A constant in each frame header. If a received header contains another value, the stream is
/// corrupt.
inline constexpr std::uint16_t frame_mark = 0x5673;

struct FrameHeader {
    std::uint32_t length = 0; // length of the record in bytes
    FrameKind kind = FrameKind::credit;
    std::uint16_t mark = frame_mark;
    /// Number of requests that the sender of this frame has consumed, modulo 2^32.
    std::uint32_t requests_consumed = 0;
    /// For requests and for responses: number of frame bytes that the sender of this frame has
    /// consumed, modulo 2^32.
    std::array<std::uint32_t, lanes> bytes_consumed{};
    std::uint32_t reserved = 0;
};
inline constexpr std::size_t frame_header_bytes = sizeof(FrameHeader);
static_assert(frame_header_bytes == 24);

[[nodiscard]] constexpr bool is_valid(const FrameHeader& header) noexcept {
    return header.mark == frame_mark && header.reserved == 0 && header.kind <= FrameKind::credit &&
           header.length <= longest_frame_record &&
           (header.kind != FrameKind::credit || header.length == 0);
}

/// Returns the size in bytes of a frame whose record has @p length bytes.
[[nodiscard]] constexpr std::uint32_t frame_bytes(std::size_t length) noexcept {
    return static_cast<std::uint32_t>(frame_header_bytes + ((length + 7) & ~std::size_t{7}));
}

} // namespace softverbs::fabric
