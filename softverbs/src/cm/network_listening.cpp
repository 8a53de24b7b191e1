// SPDX-License-Identifier: BSD-3-Clause
// Listens for TCP connections from other hosts, and accepts them.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "cm/network_exchange.hpp"
#include "fabric/epoll.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "fabric/tcp_socket.hpp"

namespace softverbs::cm {

namespace {

/// Maximum number of accepted TCP connections whose handshake is not complete, so that the peer has
/// not yet proven that it knows the secret. If another connection is accepted, the oldest of these
/// connections is closed.
constexpr std::size_t most_unproven = 64;

} // namespace

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
    // Maximum number of TCP connections that one call of this function accepts. epoll_wait(2)
    // reports the remaining connections again.
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

} // namespace softverbs::cm
