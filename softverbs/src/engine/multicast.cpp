// SPDX-License-Identifier: BSD-3-Clause
#include "objects/multicast.hpp"

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

#include "engine/requester.hpp"
#include "fabric/uncancellable.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Returns the slots of the other processes that have a socket file <slot>.sock in the rendezvous
/// directory.
std::vector<unsigned> other_processes(const fabric::Node& node) {
    const fabric::NoCancellation not_cancelled;
    std::vector<unsigned> slots;
    std::error_code error;
    // Use increment(), which stores an error in its argument. operator++ would throw an exception.
    for (std::filesystem::directory_iterator entry(node.rendezvous().path(), error), end;
         !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        unsigned slot = 0;
        const auto [rest, failed] = std::from_chars(name.data(), name.data() + name.size(), slot);
        if (failed == std::errc() && std::string_view(rest) == ".sock" && slot != node.slot()) {
            slots.push_back(slot);
        }
    }
    return slots;
}

} // namespace

bool OutboundRequest::multicast(const EntryList& entries) {
    // Send the datagram to this process and then to all others. A process that has ended, or whose
    // ring is full, does not receive the datagram.
    to_ = nullptr;
    if (!send_fragment(entries, request_.length, true)) {
        return false;
    }
    for (const unsigned slot : other_processes(*engine_.node)) {
        to_ = engine_.node->connect(slot);
        if (to_ != nullptr) {
            engine_.peers.try_emplace(to_);
            static_cast<void>(send_fragment(entries, request_.length, true));
        }
    }
    to_ = nullptr;
    return true;
}

void Engine::Implementation::receive_multicast(fabric::Connection* from, const Packet& packet) {
    const PacketHeader& header = packet.header;
    if (header.kind != PacketHeader::Kind::send || header.service != IBV_QPT_UD ||
        (header.flags & PacketHeader::has_grh) == 0) {
        return;
    }
    for (Qp* const member : multicast_members(header.destination_gid)) {
        const Port* const port = device_of(member->qp_base).port(member->attributes.port_num);
        if (port != nullptr && port->attributes.state == IBV_PORT_ACTIVE) {
            ++process().counters.received;
            static_cast<void>(handle_request(*member, from, packet));
        }
    }
}

} // namespace softverbs
