// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_network.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <new>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/event_source.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

/// Maximum number of accepted connections whose peers have not proven yet that they know the secret
/// in SOFTVERBS_SECRET_FILE. If another peer connects, drop_unproven_peer() closes one of these
/// connections.
constexpr std::size_t most_unproven = 64;
constexpr unsigned most_accepted_peers = 64;
/// If the other host does not acknowledge sent data for this time, the kernel closes the
/// connection.
constexpr int user_timeout_ms = 15'000;

#ifndef TCP_RTO_MAX_MS // Linux 6.15
#define TCP_RTO_MAX_MS 44
#endif

void set_option(const UniqueFd& socket, int level, int option, int value) noexcept {
    ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

/// Creates a non-blocking TCP socket for the address family of @p address. On failure, returns an
/// empty UniqueFd and sets errno.
UniqueFd tcp_socket(const HostAddress& address) noexcept {
    const int family = is_ipv4(address) ? AF_INET : AF_INET6;
    UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (socket && family == AF_INET6) {
        set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    }
    return socket;
}

/// Binds a TCP socket to an address and a port, and listens on it. Returns false and sets errno on
/// failure.
/// @param shares_port  whether other processes of this user can listen on the same port
bool listen_at(const UniqueFd& socket, const HostAddress& address, std::uint16_t port,
               bool shares_port) noexcept {
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (shares_port) {
        set_option(socket, SOL_SOCKET, SO_REUSEPORT, 1);
    }
    const SocketAddress name(address, port);
    return ::bind(socket.get(), name.get(), name.length) == 0 &&
           ::listen(socket.get(), SOMAXCONN) == 0;
}

/// Sets the options of a TCP connection. Data is sent without delay. If the other host does not
/// respond, the connection fails after about 15 seconds. After an unplugged cable is plugged in
/// again, retransmission resumes within 1 second (Linux 6.15 and later).
void set_connection_options(const UniqueFd& socket) noexcept {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms);
    set_option(socket, IPPROTO_TCP, TCP_RTO_MAX_MS, 1000);
    // After a second without data from the other host, the kernel sends a probe every second, until
    // the other host acknowledges a probe. The connection fails after TCP_USER_TIMEOUT, not after
    // TCP_KEEPCNT probes.
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
}

} // namespace

TcpNetwork::TcpNetwork(NetworkSettings settings, NodeState& state)
    : settings_(std::move(settings)),
      state_(state),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "an epoll")),
      timer_(checked(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "a timer")) {
    if (!watch(epoll_.get(), timer_.get(), EventSource::network)) {
        throw_error(errno, "softverbs cannot add a descriptor to an epoll");
    }
}

TcpNetwork::~TcpNetwork() {
    for (const auto& link : links_) {
        link->shut_down();
    }
}

void TcpNetwork::abandon() noexcept {
    links_.clear();
    unproven_.clear();
    listeners_.clear();
    spare_.close();
    timer_.reset();
    epoll_.reset();
}

int TcpNetwork::add_listeners(unsigned slot, HostAddress& failed) {
    std::vector<Listener> added;
    for (const HostAddress& address : settings_.addresses) {
        UniqueFd socket = tcp_socket(address);
        if (!socket || !listen_at(socket, address, port(slot), slot == directory_slot)) {
            failed = address;
            return errno;
        }
        if (!watch(epoll_.get(), socket.get(), EventSource::network)) {
            throw_error(errno, "softverbs cannot add a descriptor to an epoll");
        }
        added.push_back({address, std::move(socket), slot});
    }
    listeners_.reserve(listeners_.size() + added.size());
    std::ranges::move(added, std::back_inserter(listeners_));
    return 0;
}

bool TcpNetwork::listen(unsigned slot) {
    HostAddress failed;
    const int error = add_listeners(slot, failed);
    if (error == EADDRINUSE) {
        return false;
    }
    if (error != 0) {
        throw_error(
            error,
            "softverbs cannot listen on port " + std::to_string(port(slot)) + " of " +
                to_string(failed) +
                (error == EADDRNOTAVAIL ? "; set SOFTVERBS_ADDRESS to an address of this host"
                 : error == EMFILE || error == ENFILE
                     ? "; raise ulimit -n"
                     : "; set SOFTVERBS_PORT to the first of 2049 ports that are free "
                       "on all hosts"));
    }
    slot_ = slot;
    return true;
}

