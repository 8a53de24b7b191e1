// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fabric/connection.hpp"

namespace softverbs {

/// The header of a packet between two queue pairs. The header is followed by data, or by segments:
/// addresses in memory of the sender, from which the receiver copies the data. Processes send
/// packets to each other through the fabric (fabric/node.hpp). The receiver does not trust a
/// packet: parse_packet() checks the format, and the engine checks the values.
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
        nak, // nak_code is the reason
        read_data,
        atomic_result, // the old value is in compare_add
    };
    enum class NakCode : std::uint8_t {
        none,
        rnr, // send again later; see mtu_or_rnr_timer
        invalid_request,
        remote_access,
        remote_operation,
        sequence_error,    // psn is the number that the responder expects
        resend_as_records, // no direct copy is possible: send the data in packets
    };
    static constexpr std::uint8_t has_immediate = 1;
    static constexpr std::uint8_t has_invalidate = 2;
    static constexpr std::uint8_t solicited = 4;
    static constexpr std::uint8_t ack_request = 8;
    /// The payload consists of segments: addresses from which the receiver copies the data. In a
    /// read request: the read response may contain segments.
    static constexpr std::uint8_t to_fetch = 16;
    static constexpr std::uint8_t has_grh = 32;
    /// A planned fault (an error that the test configuration injects) has corrupted the packet. The
    /// receiver drops it, like a packet with a wrong checksum.
    static constexpr std::uint8_t is_corrupt = 64;
    static constexpr std::uint8_t atomic_write = 128; // a write of 8 bytes, executed atomically

    std::uint32_t magic;
    Kind kind;
    std::uint8_t service; // the ibv_qp_type of the receiving queue pair
    std::uint8_t flags;
    NakCode nak_code;
    std::uint32_t destination; // a queue pair number
    std::uint32_t source;
    std::uint32_t psn;
    /// imm_data, or the rkey to invalidate, as in ibv_wc. In a NAK of an SRD queue pair: an
    /// efa::Status.
    std::uint32_t imm_or_key;
    std::uint64_t remote_address;
    std::uint32_t rkey;
    std::uint32_t qkey; // XRC: the number of the shared receive queue
    /// Length of the message in bytes.
    std::uint64_t length;
    /// Offset in bytes at which the data of this packet begins in the message.
    std::uint64_t offset;
    /// In an atomic request: the compare or add operand. In a datagram with a GRH: a
    /// GlobalRoute. In an SRD request: the number of the oldest request to the same queue pair that
    /// has not completed. In an SRD ACK: the offset in the message at which the acknowledged packet
    /// begins; the member "offset" is the offset at which that packet ends.
    std::uint64_t compare_add;
    /// In an atomic request: the swap operand. In an SRD packet: Srd::epoch of the requester, which
    /// changes when its queue pair goes from RTR to RTS.
    std::uint64_t swap;
    /// Number of data bytes in the packet. In a read request: number of requested bytes. In another
    /// packet with the flag to_fetch: number of segments (addresses of the data in memory of the
    /// sender).
    std::uint32_t payload;
    std::uint32_t unused;
    std::uint16_t source_lid;
    std::uint16_t destination_lid;
    std::uint8_t service_level;
    /// In an RNR NAK of a connected queue pair: its RNR timer. In requests and read responses of
    /// connected queue pairs: the path MTU of the queue pair that has sent the packet, as enum
    /// ibv_mtu.
    std::uint8_t mtu_or_rnr_timer;
    std::uint8_t device; // device index of the receiving queue pair, or device_by_address
    /// In an RDMA read or atomic request: the number of RDMA read and atomic requests, including
    /// this one, whose results the responder must keep.
    std::uint8_t reads_outstanding;
    ibv_gid source_gid;
    ibv_gid destination_gid;
};
static_assert(sizeof(PacketHeader) == 120 && alignof(PacketHeader) == 8);
inline constexpr std::uint32_t packet_magic = 0x73760002; // the lowest byte is the protocol version

/// The RoCE version, and the fields of a GRH that the requester takes from the address handle. The
/// GIDs are not included; they are members of PacketHeader. PacketHeader::compare_add has the
/// bytes.
struct GlobalRoute {
    std::uint32_t flow_label = 0; // the receiver uses the lower 20 bits
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint16_t is_roce_v2 = 0; // 0 or 1
};
static_assert(sizeof(GlobalRoute) == sizeof PacketHeader::compare_add);
/// Returns whether a message of @p length bytes is divided into the same packets with the path MTU
/// of the requester and with that of the responder. If not, a receiver would get packets whose
/// lengths are not valid for its path MTU.
[[nodiscard]] constexpr bool same_packets(unsigned mtu, unsigned other_mtu,
                                          std::uint64_t length) noexcept {
    const unsigned shorter = mtu < other_mtu ? mtu : other_mtu;
    return mtu == other_mtu || length <= std::uint64_t{128} << (shorter & 7U);
}

