// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/node.hpp"

namespace softverbs {

/// What queue pairs send each other, between processes as a record of the fabric: this header, and
/// after it either bytes of data or segments for the receiver to fetch. What comes from another
/// process is not to be trusted: parse_packet() checks its form, the engine everything else.
struct PacketHeader {
    enum class Kind : std::uint8_t {
        // Requests
        send,
        write,
        read,
        compare_swap,
        fetch_add,
        // Responses
        ack,
        nak, // the reason is in nak_code
        read_data,
        atomic_result, // in compare_add
    };
    enum class NakCode : std::uint8_t {
        none,
        rnr, // try again after rnr_timer
        invalid_request,
        remote_access,
        remote_operation,
        sequence_error,    // psn is the one that was expected
        resend_as_records, // what was to be fetched could not be
    };
    static constexpr std::uint8_t has_immediate = 1;
    static constexpr std::uint8_t has_invalidate = 2;
    static constexpr std::uint8_t solicited = 4;
    static constexpr std::uint8_t ack_request = 8;
    static constexpr std::uint8_t to_fetch = 16; // segments follow, not bytes
    static constexpr std::uint8_t has_grh = 32;
    static constexpr std::uint8_t has_checksum = 64;

    std::uint32_t magic;
    Kind kind;
    std::uint8_t service; // ibv_qp_type
    std::uint8_t flags;
    NakCode nak_code;
    std::uint32_t destination; // queue pair number
    std::uint32_t source;
    std::uint32_t psn;
    std::uint32_t imm_or_key; // as in ibv_wc
    std::uint64_t remote_address;
    std::uint32_t rkey;
    std::uint32_t qkey;
    /// Of the whole message, and where in it the data of this packet is.
    std::uint64_t length;
    std::uint64_t offset;
    /// In datagrams with a global route: a GlobalRoute.
    std::uint64_t compare_add;
    std::uint64_t swap;
    /// Bytes of data, or number of segments.
    std::uint32_t payload;
    std::uint32_t checksum;
    std::uint16_t source_lid;
    std::uint16_t destination_lid;
    std::uint8_t service_level;
    std::uint8_t rnr_timer;
    std::uint8_t device; // index of the receiver's
    /// In reads and atomics: how many of them the requester has outstanding, this one included.
    std::uint8_t reads_outstanding;
    ibv_gid source_gid;
    ibv_gid destination_gid;
};
static_assert(sizeof(PacketHeader) == 120 && alignof(PacketHeader) == 8);
inline constexpr std::uint32_t packet_magic = 0x73760001; // its last byte is the version

/// The fields of the GRH of a datagram that come from the address handle, besides the GIDs.
struct GlobalRoute {
    std::uint32_t flow_label = 0; // 20 bits
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    bool is_roce_v2 = false;
};
[[nodiscard]] constexpr std::uint64_t pack(const GlobalRoute& route) noexcept {
    return (route.flow_label & 0xfffffU) | std::uint64_t{route.traffic_class} << 20U |
           std::uint64_t{route.hop_limit} << 28U | std::uint64_t{route.is_roce_v2} << 36U;
}
[[nodiscard]] constexpr GlobalRoute unpack(std::uint64_t packed) noexcept {
    return {.flow_label = static_cast<std::uint32_t>(packed & 0xfffffU),
            .traffic_class = static_cast<std::uint8_t>(packed >> 20U),
            .hop_limit = static_cast<std::uint8_t>(packed >> 28U),
            .is_roce_v2 = (packed >> 36U & 1U) != 0};
}

struct Packet {
    PacketHeader header;
    std::span<const std::byte> bytes;
    std::span<const fabric::Segment> segments;
};

/// False: these bytes are no packet. The header is a copy; the spans point into @p record.
[[nodiscard]] bool parse_packet(std::span<const std::byte> record, Packet& packet) noexcept;
/// Over header (with checksum 0) and payload.
[[nodiscard]] std::uint32_t checksum(const Packet& packet) noexcept;

/// The most segments a packet has.
inline constexpr std::size_t max_segments = 32;

} // namespace softverbs
