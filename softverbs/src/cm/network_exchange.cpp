// SPDX-License-Identifier: BSD-3-Clause
#include "cm/network_exchange.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <span>
#include <system_error>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/epoll.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "fabric/tcp_socket.hpp"

namespace softverbs::cm {

namespace {

constexpr unsigned max_slots = 1024;
/// Time limit for the response to a query for a listening process. After this time, the query is
/// sent again. SO_REUSEPORT may then select another process of the other host to respond.
constexpr std::uint64_t query_ns = 3 * fabric::second_ns;
/// Time to wait after a failed query before the next query is sent.
constexpr std::uint64_t query_interval_ns = fabric::second_ns / 5;
/// Maximum number of accepted connections whose handshake is not complete, so the peer has not
/// proven the secret. If another connection is accepted, the oldest such connection is closed.
constexpr std::size_t most_unproven = 64;
/// Maximum number of queued bytes for a peer that does not receive them. Further messages are lost,
/// and their senders get a timeout.
constexpr std::size_t most_waiting = 4096 * sizeof(Message);

/// The first structure that each process sends after the handshake, if the connection is for
/// messages of the connection manager.
struct Hello {
    std::uint32_t magic;
    std::uint32_t message_size;
    std::uint64_t process;
};

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

template <class Structure>
std::span<const std::byte> bytes_of(const Structure& structure) noexcept {
    return std::as_bytes(std::span(&structure, 1));
}
template <class Structure>
bool take(NetworkLink& link, Structure& structure) {
    return link.take(std::as_writable_bytes(std::span(&structure, 1)));
}

} // namespace

NetworkExchange::NetworkExchange(fabric::NetworkSettings settings, Requests& requests)
    : settings_(std::move(settings)),
      requests_(requests),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (!epoll_ || !timer_ || !fabric::watch(epoll_.get(), timer_.get())) {
        fabric::throw_error(errno, "cannot watch a descriptor with epoll");
    }
}

void NetworkExchange::abandon() noexcept {
    links_.clear();
    listeners_.clear();
    spare_.close();
    timer_.reset();
    epoll_.reset();
}

// Listening.

fabric::UniqueFd NetworkExchange::listening_socket(const fabric::HostAddress& address,
                                                   unsigned slot, bool shared, int& error) const {
    fabric::UniqueFd socket = fabric::tcp_socket(address);
    const auto port = static_cast<std::uint16_t>(settings_.first_port + slot);
    if (!socket || !fabric::listen_at(socket.get(), address, port, shared)) {
        error = errno;
        socket.reset();
    }
    return socket;
}

void NetworkExchange::watch(const Listener& listener) const {
    if (!fabric::watch(epoll_.get(), listener.socket.get())) {
        fabric::throw_error(errno, "cannot watch a descriptor with epoll");
    }
}

bool NetworkExchange::listen(unsigned slot) {
    std::vector<Listener> made;
    for (const fabric::HostAddress& address : settings_.addresses) {
        int error = 0;
        fabric::UniqueFd socket =
            listening_socket(address, fabric::first_cm_slot + slot, false, error);
        if (error == EADDRINUSE) {
            return false;
        }
        if (!socket) {
            fabric::throw_error(error, "rdma_cm cannot listen at " + fabric::to_string(address) +
                                           "; set SOFTVERBS_ADDRESS to addresses of this host");
        }
        made.push_back({address, std::move(socket), Purpose::messages});
    }
    for (const Listener& listener : made) {
        watch(listener);
    }
    listeners_ = std::move(made);
    slot_ = fabric::first_cm_slot + slot;
    return true;
}

