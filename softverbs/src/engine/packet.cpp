// SPDX-License-Identifier: BSD-3-Clause
#include "engine/packet.hpp"

#include <cstring>

namespace softverbs {

namespace {

void expand(const ShortHeader& from, std::span<const std::byte> record, Packet& packet) noexcept {
    packet.bytes = record.subspan(ShortHeader::size(from.kind));
    packet.segments = {};
    PacketHeader& header = packet.header;
    header = {};
    header.magic = packet_magic;
    header.kind = from.kind;
    header.service = static_cast<std::uint8_t>(from.service());
    header.flags = from.flags;
    header.destination = from.destination;
    header.source = from.source;
    header.psn = from.psn;
    header.imm_or_key = from.imm_or_key;
    header.remote_address = from.remote_address;
    header.rkey = from.rkey;
    header.length = packet.bytes.size();
    header.payload = static_cast<std::uint32_t>(packet.bytes.size());
    header.device = from.device;
    header.mtu_or_rnr_timer = from.mtu();
}

} // namespace

bool parse_packet(std::span<const std::byte> record, Packet& packet) noexcept {
    if (ShortHeader header{}; read_short_header(record, header)) {
        expand(header, record, packet);
        return true;
    }
    if (record.size() < sizeof(PacketHeader)) {
        return false;
    }
    // Copy the header before its check, because the sender could change the original in shared
    // memory after the check.
    std::memcpy(&packet.header, record.data(), sizeof(PacketHeader));
    const PacketHeader& header = packet.header;
    if (header.magic != packet_magic || header.kind > PacketHeader::Kind::atomic_result ||
        header.nak_code > PacketHeader::NakCode::resend_as_records ||
        header.offset > header.length) {
        return false;
    }
    const auto payload = record.subspan(sizeof(PacketHeader));
    packet.bytes = {};
    packet.segments = {};
    // In a read request, the member "payload" of the header is the number of requested bytes, and
    // no data follows the header.
    if (header.kind == PacketHeader::Kind::read) {
        return payload.empty() && header.payload <= header.length - header.offset;
    }
    if ((header.flags & PacketHeader::to_fetch) != 0) {
        if (header.payload > max_segments ||
            payload.size() != header.payload * sizeof(fabric::Segment) ||
            reinterpret_cast<std::uintptr_t>(payload.data()) % alignof(fabric::Segment) != 0) {
            return false;
        }
        packet.segments = {reinterpret_cast<const fabric::Segment*>(payload.data()),
                           header.payload};
        return true;
    }
    packet.bytes = payload;
    return payload.size() == header.payload && header.payload <= header.length - header.offset;
}

} // namespace softverbs
