// SPDX-License-Identifier: BSD-3-Clause
#include "cm/exchange.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>

#include "cm/manager.hpp"
#include "fabric/clock.hpp"
#include "fabric/random.hpp"
#include "fabric/rendezvous.hpp"

namespace softverbs::cm {

namespace {

constexpr unsigned budget = 64;
/// Maximum number of messages that are queued for a process that does not receive them.
constexpr std::size_t max_waiting = 4096;
/// Time limit for the response to a query. Then the query is sent again on a new connection, on
/// which another process of that host may respond.
constexpr std::uint64_t query_ns = 3 * fabric::second_ns;
/// Time until the next query, if a connection for a query has failed.
constexpr std::uint64_t query_interval_ns = fabric::second_ns / 5;

/// A request on a connection to the directory of a host: which process listens at this address?
struct Query {
    std::uint32_t magic;
    std::uint32_t communication_id;
    std::uint16_t port_space;
    std::uint16_t reserved;
    WireAddress address;
};
/// The response.
struct Answer {
    std::uint32_t communication_id;
    std::uint32_t reserved;
    std::uint64_t process; // 0: no process listens there
};

/// Copies a record, which may be in shared memory, to @p structure. If it has another size, closes
/// the connection and returns false.
template <class Structure>
bool take(fabric::Connection& from, std::span<const std::byte> record, Structure& structure) {
    if (record.size() != sizeof structure) {
        from.close();
        return false;
    }
    std::memcpy(&structure, record.data(), sizeof structure);
    return true;
}

bool is_directory(const fabric::Connection& connection) noexcept {
    return connection.slot() == fabric::directory_slot;
}

fabric::NodeOptions options_for(const fabric::NetworkSettings& network) {
    fabric::NodeOptions options;
    options.directory = fabric::default_directory();
    const fabric::Rendezvous parent(options.directory); // checks or creates the directory
    options.directory += "/cm";
    options.ring_bytes[0] = std::size_t{16} * 1024;
    options.ring_bytes[1] = std::size_t{4} * 1024;
    options.reaches_memory = false;
    options.network = network;
    options.network.first_slot = fabric::first_cm_slot;
    return options;
}

} // namespace

Exchange::Exchange(const fabric::NetworkSettings& network, Manager& manager)
    : manager_(manager), node_(options_for(network)) {
    // The random number differs from that of an earlier process with the same slot, and is not 0.
    const auto random = fabric::random_number(static_cast<std::uint64_t>(::getpid()) << 20U);
    self_.process = (random & ~Peer::slot_mask) | node_.slot();
}

bool Exchange::alive(unsigned slot) const {
    try {
        struct stat status {};
        const std::string name = std::to_string(slot) + ".lock";
        return ::fstatat(node_.rendezvous().fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) ==
                   0 &&
               !node_.rendezvous().lock(slot, false);
    } catch (const std::system_error&) {
        return true; // The lock cannot be examined, so treat its process as alive.
    }
}

int Exchange::send(const Peer& to, const Message& message) noexcept {
    try {
        if (to.host == Gid{}) {
            const auto slot = static_cast<unsigned>(to.process & Peer::slot_mask);
            fabric::Connection* const connection = node_.connect(slot);
            return connection != nullptr ? post(*connection, to, message) : errno;
        }
        const bool sent = std::ranges::any_of(links_, [&](const auto& link) {
            return link.second.peer == to && post(*link.first, to, message) == 0;
        });
        return sent ? 0 : ENOENT;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

int Exchange::post(fabric::Connection& to, const Peer& peer, const Message& message) {
    Link& link = links_[&to];
    link.peer = peer;
    const fabric::Sent sent = link.waiting.empty() ? put(to, message) : fabric::Sent::full;
    if (sent == fabric::Sent::full && link.waiting.size() < max_waiting) {
        link.waiting.push_back(message);
    }
    return sent == fabric::Sent::closed ? ENOENT : 0;
}

fabric::Sent Exchange::put(fabric::Connection& to, const Message& message) const noexcept {
    const Envelope envelope{.process = self_.process, .message = message};
    const auto record = std::as_bytes(std::span(&envelope, 1));
    return to.send(fabric::Lane::requests, {&record, 1});
}

void Exchange::on_room(fabric::Connection& to) {
    const auto link = links_.find(&to);
    while (link != links_.end() && !link->second.waiting.empty() &&
           put(to, link->second.waiting.front()) != fabric::Sent::full) {
        link->second.waiting.pop_front();
    }
}

bool Exchange::on_request(fabric::Connection& from, std::span<const std::byte> record) {
    bool done = true;
    without_exceptions([&] {
        if (is_directory(from)) {
            done = answer(from, record);
        } else {
            receive(from, record);
        }
    });
    return done;
}

void Exchange::receive(fabric::Connection& from, std::span<const std::byte> record) {
    Envelope envelope{};
    if (!take(from, record, envelope)) {
        return;
    }
    if (envelope.process == 0 || (envelope.process & Peer::slot_mask) != from.slot() ||
        !is_valid(envelope.message)) {
        from.close();
        return;
    }
    const Peer peer{from.route().remote.bytes, envelope.process};
    links_[&from].peer = peer;
    manager_.received(peer, envelope.message);
}

bool Exchange::answer(fabric::Connection& from, std::span<const std::byte> record) {
    Query query{};
    if (!from.has_room(fabric::Lane::responses, sizeof(Answer))) {
        return false;
    }
    if (!take(from, record, query)) {
        return true;
    }
    if (query.magic != Message::current_magic) {
        from.close();
        return true;
    }
    const auto peer = manager_.find_service(query.port_space, query.address);
    const Answer answer{query.communication_id, 0, peer ? peer->process : 0};
    const auto response = std::as_bytes(std::span(&answer, 1));
    static_cast<void>(from.send(fabric::Lane::responses, {&response, 1}));
    return true;
}

void Exchange::on_response(fabric::Connection& from, std::span<const std::byte> record) {
    Answer answer{};
    if (!is_directory(from)) {
        from.close();
        return;
    }
    if (!take(from, record, answer)) {
        return;
    }
    const auto found = searches_.find(answer.communication_id);
    if (found == searches_.end() || found->second.asked != &from) {
        return;
    }
    const Search search = found->second;
    searches_.erase(found);
    without_exceptions([&] { deliver(answer.communication_id, search, answer.process); });
}

void Exchange::on_closed(fabric::Connection& connection) {
    if (is_directory(connection)) {
        without_exceptions([&] { query_ended(connection); });
        return;
    }
    if (const auto ended = links_.extract(&connection); !ended.empty()) {
        without_exceptions([&] { manager_.lost(ended.mapped().peer); });
    }
}

int Exchange::request(const fabric::Route& route, const Message& message) noexcept {
    try {
        Search& search = searches_[message.sender_id];
        search = {route, message};
        query(message.sender_id, search);
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

void Exchange::query(std::uint32_t communication_id, Search& search) noexcept {
    const Query query{Message::current_magic, communication_id, search.message.port_space, 0,
                      search.message.destination};
    const auto record = std::as_bytes(std::span(&query, 1));
    search.asked = node_.connect(search.route, fabric::directory_slot);
    if (search.asked != nullptr &&
        search.asked->send(fabric::Lane::requests, {&record, 1}) != fabric::Sent::sent) {
        search.asked = nullptr;
    }
    search.next = fabric::now_ns() + (search.asked != nullptr ? query_ns : query_interval_ns);
}

void Exchange::deliver(std::uint32_t communication_id, const Search& search,
                       std::uint64_t process) {
    const Peer peer{search.route.remote.bytes, process};
    const auto slot = static_cast<unsigned>(process & Peer::slot_mask);
    fabric::Connection* const to =
        process != 0 && slot < fabric::max_slots ? node_.connect(search.route, slot) : nullptr;
    if (to != nullptr && post(*to, peer, search.message) == 0) {
        manager_.request_sent(communication_id, peer);
    } else {
        manager_.no_service(search.message);
    }
}

void Exchange::query_ended(const fabric::Connection& connection) {
    const auto was_asked = [&](const auto& entry) { return entry.second.asked == &connection; };
    if (connection.error() != ECONNREFUSED && connection.error() != EACCES) {
        for (auto& [communication_id, search] : searches_) {
            if (search.asked == &connection) {
                search.asked = nullptr;
                search.next = fabric::now_ns() + query_interval_ns;
            }
        }
        return;
    }
    for (auto found = std::ranges::find_if(searches_, was_asked); found != searches_.end();
         found = std::ranges::find_if(searches_, was_asked)) {
        const auto ended = searches_.extract(found);
        if (connection.error() == ECONNREFUSED) { // no process of that host listens
            manager_.no_service(ended.mapped().message);
        } else {
            manager_.request_refused(ended.key());
        }
    }
}

bool Exchange::progress() {
    bool active = node_.service(*this);
    active = node_.progress(*this, budget) != 0 || active;
    const std::uint64_t now = fabric::now_ns();
    for (auto& [communication_id, search] : searches_) {
        if (search.next <= now) {
            if (search.asked != nullptr) {
                search.asked->close(); // another process may respond on a new connection
            }
            query(communication_id, search);
            active = true;
        }
    }
    return active;
}

std::uint64_t Exchange::next_deadline() const noexcept {
    std::uint64_t earliest = node_.next_deadline();
    for (const auto& [communication_id, search] : searches_) {
        earliest = fabric::earlier(earliest, search.next);
    }
    return earliest;
}

} // namespace softverbs::cm