/// A shorter header for the most frequent packets of RC and UC queue pairs: an ACK, or a send or
/// RDMA write in one packet. The data follows the header. parse_packet() converts the header to a
/// PacketHeader: "length" and "payload" are both the length of the data, "magic" is packet_magic,
/// and "service" and "mtu_or_rnr_timer" come from form_and_service. The other members that are
/// missing here are 0.
struct ShortHeader {
    /// The bit ShortHeader::form, the path MTU (3 bits) and the ibv_qp_type (4 bits) of the queue
    /// pair that sends the packet.
    std::uint8_t form_and_service;
    PacketHeader::Kind kind;
    std::uint8_t flags;
    std::uint8_t device;
    std::uint32_t destination;
    std::uint32_t source;
    std::uint32_t psn;
    std::uint32_t imm_or_key;
    std::uint32_t rkey;
    /// Only in RDMA writes. The short headers of other packets end before this member.
    std::uint64_t remote_address;

    /// If this bit is set in the first byte of a packet, the packet has a short header. A packet
    /// with a long header begins with packet_magic, in which this bit is 0.
    static constexpr std::uint8_t form = 0x80;
    /// The flags that are permitted in a short header.
    static constexpr std::uint8_t known_flags = PacketHeader::has_immediate |
                                                PacketHeader::has_invalidate |
                                                PacketHeader::solicited | PacketHeader::ack_request;

    /// Returns the size in bytes of a short header for this kind of packet.
    [[nodiscard]] static constexpr std::size_t size(PacketHeader::Kind kind) noexcept {
        return kind == PacketHeader::Kind::write ? 32 : 24;
    }
    /// Returns the value of form_and_service for a queue pair. Only RC and UC queue pairs send
    /// short headers.
    [[nodiscard]] static constexpr std::uint8_t first_byte(ibv_qp_type type, ibv_mtu mtu) noexcept {
        return static_cast<std::uint8_t>(form | static_cast<unsigned>(mtu) << 4U |
                                         (static_cast<unsigned>(type) & 0xfU));
    }
    [[nodiscard]] unsigned service() const noexcept { return form_and_service & 0xfU; }
    [[nodiscard]] std::uint8_t mtu() const noexcept { return form_and_service >> 4U & 7U; }
};
static_assert(sizeof(ShortHeader) == 32 && offsetof(ShortHeader, remote_address) == 24);

/// Writes a short header to the start of the packet @p record. The number of written bytes depends
/// on the kind of packet.
inline void write_short_header(std::byte* record, const ShortHeader& header) noexcept {
    if (header.kind == PacketHeader::Kind::write) {
        std::memcpy(record, &header, ShortHeader::size(PacketHeader::Kind::write));
    } else {
        std::memcpy(record, &header, ShortHeader::size(PacketHeader::Kind::send));
    }
}

/// Reads the short header of the packet @p record. Returns false if the packet has no short header,
/// or an invalid one.
[[nodiscard]] inline bool read_short_header(std::span<const std::byte> record,
                                            ShortHeader& header) noexcept {
    constexpr std::size_t shortest = ShortHeader::size(PacketHeader::Kind::send);
    if (record.size() < shortest) {
        return false;
    }
    std::memcpy(&header, record.data(), shortest);
    if ((header.form_and_service & ShortHeader::form) == 0 ||
        (header.flags & ~ShortHeader::known_flags) != 0) {
        return false;
    }
    if (header.kind == PacketHeader::Kind::write) {
        if (record.size() < sizeof(ShortHeader)) {
            return false;
        }
        std::memcpy(&header.remote_address, record.data() + shortest, sizeof header.remote_address);
        return true;
    }
    header.remote_address = 0;
    return header.kind == PacketHeader::Kind::send ||
           (header.kind == PacketHeader::Kind::ack && record.size() == shortest);
}

struct Packet {
    PacketHeader header;
    std::span<const std::byte> bytes;
    std::span<const fabric::Segment> segments;
};

/// Parses the packet @p record. Returns false if its format is invalid. Copies the header; the data
/// and the segments of @p packet are references into @p record.
[[nodiscard]] bool parse_packet(std::span<const std::byte> record, Packet& packet) noexcept;

/// Maximum number of segments (addresses of data in memory of the sender) in a packet.
inline constexpr std::size_t max_segments = 32;

} // namespace softverbs