int NetworkExchange::serve_directory() {
    if (serves_directory_) {
        return 0;
    }
    try {
        std::vector<Listener> made;
        for (const fabric::HostAddress& address : settings_.addresses) {
            int error = 0;
            fabric::UniqueFd socket =
                listening_socket(address, fabric::service_directory_slot, true, error);
            if (!socket) {
                fabric::report(
                    "rdma_cm cannot listen on port " +
                    std::to_string(settings_.first_port + fabric::service_directory_slot) + " of " +
                    fabric::to_string(address) +
                    ", because another user or program uses it; set another SOFTVERBS_PORT on all "
                    "hosts");
                return error;
            }
            made.push_back({address, std::move(socket), Purpose::answer});
        }
        listeners_.reserve(listeners_.size() + made.size());
        for (Listener& listener : made) {
            watch(listener);
        }
        std::ranges::move(made, std::back_inserter(listeners_));
        serves_directory_ = true;
        return 0;
    } catch (const std::system_error& error) {
        return error.code().value();
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

void NetworkExchange::accept_all(const Listener& listener) {
    const auto unproven = [](const auto& link) {
        return link->connection->state() == NetworkLink::State::handshake && link->deadline != 0 &&
               link->purpose != Purpose::query;
    };
    // Maximum number of connections that one call accepts. The epoll reports the remaining
    // connections again.
    constexpr int most_accepted = 64;
    for (int count = 0; count < most_accepted; ++count) {
        sockaddr_storage name{};
        socklen_t length = sizeof name;
        fabric::UniqueFd socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&name),
                                          &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (spare_.reject(listener.socket.get())) {
                continue;
            }
            return;
        }
        const auto peer = fabric::host_of(reinterpret_cast<const sockaddr&>(name));
        if (!peer) {
            continue;
        }
        if (std::ranges::count_if(links_, unproven) >= static_cast<std::ptrdiff_t>(most_unproven)) {
            (*std::ranges::find_if(links_, unproven))->connection->close();
        }
        fabric::set_connection_options(socket.get());
        const fabric::Route route{listener.address, *peer};
        const unsigned slot =
            listener.purpose == Purpose::answer ? fabric::service_directory_slot : slot_;
        Link* const link =
            add(std::move(socket), route, listener.purpose,
                std::make_unique<fabric::TcpHandshake>(fabric::TcpHandshake::Side::acceptor,
                                                       settings_.secret, route, slot));
        if (link != nullptr) {
            link->peer.host = gid_of(*peer);
            link->deadline = fabric::now_ns() + query_ns;
        }
    }
}

// Connecting.

NetworkExchange::Link* NetworkExchange::find(const Peer& peer) noexcept {
    const auto found = std::ranges::find_if(links_, [&peer](const auto& link) {
        return link->purpose == Purpose::messages && link->peer == peer &&
               link->connection->usable();
    });
    return found != links_.end() ? found->get() : nullptr;
}

NetworkExchange::Link* NetworkExchange::add(fabric::UniqueFd socket, const fabric::Route& route,
                                            Purpose purpose,
                                            std::unique_ptr<fabric::TcpHandshake> handshake) {
    try {
        auto link = std::make_unique<Link>();
        link->connection = std::make_unique<NetworkLink>(epoll_.get(), std::move(socket), route,
                                                         std::move(handshake));
        link->purpose = purpose;
        links_.push_back(std::move(link));
        return links_.back().get();
    } catch (const std::system_error&) {
        return nullptr; // The socket cannot be watched.
    }
}

NetworkExchange::Link* NetworkExchange::connect(const fabric::Route& route, unsigned slot,
                                                Purpose purpose) {
    fabric::UniqueFd socket = fabric::tcp_socket(route.remote);
    const fabric::SocketAddress from(route.local, 0);
    const fabric::SocketAddress to(route.remote,
                                   static_cast<std::uint16_t>(settings_.first_port + slot));
    if (!socket) {
        return nullptr;
    }
    fabric::set_connection_options(socket.get());
    if (::bind(socket.get(), from.get(), from.length) != 0 ||
        (::connect(socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS)) {
        return nullptr;
    }
    return add(std::move(socket), route, purpose,
               std::make_unique<fabric::TcpHandshake>(fabric::TcpHandshake::Side::connector,
                                                      settings_.secret, route, slot_, slot));
}

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
    link->connection->send(bytes_of(query));
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
        link->connection->send(bytes_of(hello));
    }
    link->connection->send(bytes_of(search.message));
    requests_.request_sent(communication_id, peer);
}