int TcpNetwork::serve_directory() {
    HostAddress failed;
    if (serves_directory_) {
        return 0;
    }
    if (const int error = add_listeners(directory_slot, failed); error != 0) {
        report("rdma_cm cannot listen on port " + std::to_string(port(directory_slot)) + " of " +
               to_string(failed) +
               ", because another user or program uses it; set another SOFTVERBS_PORT on all "
               "hosts");
        return error;
    }
    serves_directory_ = true;
    return 0;
}

Connection* TcpNetwork::connect(const Route& route, unsigned slot) {
    for (const auto& link : links_) {
        if (link->slot() == slot && link->open() && link->route() == route) {
            return link.get();
        }
    }
    UniqueFd socket = tcp_socket(route.remote);
    if (!socket) {
        errno = errno == EMFILE || errno == ENFILE ? EMFILE : ENOMEM;
        if (errno == EMFILE) {
            report(
                "this process cannot connect to another host, because it has reached its limit of "
                "open files; raise ulimit -n");
            errno = EMFILE;
        }
        return nullptr;
    }
    set_connection_options(socket);
    const SocketAddress from(route.local, 0);
    const SocketAddress to(route.remote, port(slot));
    if (::bind(socket.get(), from.get(), from.length) != 0 ||
        (::connect(socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS)) {
        errno = errno == EADDRINUSE ? EMFILE : ENETUNREACH;
        return nullptr;
    }
    if (!watch(epoll_.get(), socket.get(), EventSource::network)) {
        errno = ENOMEM;
        return nullptr;
    }
    auto handshake =
        std::make_unique<TcpHandshake>(TcpHandshake::Side::connector, settings_.secret, route,
                                       settings_.first_slot + slot_, settings_.first_slot + slot);
    links_.push_back(std::make_unique<TcpLink>(state_, epoll_.get(), std::move(socket), route, slot,
                                               std::move(handshake)));
    set_timer();
    return links_.back().get();
}

unsigned TcpNetwork::progress(Handler& handler, unsigned budget) {
    const NoCancellation not_cancelled;
    constexpr int most_events = 32;
    std::array<epoll_event, most_events> events{};
    unsigned done = 0;
    // Deliver requests and responses that are already in buffers of this process, because epoll
    // does not report them.
    // NOLINTNEXTLINE(modernize-loop-convert): callbacks may add connections.
    for (std::size_t at = 0; at < links_.size(); ++at) {
        if (links_[at]->pending()) {
            done += links_[at]->progress(handler, budget - std::min(budget, done));
        }
    }
    const int ready = ::epoll_wait(epoll_.get(), events.data(), most_events, 0);
    for (int event = 0; event < ready; ++event) {
        handle(descriptor_of(events[static_cast<std::size_t>(event)].data.u64), handler, budget,
               done);
    }
    if (clock_is_stopped()) [[unlikely]] {
        end_overdue_handshakes();
    }
    reap(handler);
    return done;
}

void TcpNetwork::handle(int socket, Handler& handler, unsigned budget, unsigned& done) {
    const auto has_socket = [socket](const auto& entry) { return entry->socket() == socket; };
    if (const auto link = std::ranges::find_if(links_, has_socket); link != links_.end()) {
        TcpLink& found = **link;
        found.service();
        done += found.progress(handler, budget - std::min(budget, done));
        return;
    }
    if (socket == timer_.get()) {
        end_overdue_handshakes();
        return;
    }
    for (const Listener& listener : listeners_) {
        if (listener.socket.get() == socket) {
            accept_peers(listener);
            return;
        }
    }
    const auto peer = std::ranges::find_if(
        unproven_, [socket](const auto& it) { return it.socket.get() == socket; });
    if (peer != unproven_.end()) {
        continue_handshake(static_cast<std::size_t>(peer - unproven_.begin()));
    }
}

void TcpNetwork::accept_peers(const Listener& listener) {
    for (unsigned count = 0; count < most_accepted_peers; ++count) {
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        UniqueFd socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&address),
                                  &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (spare_.reject(listener.socket.get())) {
                // The limit of open file descriptors may have been reached: free one.
                drop_unproven_peer();
                continue;
            }
            return;
        }
        const auto peer = host_of(reinterpret_cast<const sockaddr&>(address));
        if (!peer) {
            continue;
        }
        set_connection_options(socket);
        if (unproven_.size() >= most_unproven) {
            drop_unproven_peer();
        }
        const Route route{listener.address, *peer};
        auto handshake =
            std::make_unique<TcpHandshake>(TcpHandshake::Side::acceptor, settings_.secret, route,
                                           settings_.first_slot + listener.slot);
        if (!watch(epoll_.get(), socket.get(), EventSource::network)) {
            continue;
        }
        unproven_.push_back({std::move(socket), route, listener.slot, std::move(handshake),
                             now_ns() + TcpHandshake::time_limit_ns});
        set_timer();
    }
}

