// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <new>

#include "fabric/event_source.hpp"
#include "fabric/rendezvous.hpp"

namespace softverbs::fabric {
namespace {

/// Maximum number of connections that one call of Acceptor::accept() accepts. If more connections
/// are pending, epoll_wait(2) reports the listening socket again.
constexpr unsigned most_accepted = 64;
/// Maximum number of clients (other processes of this host) that have connected to this process but
/// have not sent their first message yet. If another client connects, this process closes the
/// connection of the oldest of these clients.
constexpr std::size_t most_clients = 64;

} // namespace

Acceptor::Acceptor(int listener, int epoll) : listener_(listener), epoll_(epoll) {}

void Acceptor::abandon() noexcept {
    clients_.clear();
    spare_.close();
}

void Acceptor::accept(const OnHello& on_hello) {
    for (unsigned count = 0; count < most_accepted; ++count) {
        UniqueFd socket(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (spare_.reject(listener_)) {
                continue;
            }
            return;
        }
        const auto pid = peer_process(socket.get());
        if (!pid) {
            continue;
        }
        Client client{std::move(socket), *pid};
        if (receive_hello(client, on_hello)) {
            continue;
        }
        if (clients_.size() >= most_clients) {
            drop(clients_.begin());
        }
        if (watch(epoll_, client.socket.get(), EventSource::client)) {
            clients_.push_back(std::move(client));
        }
    }
}

void Acceptor::read(int socket, const OnHello& on_hello) {
    const auto found =
        std::find_if(clients_.begin(), clients_.end(),
                     [socket](const Client& client) { return client.socket.get() == socket; });
    if (found != clients_.end() && receive_hello(*found, on_hello)) {
        drop(found);
    }
}

void Acceptor::drop(std::vector<Client>::iterator client) {
    if (client->socket) {
        stop_watching(epoll_, client->socket.get());
    }
    clients_.erase(client);
}

bool Acceptor::receive_hello(Client& client, const OnHello& on_hello) {
    ReceivedMessage received;
    switch (receive(client.socket.get(), received)) {
        case Arrival::nothing:
            return false;
        case Arrival::message:
            try {
                on_hello(client.socket, client.pid, received);
            } catch (const std::bad_alloc&) {
                // on_hello() could not allocate memory for the connection. The caller of
                // receive_hello() closes the socket, so that the other process detects the failure.
            }
            return true;
        case Arrival::closed:
        case Arrival::garbage:
            break;
    }
    return true;
}

} // namespace softverbs::fabric
