// SPDX-License-Identifier: BSD-3-Clause
#include "cm/local_exchange.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "fabric/epoll.hpp"
#include "fabric/random.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::cm {

namespace {

/// Maximum number of messages that one call of progress() receives from one process, so that the
/// messages of other processes are not delayed.
constexpr int messages_per_turn = 64;
/// Maximum number of messages that are queued for one process that does not receive them. Further
/// messages to that process are dropped, so the ids that wait for replies get a timeout.
constexpr std::size_t max_waiting = 4096;

/// The first message on a connection. The process that has initiated the connection sends it.
struct Hello {
    std::uint32_t magic;
    std::uint32_t message_size;
    std::uint64_t process;
};

std::string cm_directory() {
    std::string path = fabric::default_directory();
    // Create the rendezvous directory if it does not exist. Check that other users cannot enter it.
    const fabric::Rendezvous parent(path);
    return path + "/cm";
}

} // namespace

LocalExchange::LocalExchange(const std::function<bool(unsigned)>& is_usable)
    : rendezvous_(cm_directory()),
      slot_(rendezvous_, max_processes, is_usable),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    rendezvous_.sweep();
    if (!epoll_ || !fabric::watch(epoll_.get(), slot_.listener())) {
        fabric::throw_error(errno, "cannot watch a descriptor with epoll");
    }
    const auto random = fabric::random_number(static_cast<std::uint64_t>(::getpid()) << 20U);
    self_.process = (random & ~Peer::slot_mask) | slot_.number();
}

LocalExchange::~LocalExchange() = default;

bool LocalExchange::alive(unsigned slot) const {
    try {
        struct stat status {};
        const std::string name = std::to_string(slot) + ".lock";
        return ::fstatat(rendezvous_.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
               !rendezvous_.lock(slot, false);
    } catch (const std::system_error&) {
        return true; // The lock cannot be examined, so treat its process as alive.
    }
}

void LocalExchange::remove_files() const noexcept {
    if (slot_.mine()) {
        rendezvous_.remove(slot_.number());
    }
}

void LocalExchange::abandon() noexcept {
    for (auto& [fd, link] : links_) {
        link->socket.reset();
    }
    epoll_.reset();
    spare_.close();
    slot_.abandon();
    rendezvous_.close();
}

LocalExchange::Link* LocalExchange::find(const Peer& peer) noexcept {
    Link* first = nullptr;
    for (const auto& [fd, link] : links_) {
        if (link->peer == peer && !link->broken &&
            (first == nullptr || link->number < first->number)) {
            first = link.get();
        }
    }
    return first;
}

LocalExchange::Link* LocalExchange::add(fabric::UniqueFd socket, const Peer& peer) {
    const int fd = socket.get();
    auto link = std::make_unique<Link>();
    link->socket = std::move(socket);
    link->peer = peer;
    link->number = links_made_++;
    auto& place = links_[fd];
    if (!fabric::watch(epoll_.get(), fd)) {
        links_.erase(fd);
        return nullptr;
    }
    place = std::move(link);
    return place.get();
}

LocalExchange::Link* LocalExchange::connect(const Peer& to) {
    pid_t pid = 0;
    fabric::UniqueFd socket =
        fabric::dial(rendezvous_, static_cast<unsigned>(to.process & Peer::slot_mask), pid);
    if (!socket) {
        return nullptr;
    }
    const Hello hello{Message::current_magic, sizeof(Message), self_.process};
    if (::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof hello) {
        errno = ENOENT;
        return nullptr;
    }
    Link* const link = add(std::move(socket), to);
    if (link == nullptr) {
        errno = ENOMEM;
    }
    return link;
}

int LocalExchange::send(const Peer& to, const Message& message) noexcept {
    try {
        Link* link = find(to);
        if (link == nullptr) {
            link = connect(to);
        }
        if (link == nullptr) {
            return errno;
        }
        if (link->waiting.size() < max_waiting) {
            link->waiting.push_back(message);
        }
        flush(*link);
        return link->broken ? ENOENT : 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

void LocalExchange::flush(Link& link) noexcept {
    while (!link.waiting.empty()) {
        const ssize_t sent = ::send(link.socket.get(), &link.waiting.front(), sizeof(Message),
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent == static_cast<ssize_t>(sizeof(Message))) {
            link.waiting.pop_front();
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            break;
        } else if (errno != EINTR) {
            link.broken = true;
            link.waiting.clear();
        }
    }
    epoll_event event{};
    event.events = link.waiting.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    event.data.fd = link.socket.get();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.socket.get(), &event);
}

void LocalExchange::accept_all() {
    constexpr int most_accepted = 64;
    for (int count = 0; count < most_accepted; ++count) {
        fabric::UniqueFd socket(
            ::accept4(slot_.listener(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (spare_.reject(slot_.listener())) {
                continue;
            }
            return;
        }
        // Permit only processes of the same user. The permissions of the rendezvous directory
        // exclude other users, but a process of another user may have received a file descriptor of
        // the directory.
        if (fabric::peer_process(socket.get())) {
            static_cast<void>(add(std::move(socket), Peer{}));
        }
    }
}

void LocalExchange::receive(Link& link, Receiver& receiver) {
    for (int turn = 0; turn < messages_per_turn && !link.broken; ++turn) {
        if (link.peer.process == 0) {
            Hello hello{};
            const ssize_t size =
                ::recv(link.socket.get(), &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
            if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
                return;
            }
            // The first message must be a Hello of the same version of softverbs. Otherwise, close
            // the connection.
            link.broken = size != sizeof hello || hello.magic != Message::current_magic ||
                          hello.message_size != sizeof(Message) || hello.process == 0;
            link.peer.process = hello.process;
            continue;
        }
        Message message{};
        const ssize_t size =
            ::recv(link.socket.get(), &message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (size != static_cast<ssize_t>(sizeof message) || !is_valid(message)) {
            link.broken = true;
        } else {
            receiver.received(link.peer, message);
        }
    }
}

void LocalExchange::remove_broken(Receiver& receiver) {
    std::vector<Peer> lost;
    std::erase_if(links_, [&lost](const auto& entry) {
        if (entry.second->broken) {
            lost.push_back(entry.second->peer);
        }
        return entry.second->broken;
    });
    for (const Peer& peer : lost) {
        if (peer.process != 0) {
            std::erase_if(links_, [&peer](const auto& each) { return each.second->peer == peer; });
            receiver.lost(peer);
        }
    }
}

void LocalExchange::progress(Receiver& receiver) {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.fd == slot_.listener()) {
            accept_all();
            continue;
        }
        const auto found = links_.find(event.data.fd);
        if (found == links_.end()) {
            continue;
        }
        Link& link = *found->second;
        if ((event.events & EPOLLOUT) != 0) {
            flush(link);
        }
        if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
            receive(link, receiver);
        }
    }
    remove_broken(receiver);
}

} // namespace softverbs::cm
