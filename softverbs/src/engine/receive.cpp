// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <utility>

#include "engine/addressing.hpp"
#include "engine/implementation.hpp"
#include "objects/multicast.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Maximum length in bytes of a response packet: a read response with as much data as fits into a
/// packet.
constexpr std::size_t longest_response = sizeof(PacketHeader) + record_payload;
/// Maximum length of a message in the InfiniBand specification, in bytes.
constexpr std::uint64_t longest_message = std::uint64_t{1} << 31U;

bool is_request(PacketHeader::Kind kind) noexcept {
    return kind <= PacketHeader::Kind::fetch_add;
}

bool port_is_up(Qp& qp) {
    const Port* const port = device_of(qp.qp_base).port(qp.attributes.port_num);
    return port != nullptr && port->attributes.state == IBV_PORT_ACTIVE;
}

} // namespace

bool Engine::Implementation::on_request(fabric::Connection& from,
                                        std::span<const std::byte> record) {
    // Do not process the request now if the ring for responses is full, because the request may
    // need a response.
    if (!from.has_room(fabric::Lane::responses, longest_response)) {
        return false;
    }
    return receive_short(&from, record) || receive(&from, fabric::Lane::requests, record);
}

void Engine::Implementation::on_response(fabric::Connection& from,
                                         std::span<const std::byte> record) {
    if (!receive_short_ack(&from, record) && !receive(&from, fabric::Lane::responses, record)) {
        set_aside(&from, fabric::Lane::responses, record);
    }
}

void Engine::Implementation::on_room(fabric::Connection& to) {
    std::vector<Qp*> waiting;
    waiting.reserve(stalled.size()); // so that push_back() below does not throw
    std::swap(waiting, stalled);
    for (Qp* const qp : waiting) {
        // In an earlier iteration of this loop, run() may have completed the requests of this queue
        // pair with an error. The queue pair then no longer waits for room in the ring, so skip it.
        if (!qp->requester.stalled) {
            continue;
        }
        if (qp->requester.connection == &to) {
            qp->requester.stalled = false;
            run(*qp);
        } else {
            stalled.push_back(qp);
        }
    }
}

void Engine::Implementation::on_closed(fabric::Connection& connection) {
    peers.erase(&connection);
    std::erase(granted, &connection);
    if (last_peer == &connection) {
        last_peer = nullptr;
    }
    std::erase_if(delayed, [&](const Delayed& late) { return late.to == &connection; });
    std::erase_if(set_asides, [&](const SetAside& one) { return one.from == &connection; });
    // Remove the connection from all queue pairs before run_all(), which may throw.
    for (Qp* const qp : process().qps.all()) {
        if (qp == nullptr) {
            continue;
        }
        if (qp->responder.ack_connection == &connection) {
            qp->responder.ack_pending = false;
            qp->responder.ack_connection = nullptr;
        }
        if (qp->responder.copied_from == &connection) {
            qp->responder.copied = 0;
            qp->responder.copied_from = nullptr;
        }
        if (qp->requester.connection == &connection) {
            disconnect(*qp);
            if (std::exchange(qp->requester.stalled, false)) {
                std::erase(stalled, qp);
            }
        }
        if (qp->srd != nullptr) {
            disconnect_srd(*qp, connection);
        }
    }
    run_all();
}

void Engine::Implementation::on_shared(fabric::Connection& to, std::uint32_t share, int error) {
    const auto known = peers[&to].shares.find(share);
    if (known != peers[&to].shares.end()) {
        known->second = error == 0 ? Peer::Share::ready : Peer::Share::refused;
    }
}

void Engine::Implementation::drain_local() {
    const DrainScope scope(draining);
    while (local_first != local_end) {
        // Move the packet out of the list "local", because receive() may add packets to this list.
        // Move the packet back after the call, so that its buffer is reused.
        const std::size_t index = local_first++;
        Local current = std::move(local[index]);
        if (current.lane != fabric::Lane::responses ||
            !receive_short_ack(nullptr, current.record)) {
            deliver_local(current.lane, current.record);
        }
        local[index] = std::move(current);
        if (local_first == local_end) {
            local_first = local_end = 0;
        }
    }
}

bool Engine::Implementation::receive(fabric::Connection* from, fabric::Lane lane,
                                     std::span<const std::byte> record) {
    Packet packet{};
    if (!parse_packet(record, packet) ||
        is_request(packet.header.kind) != (lane == fabric::Lane::requests)) {
        return true;
    }
    const PacketHeader& header = packet.header;
    if (header.length > longest_message) {
        return true;
    }
    if ((header.flags & PacketHeader::is_corrupt) != 0) {
        ++process().counters.corrupt;
        return true;
    }
    // Drop a packet from another host if the source GID in its GRH is not the GID of that host.
    if (from != nullptr && from->between_hosts() && (header.flags & PacketHeader::has_grh) != 0 &&
        std::memcmp(&header.source_gid, &from->route().remote, sizeof header.source_gid) != 0) {
        return true;
    }
    // The slot of the process that has sent the packet. The packet is dropped if the upper bits of
    // its source queue pair number are not equal to this slot.
    const unsigned sender = from == nullptr ? slot : from->slot();
    if (header.destination == multicast_qp_number) [[unlikely]] {
        if (slot_of(header.source) == sender) {
            receive_multicast(from, packet);
        }
        return true;
    }
    Qp* const qp = process().qps.find(header.destination);
    if (header.service == IBV_QPT_DRIVER && lane == fabric::Lane::requests &&
        slot_of(header.source) == sender && (qp == nullptr || qp->type() != IBV_QPT_DRIVER)) {
        reject_srd_request(from, packet);
        return true;
    }
    if (qp == nullptr || slot_of(header.source) != sender || header.service != qp->type() ||
        !is_addressed_to(*qp, from, header.device) || !port_is_up(*qp)) {
        return true;
    }
    const bool complete = lane == fabric::Lane::requests ? handle_request(*qp, from, packet)
                                                         : handle_response(*qp, from, packet);
    if (complete) {
        ++process().counters.received;
    }
    return complete;
}

} // namespace softverbs