int NetworkExchange::send(const Peer& to, const Message& message) noexcept {
    Link* const link = find(to);
    if (link == nullptr) {
        return ENOENT;
    }
    try {
        if (link->connection->waiting() < most_waiting) {
            link->connection->send(bytes_of(message));
        }
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

// Receiving.

void NetworkExchange::answer_query(Link& link) {
    Query query{};
    if (!take(*link.connection, query)) {
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
    link.connection->send(bytes_of(answer));
}

void NetworkExchange::receive_answer(Link& link) {
    Answer answer{};
    if (!take(*link.connection, answer)) {
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

void NetworkExchange::receive_messages(Link& link, Receiver& receiver) {
    while (link.connection->usable()) {
        if (!link.greeted) {
            Hello hello{};
            if (!take(*link.connection, hello)) {
                return;
            }
            const bool connector = link.peer.process != 0;
            if (hello.magic != Message::current_magic || hello.message_size != sizeof(Message) ||
                hello.process == 0 || (connector && hello.process != link.peer.process) ||
                fabric::first_cm_slot + (hello.process & Peer::slot_mask) !=
                    link.connection->peer_slot()) {
                link.connection->close();
                return;
            }
            link.greeted = true;
            link.peer.process = hello.process;
            if (!connector) {
                const Hello reply{Message::current_magic, sizeof(Message), process_};
                link.connection->send(bytes_of(reply));
            }
            continue;
        }
        Message message{};
        if (!take(*link.connection, message)) {
            return;
        }
        if (!is_valid(message)) {
            link.connection->close();
            return;
        }
        receiver.received(link.peer, message);
    }
}

void NetworkExchange::service(Link& link, Receiver& receiver) {
    link.connection->service();
    if (link.connection->state() != NetworkLink::State::open) {
        return;
    }
    switch (link.purpose) {
        case Purpose::query:
            receive_answer(link);
            break;
        case Purpose::answer:
            answer_query(link);
            break;
        case Purpose::messages:
            link.deadline = 0;
            receive_messages(link, receiver);
            break;
    }
}

/// Called when the connection of a query has ended. If the query was successful, the search was
/// removed before.
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

void NetworkExchange::remove_ended(Receiver& receiver) {
    std::vector<std::unique_ptr<Link>> ended;
    for (auto& link : links_) {
        if (!link->connection->usable()) {
            ended.push_back(std::move(link));
        }
    }
    std::erase(links_, nullptr);
    for (const auto& link : ended) {
        if (link->connection->state() == NetworkLink::State::unproven) {
            fabric::report(fabric::to_string(link->connection->route().remote) + ": " +
                           link->connection->failure());
        }
        if (link->purpose == Purpose::query) {
            query_ended(*link);
        } else if (link->purpose == Purpose::messages && link->peer.process != 0 &&
                   find(link->peer) == nullptr) {
            receiver.lost(link->peer);
        }
    }
}

void NetworkExchange::progress(Receiver& receiver) {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == timer_.get()) {
            std::uint64_t expirations = 0;
            static_cast<void>(::read(fd, &expirations, sizeof expirations));
            continue;
        }
        const auto listener = std::ranges::find_if(
            listeners_, [fd](const Listener& each) { return each.socket.get() == fd; });
        if (listener != listeners_.end()) {
            accept_all(*listener);
            continue;
        }
        const auto link = std::ranges::find_if(
            links_, [fd](const auto& each) { return each->connection->socket() == fd; });
        if (link != links_.end() && (*link)->connection->usable()) {
            // service() may add links to the list. This does not move the Link to which link
            // points.
            service(**link, receiver);
        }
    }
    run_timers(fabric::now_ns());
    remove_ended(receiver);
    set_timer();
}

// Timers.

void NetworkExchange::run_timers(std::uint64_t now) {
    for (const auto& link : links_) {
        if (link->deadline != 0 && link->deadline <= now) {
            link->connection->close();
        }
    }
    for (auto& [communication_id, search] : searches_) {
        if (search.next != 0 && search.next <= now) {
            query(communication_id, search);
        }
    }
}

void NetworkExchange::set_timer() noexcept {
    std::uint64_t earliest = 0;
    const auto consider = [&earliest](std::uint64_t when) {
        if (when != 0) {
            earliest = earliest == 0 ? when : std::min(earliest, when);
        }
    };
    for (const auto& link : links_) {
        consider(link->deadline);
    }
    for (const auto& [communication_id, search] : searches_) {
        consider(search.next);
    }
    fabric::set_timer(timer_.get(), earliest);
}

} // namespace softverbs::cm
