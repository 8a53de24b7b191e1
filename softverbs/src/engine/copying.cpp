// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <utility>

#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "objects/process.hpp"

// A packet of a long message can contain the addresses of the data in memory of the sender, in
// place of the data. The receiver then copies the data from there (a direct copy), at most
// copy_step_bytes at a time, because it holds Process::lock during the copy.
//
// Until the data is copied completely, a request of another process stays in the ring, and other
// packets (responses, and packets of this process) are queued in set_asides. Before each step, the
// whole packet is checked again, because another thread may have changed the queue pair or the
// memory.

namespace softverbs {

Engine::Implementation::Copy Engine::Implementation::copy_step(const EntryList& to,
                                                               fabric::Connection* from,
                                                               fabric::Lane lane,
                                                               const Packet& packet,
                                                               std::uint64_t& done) {
    const auto incomplete = [this] {
        copying = true;
        // Wake the agent (background) thread, because it must continue the copy if the program does
        // not poll again.
        if (agent_state == Agent::asleep) {
            wake_agent_before(fabric::now_ns());
        }
        return Copy::incomplete;
    };
    if (copy_budget == 0) {
        return incomplete();
    }
    if (from == nullptr && !is_still_offered(packet)) {
        return Copy::withdrawn;
    }
    const std::uint64_t before = done;
    const int error = to.fetch(0, from, lane, packet.segments, done, copy_step_bytes);
    ++process().counters.direct_copies;
    if (error != 0) {
        return error == ESTALE ? Copy::withdrawn : Copy::failed;
    }
    copy_budget -= std::min(copy_budget, done - before);
    if (done >= packet.header.length) {
        return Copy::complete;
    }
    // If the copy is incomplete and this call has copied no bytes, the packet describes less data
    // than the length of the message: the sender has changed the packet in shared memory. Let the
    // copy fail.
    return done == before ? Copy::failed : incomplete();
}

bool Engine::Implementation::is_still_offered(const Packet& packet) {
    const PacketHeader& header = packet.header;
    Qp* const source = process().qps.find(header.source);
    if (source == nullptr || source->state() == IBV_QPS_RESET || source->state() == IBV_QPS_INIT ||
        source->state() == IBV_QPS_ERR) {
        return false;
    }
    const auto is_offered = [](const Window& window, const fabric::Segment& segment) {
        return reinterpret_cast<std::uint64_t>(window.data) == segment.address &&
               window.length == segment.length;
    };
    if (header.kind == PacketHeader::Kind::read_data) {
        Window window{};
        return packet.segments.size() == 1 &&
               open_remote(*source, header.rkey, header.remote_address, header.length,
                           IBV_ACCESS_REMOTE_READ, window) &&
               is_offered(window, packet.segments.front());
    }
    const std::uint64_t position = find_request(*source, header.psn);
    if (position == source->sends.end() || !in_flight(source->sends[position])) {
        return false;
    }
    EntryList entries;
    return entries.open(source->pd(), source->entries(position), header.length, false) &&
           std::ranges::equal(entries.windows(), packet.segments, is_offered);
}

void Engine::Implementation::set_aside(fabric::Connection* from, fabric::Lane lane,
                                       std::span<const std::byte> record) {
    Packet packet{};
    if (parse_packet(record, packet)) {
        set_asides.push_back({from,
                              lane,
                              {record.begin(), record.end()},
                              packet.header.source,
                              packet.header.destination});
    }
}

void Engine::Implementation::deliver_local(fabric::Lane lane, std::span<const std::byte> record) {
    if (must_wait(lane, record) || !receive(nullptr, lane, record)) {
        set_aside(nullptr, lane, record);
    }
}

bool Engine::Implementation::must_wait(fabric::Lane lane, std::span<const std::byte> record) const {
    Packet packet{};
    return !set_asides.empty() && parse_packet(record, packet) &&
           std::ranges::any_of(set_asides, [&](const SetAside& earlier) {
               return earlier.from == nullptr && earlier.lane == lane &&
                      earlier.destination == packet.header.destination;
           });
}

void Engine::Implementation::continue_copies() {
    if (set_asides.empty() || draining) {
        return;
    }
    copy_budget = copy_step_bytes;
    const DrainScope scope(draining);
    while (!set_asides.empty()) {
        SetAside current = std::move(set_asides.front());
        set_asides.pop_front();
        if (!receive(current.from, current.lane, current.record)) {
            set_asides.push_front(std::move(current));
            break;
        }
    }
}

bool Engine::Implementation::is_copying(const Qp& qp) const {
    return std::ranges::any_of(set_asides, [&](const SetAside& packet) {
        return (packet.from == nullptr && packet.source == qp.number()) ||
               packet.destination == qp.number();
    });
}

} // namespace softverbs
