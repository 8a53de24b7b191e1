// SPDX-License-Identifier: BSD-3-Clause
// Finds the listener for a connection request, on this host or on another host.
#include <memory>

#include "cm/manager.hpp"

namespace softverbs::cm {

namespace {

/// How many times softverbs searches, every 20 ms, for a process that listens at the destination of
/// a connection request. Then the request fails. Servers such as perftest need this time: they call
/// rdma_listen() again for each connection. With a NIC, they do so before the next request arrives;
/// with softverbs, the request may arrive earlier.
constexpr unsigned service_lookups = 10;
constexpr std::uint64_t service_lookup_interval_ns = 20'000'000;

} // namespace

Id* Manager::find_listener(const Message& message) {
    const Address destination = unwire(message.destination, message.port_space);
    Id* best = nullptr;
    for (const auto& [handle, id] : ids_) {
        if (id->state == State::listening && id->source.port() == destination.port() &&
            id->service_space(id->source) == message.port_space &&
            accepts(id->source, id->family_only.value_or(false), destination) &&
            (best == nullptr || best->source.is_unspecified())) {
            best = id.get();
        }
    }
    return best;
}

void Manager::send_request(Id& id, const Message& request) {
    if (id.route.remote) {
        send_request_to_host(id, request);
        return;
    }
    const auto peer = registry_.find(request.port_space, id.destination);
    if (peer && exchange_.send(*peer, request) == 0) {
        request_sent(request.sender_id, *peer);
    } else {
        look_up_again(id, request);
    }
}

void Manager::look_up_again(Id& id, const Message& request) {
    if (++id.lookups < service_lookups) {
        id.unsent_request = std::make_unique<Message>(request);
        set_deadline(id, service_lookup_interval_ns);
        return;
    }
    // No process listens at the destination of the request. Raise the same event as if another host
    // had rejected the request.
    forget_communication_id(id);
    raise(id, id.datagram() ? make_event(EventType::unreachable, sidr::unsupported)
                            : rejected(reject::invalid_service_id, nullptr));
}

void Manager::send_request_to_host(Id& id, const Message& request) {
    const fabric::Route route{{id.route.sgid}, {id.route.dgid}};
    id.searching = true;
    set_deadline(id, max_attempts * timeout_ns(response_timeout_));
    if (exchange_.request(route, request) != 0) {
        id.searching = false;
        look_up_again(id, request);
    }
    wake(); // the thread waits for a later timer than that of the query
}

std::optional<Peer> Manager::find_service(std::uint16_t port_space, const WireAddress& address) {
    return registry_.find(port_space, unwire(address, port_space));
}

void Manager::request_sent(std::uint32_t communication_id, const Peer& peer) {
    if (Id* const id = find_connection(communication_id); id != nullptr) {
        id->searching = false;
        id->peer = peer;
        id->exchanged = id->datagram() ? Exchanged::sidr_req_sent : Exchanged::req_sent;
        set_deadline(*id, max_attempts * timeout_ns(response_timeout_));
    }
}

void Manager::no_service(const Message& request) {
    if (Id* const id = find_connection(request.sender_id); id != nullptr) {
        id->searching = false;
        clear_deadline(*id);
        look_up_again(*id, request);
    }
}

void Manager::request_refused(std::uint32_t communication_id) {
    if (Id* const id = find_connection(communication_id); id != nullptr) {
        id->searching = false;
        clear_deadline(*id);
        raise(*id, EventType::unreachable, -EACCES);
    }
}

} // namespace softverbs::cm
