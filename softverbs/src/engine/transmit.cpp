// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <cstdio>

#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/uncancellable.hpp"
#include "objects/mapping.hpp"
#include "objects/process.hpp"

namespace softverbs {

void Outgoing::set_segments(std::size_t number) {
    header.flags |= PacketHeader::to_fetch;
    header.payload = static_cast<std::uint32_t>(number);
    parts[1] = std::as_bytes(std::span(segments).first(number));
    count = 2;
}

bool Engine::Implementation::reach(std::uint32_t number, const fabric::Route& route,
                                   fabric::Connection*& connection) {
    const unsigned wanted = slot_of(number);
    if (!route.remote && wanted == slot) {
        connection = nullptr;
        return true;
    }
    if (connection == nullptr && node != nullptr) {
        connection = route.remote ? node->connect(route, wanted) : node->connect(wanted);
        if (connection == nullptr && errno == ENOENT && !route.remote) {
            report_missing_process(number);
        }
        if (connection != nullptr) {
            if (!route.remote) {
                slots_seen.insert(wanted);
            }
            last_peer = connection;
            peers.try_emplace(connection);
        }
    }
    return connection != nullptr;
}

void Engine::Implementation::report_missing_process(std::uint32_t number) {
    // Print nothing if this process was connected to a process with this slot: that process has
    // ended, which is not an error of the user.
    if (missing_process_reported || slots_seen.contains(slot_of(number))) {
        return;
    }
    missing_process_reported = true;
    const fabric::NoCancellation not_cancelled;
    std::fprintf(stderr,
                 "softverbs: queue pair 0x%06x belongs to no process in the rendezvous directory "
                 "%s; if its process runs, start both with the same SOFTVERBS_DIR\n",
                 number, fabric::default_directory().c_str());
}

fabric::Sent Engine::Implementation::transmit(fabric::Connection* to, fabric::Lane lane,
                                              Outgoing& packet) {
    packet.header.magic = packet_magic;
    const Faults::PacketFault* const fault = process().faults.packet();
    ++process().counters.sent;
    if (fault == nullptr) [[likely]] {
        if (process().disorder.any()) [[unlikely]] {
            const std::uint64_t due = late_until(lane, packet.header.source);
            if (due != 0) {
                delay(to, lane, packet, due, packet.header.source);
                return fabric::Sent::sent;
            }
        }
        return put(to, lane, packet);
    }
    switch (fault->what) {
        case SOFTVERBS_PACKET_DROP:
            return fabric::Sent::sent;
        case SOFTVERBS_PACKET_DELAY:
            delay(to, lane, packet, fabric::now_ns() + std::uint64_t{fault->delay_ms} * 1'000'000);
            return fabric::Sent::sent;
        case SOFTVERBS_PACKET_DUPLICATE:
            static_cast<void>(put(to, lane, packet));
            return put(to, lane, packet);
        case SOFTVERBS_PACKET_CORRUPT:
            packet.header.flags |= PacketHeader::is_corrupt;
            return put(to, lane, packet);
    }
    return fabric::Sent::sent;
}

fabric::Sent Engine::Implementation::put(fabric::Connection* to, fabric::Lane lane,
                                         Outgoing& packet) {
    if (to != nullptr) {
        return to->send(lane, packet.all());
    }
    append_local(lane, packet.all());
    return fabric::Sent::sent;
}

void Engine::Implementation::append_local(
    fabric::Lane lane, std::span<const std::span<const std::byte>> parts) noexcept {
    try {
        if (local_end == local.size()) {
            local.emplace_back();
        }
        Local& place = local[local_end];
        place.lane = lane;
        place.record.clear();
        for (const auto& part : parts) {
            place.record.insert(place.record.end(), part.begin(), part.end());
        }
        ++local_end;
    } catch (const std::bad_alloc&) {
        run_later();
    }
}

void Engine::Implementation::delay(fabric::Connection* to, fabric::Lane lane, Outgoing& packet,
                                   std::uint64_t due, std::uint32_t source) {
    // If memory is exhausted below, an exception is thrown before the packet is queued. A request
    // is then sent again after run_later().
    Delayed late{due, to, lane, {}, source};
    std::vector<std::byte>& record = late.record;
    const auto add = [&record](std::span<const std::byte> bytes) {
        record.insert(record.end(), bytes.begin(), bytes.end());
    };
    // A read request contains no data and no addresses of data, even if it has the flag to_fetch.
    // Other packets with this flag contain addresses.
    if (to == nullptr && packet.header.kind != PacketHeader::Kind::read &&
        (packet.header.flags & PacketHeader::to_fetch) != 0) {
        // This packet will be sent later, because a planned fault or SOFTVERBS_DISORDER delays it.
        // Copy the data into the packet now, because the program may free the memory before the
        // packet is sent.
        const std::span segments = std::span(packet.segments).first(packet.header.payload);
        packet.header.flags &= static_cast<std::uint8_t>(~unsigned{PacketHeader::to_fetch});
        packet.header.payload = static_cast<std::uint32_t>(packet.header.length);
        add(packet.all().front());
        for (const fabric::Segment& segment : segments) {
            add({reinterpret_cast<const std::byte*>(segment.address), segment.length});
        }
    } else {
        for (const auto& part : packet.all()) {
            add(part);
        }
    }
    delayed.push_back(std::move(late));
    wake_agent_before(delayed.back().due);
}

bool Engine::Implementation::still_holds(std::span<const std::byte> record) {
    Packet packet{};
    if (!parse_packet(record, packet) || (packet.header.flags & PacketHeader::to_fetch) == 0) {
        return true;
    }
    const PacketHeader& header = packet.header;
    Qp* const qp = process().qps.find(header.source);
    if (qp == nullptr || (qp->state() != IBV_QPS_RTS && qp->state() != IBV_QPS_SQD)) {
        return false;
    }
    if (header.kind == PacketHeader::Kind::read_data) {
        Window window{};
        return open_remote(*qp, header.rkey, header.remote_address, header.length,
                           IBV_ACCESS_REMOTE_READ, window);
    }
    const std::uint64_t position = find_request(*qp, header.psn);
    return position != qp->sends.end() && in_flight(qp->sends[position]);
}

std::size_t Engine::Implementation::describe(fabric::Connection* to, fabric::Lane lane,
                                             std::span<const Window> windows,
                                             std::span<fabric::Segment> segments) {
    std::size_t count = 0;
    if (to != nullptr && to->between_hosts()) {
        return 0;
    }
    for (const Window& window : windows) {
        if (window.data == nullptr || is_unmapped(window)) {
            return 0;
        }
        fabric::Segment& segment = segments[count++];
        segment = {reinterpret_cast<std::uint64_t>(window.data), window.length, 0,
                   to == nullptr ? 0 : to->offer(lane)};
        if (to == nullptr) {
            continue;
        }
        // If possible, share the memory with the receiving process. That process then maps the
        // memory, and needs no system call to copy data from a memfd.
        const Mapping* const memory = window.mr->mapping;
        if (memory != nullptr) {
            const auto [share, is_new] =
                peers[to].shares.try_emplace(memory->id, Peer::Share::offered);
            if (is_new) {
                const int error = to->share(memory->id, memory->fd, memory->length);
                if (error == EAGAIN) {
                    // The file descriptor of the memory could not be sent to the other process now,
                    // because too many messages to that process are queued. Remove the entry, so
                    // that the next packet tries again.
                    peers[to].shares.erase(share);
                    return 0;
                }
                share->second = error == 0 ? Peer::Share::offered : Peer::Share::refused;
            }
            if (share->second == Peer::Share::ready) {
                segment.address = static_cast<std::uint64_t>(window.data - memory->data);
                segment.share = memory->id;
                continue;
            }
        }
        // Other processes cannot read the mapping of a dma-buf with process_vm_readv(2).
        const bool is_dmabuf = memory != nullptr && memory->is_dmabuf;
        if (is_dmabuf || to->pull_method() != fabric::PullMethod::process_vm) {
            return 0;
        }
    }
    return count;
}

void Engine::Implementation::withdraw_requests(Qp& qp) noexcept {
    const Requester& requester = qp.requester;
    if (requester.connection != nullptr && requester.connection->taken() < requester.offered) {
        requester.connection->withdraw(fabric::Lane::requests);
    }
}

} // namespace softverbs
