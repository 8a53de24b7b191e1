// SPDX-License-Identifier: BSD-3-Clause
#include "cm/network_exchange.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/epoll.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "fabric/tcp_socket.hpp"

namespace softverbs::cm {

namespace {

/// Maximum number of bytes that are queued for one process that does not receive them. Further
/// messages to that process are dropped, so the ids that wait for replies get a timeout.
constexpr std::size_t most_waiting = 4096 * sizeof(Message);

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

// Functions that find and create connections, and that send messages

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

int NetworkExchange::send(const Peer& to, const Message& message) noexcept {
    Link* const link = find(to);
    if (link == nullptr) {
        return ENOENT;
    }
    try {
        if (link->connection->waiting() < most_waiting) {
            link->connection->send_structure(message);
        }
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

// Functions that receive messages and remove ended connections

void NetworkExchange::receive_messages(Link& link, Receiver& receiver) {
    while (link.connection->usable()) {
        if (!link.greeted) {
            Hello hello{};
            if (!link.connection->take_structure(hello)) {
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
                link.connection->send_structure(reply);
            }
            continue;
        }
        Message message{};
        if (!link.connection->take_structure(message)) {
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
            // service() may add elements to links_. This does not move the Link (a TCP connection)
            // that is passed to service(), because the elements are pointers.
            service(**link, receiver);
        }
    }
    run_timers(fabric::now_ns());
    remove_ended(receiver);
    set_timer();
}

// Functions for timers

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

std::uint64_t NetworkExchange::next_deadline() const noexcept {
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
    return earliest;
}

void NetworkExchange::set_timer() noexcept {
    fabric::set_timer(timer_.get(), next_deadline());
}

} // namespace softverbs::cm
