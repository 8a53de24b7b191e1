// SPDX-License-Identifier: BSD-3-Clause
// Queries the service directory of another host for the process that listens for a connection
// request, and responds to such queries.
#include <cerrno>
#include <new>

#include "cm/network_exchange.hpp"

namespace softverbs::cm {

namespace {

constexpr unsigned max_slots = 1024;
/// If a query to the service directory of another host fails, it is sent again after this time.
constexpr std::uint64_t query_interval_ns = fabric::second_ns / 5;

struct Query {
    std::uint32_t magic;
    std::uint16_t port_space;
    std::uint16_t reserved;
    WireAddress address;
};

struct Answer {
    std::uint32_t magic;
    std::uint32_t reserved;
    std::uint64_t process; // 0: no process listens there
};

} // namespace

int NetworkExchange::request(const fabric::Route& route, const Message& message) noexcept {
    try {
        Search& search = searches_[message.sender_id];
        search = {route, message, 0};
        query(message.sender_id, search);
        set_timer();
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

void NetworkExchange::query(std::uint32_t communication_id, Search& search) {
    Link* const link = connect(search.route, fabric::service_directory_slot, Purpose::query);
    if (link == nullptr) {
        search.next = fabric::now_ns() + query_interval_ns;
        return;
    }
    search.next = 0;
    link->communication_id = communication_id;
    link->deadline = fabric::now_ns() + query_ns;
    Query query{};
    query.magic = Message::current_magic;
    query.port_space = search.message.port_space;
    query.address = search.message.destination;
    link->connection->send_structure(query);
}

void NetworkExchange::deliver_request(std::uint32_t communication_id, const Search& search,
                                      std::uint64_t process) {
    const Peer peer{gid_of(search.route.remote), process};
    Link* link = find(peer);
    if (link == nullptr) {
        const auto slot = static_cast<unsigned>(process & Peer::slot_mask);
        link = slot < max_slots
                   ? connect(search.route, fabric::first_cm_slot + slot, Purpose::messages)
                   : nullptr;
        if (link == nullptr) {
            requests_.no_service(search.message);
            return;
        }
        link->peer = peer;
        const Hello hello{Message::current_magic, sizeof(Message), process_};
        link->connection->send_structure(hello);
    }
    link->connection->send_structure(search.message);
    requests_.request_sent(communication_id, peer);
}

void NetworkExchange::answer_query(Link& link) {
    Query query{};
    if (!link.connection->take_structure(query)) {
        return;
    }
    if (query.magic != Message::current_magic) {
        link.connection->close();
        return;
    }
    Answer answer{};
    answer.magic = Message::current_magic;
    const auto peer = requests_.find_service(query.port_space, query.address);
    answer.process = peer ? peer->process : 0;
    link.connection->send_structure(answer);
}

void NetworkExchange::receive_answer(Link& link) {
    Answer answer{};
    if (!link.connection->take_structure(answer)) {
        return;
    }
    link.connection->close();
    const auto found = searches_.find(link.communication_id);
    if (found == searches_.end()) {
        return;
    }
    const Search search = found->second;
    searches_.erase(found);
    if (answer.magic != Message::current_magic || answer.process == 0) {
        requests_.no_service(search.message);
    } else {
        deliver_request(link.communication_id, search, answer.process);
    }
}

/// Called when the TCP connection of a query to another host has ended. If the connection request
/// that needs the query is still in searches_, no answer has arrived. If the host has refused the
/// connection or the handshake has failed, reports this to the manager. Otherwise, the host is
/// queried again later.
void NetworkExchange::query_ended(const Link& link) {
    const auto found = searches_.find(link.communication_id);
    if (found == searches_.end() || found->second.next != 0) {
        return;
    }
    switch (link.connection->state()) {
        case NetworkLink::State::refused:
            requests_.no_service(searches_.extract(found).mapped().message);
            break;
        case NetworkLink::State::unproven:
            searches_.erase(found);
            requests_.request_refused(link.communication_id);
            break;
        default:
            found->second.next = fabric::now_ns() + query_interval_ns;
            break;
    }
}

} // namespace softverbs::cm
