// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "../mapping.hpp"
#include "../process.hpp"
#include "implementation.hpp"

namespace softverbs {

void Outgoing::set_segments(std::size_t number) {
    header.flags |= PacketHeader::to_fetch;
    header.payload = static_cast<std::uint32_t>(number);
    parts[1] = std::as_bytes(std::span(segments).first(number));
    count = 2;
}

bool Engine::Implementation::reach(std::uint32_t number, fabric::Connection*& connection) {
    const unsigned wanted = slot_of(number);
    if (wanted == slot) {
        connection = nullptr;
        return true;
    }
    if (connection == nullptr && node != nullptr) {
        connection = node->connect(wanted);
        if (connection != nullptr) {
            last_peer = connection;
            peers.try_emplace(connection);
        }
    }
    return connection != nullptr;
}

fabric::Sent Engine::Implementation::transmit(fabric::Connection* to, fabric::Lane lane,
                                              Outgoing& packet) {
    packet.header.magic = packet_magic;
    const Faults::PacketFault* const fault = process().faults.packet();
    ++process().counters.sent;
    if (fault == nullptr) [[likely]] {
        return put(to, lane, packet);
    }
    switch (fault->what) {
        case SOFTVERBS_PACKET_DROP:
            return fabric::Sent::sent;
        case SOFTVERBS_PACKET_DELAY:
            delay(to, lane, packet, fault->delay_ms);
            return fabric::Sent::sent;
        case SOFTVERBS_PACKET_DUPLICATE:
            static_cast<void>(put(to, lane, packet));
            return put(to, lane, packet);
        case SOFTVERBS_PACKET_CORRUPT: {
            // The right sum of everything, and then a bit that is not as it was.
            Packet whole{packet.header, {}, {}};
            whole.header.flags |= PacketHeader::has_checksum;
            std::vector<std::byte> payload;
            for (const auto& part : packet.all().subspan(1)) {
                payload.insert(payload.end(), part.begin(), part.end());
            }
            whole.bytes = payload;
            packet.header.flags |= PacketHeader::has_checksum;
            packet.header.checksum = checksum(whole) ^ 1;
            return put(to, lane, packet);
        }
    }
    return fabric::Sent::sent;
}

fabric::Sent Engine::Implementation::put(fabric::Connection* to, fabric::Lane lane,
                                         Outgoing& packet) {
    if (to != nullptr) {
        return to->send(lane, packet.all());
    }
    if (local_end == local.size()) {
        local.emplace_back();
    }
    Local& place = local[local_end++];
    place.lane = lane;
    place.record.clear();
    for (const auto& part : packet.all()) {
        place.record.insert(place.record.end(), part.begin(), part.end());
    }
    return fabric::Sent::sent;
}

void Engine::Implementation::delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet,
                                   unsigned milliseconds) {
    Delayed late{now_ns() + std::uint64_t{milliseconds} * 1'000'000, to, lane, {}};
    for (const auto& part : packet.all()) {
        late.record.insert(late.record.end(), part.begin(), part.end());
    }
    delayed.push_back(std::move(late));
    wake_agent_before(delayed.back().due);
}

std::size_t Engine::Implementation::describe(fabric::Connection* to,
                                             std::span<const Window> windows,
                                             std::span<fabric::Segment> segments) {
    std::size_t count = 0;
    for (const Window& window : windows) {
        if (window.data == nullptr) {
            return 0;
        }
        fabric::Segment& segment = segments[count++];
        segment = {reinterpret_cast<std::uint64_t>(window.data), window.length, 0, 0};
        if (to == nullptr) {
            continue;
        }
        // Memory that the other process can map costs it a copy and no system call.
        Shareable memory{};
        if (shareable(window, memory)) {
            const auto [share, is_new] =
                peers[to].shares.try_emplace(memory.id, Peer::Share::offered);
            if (is_new && to->share(memory.id, memory.fd, memory.length) != 0) {
                share->second = Peer::Share::refused;
            }
            if (share->second == Peer::Share::ready) {
                segment.address = memory.offset;
                segment.share = memory.id;
                continue;
            }
        }
        // What maps a device's memory is not memory of the process that others could read.
        const bool is_private = window.mr->mapping == nullptr || !window.mr->mapping->is_dmabuf;
        if (!is_private || to->pull_method() != fabric::PullMethod::process_vm) {
            return 0;
        }
    }
    return count;
}

} // namespace softverbs
