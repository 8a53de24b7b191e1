// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_frame.hpp"

#include "fabric/little_endian.hpp"

namespace softverbs::fabric {
namespace {

constexpr std::size_t length_at = 0;
constexpr std::size_t frame_kind_at = 4;
constexpr std::size_t mark_at = 6;
constexpr std::size_t requests_at = 8;
constexpr std::size_t bytes_at = 12;
constexpr std::size_t reserved_at = 20;
/// A constant in each frame header. If a received header contains another value, the stream is
/// corrupt.
constexpr std::uint16_t mark = 0x5673;

} // namespace

FrameHeaderBytes encode(const FrameHeader& header) noexcept {
    FrameHeaderBytes bytes{};
    store_little_endian<std::uint32_t>(bytes, length_at, header.length);
    store_little_endian<std::uint16_t>(bytes, frame_kind_at,
                                       static_cast<std::uint16_t>(header.kind));
    store_little_endian<std::uint16_t>(bytes, mark_at, mark);
    store_little_endian<std::uint32_t>(bytes, requests_at, header.requests_consumed);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        store_little_endian<std::uint32_t>(bytes, bytes_at + lane * sizeof(std::uint32_t),
                                           header.bytes_consumed[lane]);
    }
    return bytes;
}

std::optional<FrameHeader> decode(std::span<const std::byte, frame_header_bytes> bytes) noexcept {
    FrameHeader header;
    header.length = load_little_endian<std::uint32_t>(bytes, length_at);
    header.kind = static_cast<FrameKind>(load_little_endian<std::uint16_t>(bytes, frame_kind_at));
    header.requests_consumed = load_little_endian<std::uint32_t>(bytes, requests_at);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        header.bytes_consumed[lane] =
            load_little_endian<std::uint32_t>(bytes, bytes_at + lane * sizeof(std::uint32_t));
    }
    const bool good = load_little_endian<std::uint16_t>(bytes, mark_at) == mark &&
                      load_little_endian<std::uint32_t>(bytes, reserved_at) == 0 &&
                      header.kind <= FrameKind::credit && header.length <= longest_frame_record &&
                      (header.kind != FrameKind::credit || header.length == 0);
    return good ? std::optional(header) : std::nullopt;
}

} // namespace softverbs::fabric
