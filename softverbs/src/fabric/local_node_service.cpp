// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "fabric/local_node.hpp"

namespace softverbs::fabric {
namespace {

constexpr unsigned most_events = 32;
/// Limits what one call does: what is left makes the next wait() end at once.
constexpr unsigned most_rounds = 8;
constexpr unsigned most_accepted = 64;
/// Who connects and then says nothing is sent away when this many others do the same.
constexpr std::size_t most_guests = 64;

} // namespace

bool LocalNode::watch(int fd, Source source) noexcept {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag_of(source, fd);
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ||
           (errno == EEXIST && ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void LocalNode::service(Handler& handler) {
    std::array<epoll_event, most_events> events{};
    for (unsigned round = 0; round < most_rounds; ++round) {
        const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
        for (int event = 0; event < ready; ++event) {
            handle(events[static_cast<std::size_t>(event)].data.u64, handler);
        }
        if (ready < static_cast<int>(events.size())) {
            break;
        }
    }
    if (network_) {
        network_->acknowledge();
    }
    reap(handler);
}

void LocalNode::handle(std::uint64_t tag, Handler& handler) {
    const int fd = static_cast<int>(tag & 0xffffffffU);
    switch (static_cast<Source>(tag >> 32U)) {
        case Source::listener:
            accept_clients(handler);
            break;
        case Source::doorbell:
            answer_doorbell();
            break;
        case Source::client:
            read_client(fd, handler);
            break;
        case Source::network:
            break; // progress() follows
        case Source::link: {
            const auto found = std::find_if(links_.begin(), links_.end(), [fd](const auto& link) {
                return link->socket() == fd;
            });
            if (found != links_.end()) {
                (*found)->service(handler);
            }
            break;
        }
    }
}

void LocalNode::accept_clients(Handler& handler) {
    for (unsigned count = 0; count < most_accepted; ++count) {
        UniqueFd socket(
            ::accept4(slot_.listener(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if ((errno == EMFILE || errno == ENFILE) && reject_client()) {
                continue;
            }
            return;
        }
        const auto pid = peer_process(socket.get());
        if (!pid) {
            continue;
        }
        Client client{std::move(socket), *pid};
        if (greet(client, handler)) {
            continue;
        }
        if (clients_.size() >= most_guests) {
            drop_client(clients_.begin());
        }
        if (watch(client.socket.get(), Source::client)) {
            clients_.push_back(std::move(client));
        }
    }
}

bool LocalNode::reject_client() noexcept {
    // Left in the queue, it would end every wait() at once, and wait itself for an answer.
    if (!spare_) {
        return false;
    }
    spare_.reset();
    UniqueFd refused(::accept4(slot_.listener(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool done = static_cast<bool>(refused);
    refused.reset();
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return done;
}

void LocalNode::read_client(int socket, Handler& handler) {
    const auto found =
        std::find_if(clients_.begin(), clients_.end(),
                     [socket](const Client& client) { return client.socket.get() == socket; });
    if (found != clients_.end() && greet(*found, handler)) {
        drop_client(found);
    }
}

void LocalNode::drop_client(std::vector<Client>::iterator client) {
    if (client->socket) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->socket.get(), nullptr);
    }
    clients_.erase(client);
}

bool LocalNode::greet(Client& client, Handler& handler) {
    ReceivedMessage received;
    switch (receive(client.socket.get(), received)) {
        case Arrival::nothing:
            return false;
        case Arrival::message:
            try {
                admit(client, received, handler);
            } catch (const std::bad_alloc&) {
                // It finds the connection closed.
            }
            return true;
        case Arrival::closed:
        case Arrival::garbage:
            break;
    }
    return true;
}

bool LocalNode::owns_slot(pid_t pid, unsigned slot) const noexcept {
    // The process that listens in a slot holds the slot's lock. The kernel says which process that
    // is; the connection made for it is closed again at once.
    pid_t owner = 0;
    const UniqueFd socket = dial(rendezvous_, slot, owner);
    return socket && owner == pid;
}

void LocalNode::admit(Client& client, ReceivedMessage& received, Handler& handler) {
    const Message& hello = received.message;
    if (hello.kind != MessageKind::hello || hello.number >= slots_ ||
        !can_be_doorbell(received.descriptors[1]) || !owns_slot(client.pid, hello.number)) {
        return;
    }
    LinkMemory memory = LinkMemory::accept(received.descriptors[0].get(),
                                           {hello.ring_bytes[0], hello.ring_bytes[1]});
    const int number = client.socket.get();
    if (!memory || !watch(number, Source::link)) {
        return;
    }
    received.descriptors[0].reset();
    links_.push_back(std::make_unique<Link>(
        context_, std::move(client.socket), tag_of(Source::link, number), std::move(memory),
        Link::Side::acceptor, hello.number, client.pid, std::move(received.descriptors[1])));
    Link& link = *links_.back();
    link.welcome(hello);
    // More may have come with the hello.
    link.service(handler);
}

} // namespace softverbs::fabric