void TcpNetwork::continue_handshake(std::size_t position) {
    UnprovenPeer& peer = unproven_[position];
    switch (peer.handshake->advance(peer.socket.get())) {
        case TcpHandshake::Progress::waiting:
            return;
        case TcpHandshake::Progress::failed:
            drop_peer(position, peer.handshake->failure());
            return;
        case TcpHandshake::Progress::done:
            break;
    }
    const unsigned peer_slot = peer.handshake->peer_slot() - settings_.first_slot;
    if (peer_slot >= max_slots) {
        drop_peer(position,
                  "the process at the other end has an invalid slot; install the same softverbs on "
                  "all hosts");
        return;
    }
    links_.reserve(links_.size() + 1);
    links_.push_back(std::make_unique<TcpLink>(
        state_, epoll_.get(), std::move(peer.socket), peer.route,
        peer.slot == directory_slot ? directory_slot : peer_slot, nullptr));
    unproven_.erase(unproven_.begin() + static_cast<std::ptrdiff_t>(position));
}

void TcpNetwork::drop_unproven_peer() {
    std::size_t victim = 0;
    std::ptrdiff_t most = 0;
    for (std::size_t at = 0; at < unproven_.size(); ++at) {
        const HostAddress& host = unproven_[at].route.remote;
        const std::ptrdiff_t count = std::ranges::count_if(
            unproven_, [&host](const UnprovenPeer& peer) { return peer.route.remote == host; });
        if (count > most) {
            most = count;
            victim = at;
        }
    }
    if (most != 0) {
        drop_peer(victim, "");
    }
}

void TcpNetwork::drop_peer(std::size_t position, const std::string& why) {
    const auto peer = unproven_.begin() + static_cast<std::ptrdiff_t>(position);
    if (!why.empty()) {
        report(to_string(peer->route.remote) + ": " + why);
    }
    stop_watching(epoll_.get(), peer->socket.get());
    unproven_.erase(peer);
}

void TcpNetwork::end_overdue_handshakes() {
    std::uint64_t expirations = 0;
    static_cast<void>(::read(timer_.get(), &expirations, sizeof expirations));
    const std::uint64_t now = now_ns();
    for (std::size_t at = unproven_.size(); at-- > 0;) {
        if (unproven_[at].deadline_ns <= now) {
            drop_peer(at, "the handshake took too long");
        }
    }
    for (const auto& link : links_) {
        if (const std::uint64_t deadline = link->handshake_deadline();
            deadline != 0 && deadline <= now) {
            link->fail(
                "the host did not respond within 3 s; check that it and its network are up, and "
                "that no firewall drops the TCP ports from " +
                std::to_string(settings_.first_port) + " on");
        }
    }
    set_timer();
}

std::uint64_t TcpNetwork::next_deadline() const noexcept {
    std::uint64_t earliest = 0;
    for (const UnprovenPeer& peer : unproven_) {
        earliest = earlier(earliest, peer.deadline_ns);
    }
    for (const auto& link : links_) {
        earliest = earlier(earliest, link->handshake_deadline());
    }
    return earliest;
}

void TcpNetwork::set_timer() noexcept {
    fabric::set_timer(timer_.get(), next_deadline());
}

void TcpNetwork::reap(Handler& handler) {
    for (std::size_t at = 0; at < links_.size();) {
        if (!links_[at]->over()) {
            ++at;
            continue;
        }
        // Remove the connection from links_ before the callback on_closed(), because the callback
        // may connect to the same process again.
        const std::unique_ptr<TcpLink> ended = std::move(links_[at]);
        links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(at));
        if (!ended->failure().empty()) {
            report(to_string(ended->route().remote) + ": " + ended->failure());
        }
        ++state_.deliveries;
        handler.on_closed(*ended);
        ended->shut_down();
    }
}

void TcpNetwork::acknowledge() noexcept {
    for (const auto& link : links_) {
        link->acknowledge();
    }
}

bool TcpNetwork::pending() const noexcept {
    return std::ranges::any_of(links_, [](const auto& link) { return link->pending(); });
}

} // namespace softverbs::fabric
