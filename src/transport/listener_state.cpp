// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/listener_state.hpp>

#include "connection/tcp_socket.hpp"
#include "transport/listen_address.hpp"
#include "transport/random_secret.hpp"
#include "transport/wait_for_sockets.hpp"

namespace rdmabuf::transport::detail {
namespace {

using rdmabuf::detail::check_zero;

constexpr std::int64_t longest_shared_wait_ns = 100'000'000;

Handle make_handle(int socket) {
    const sockaddr_storage bound = rdmabuf::detail::local_address(socket);
    std::array<std::uint8_t, 16> address{};
    std::uint32_t scope = 0;
    if (bound.ss_family == AF_INET6) {
        const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(bound);
        std::memcpy(address.data(), &ipv6.sin6_addr, address.size());
        scope = ipv6.sin6_scope_id;
    } else {
        address[10] = address[11] = 0xff;
        std::memcpy(address.data() + 12, &reinterpret_cast<const sockaddr_in&>(bound).sin_addr, 4);
    }
    return {address, scope, rdmabuf::detail::local_port(socket), random_secret(), random_secret()};
}

} // namespace

std::unique_ptr<ListenerState> ListenerState::open(std::shared_ptr<EndpointState> endpoint,
                                                   const std::string& host) {
    UniqueFd socket = rdmabuf::detail::tcp_listen(rdmabuf::detail::listen_address(host), 0);
    // With TCP_DEFER_ACCEPT, accept(2) returns a connection only when the peer has sent data, or
    // when this time has passed; see tcp(7).
    const int seconds = static_cast<int>(std::clamp<std::int64_t>(
        std::chrono::ceil<std::chrono::seconds>(endpoint->options.handshake).count(), 1, 3600));
    check_zero(
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0
            ? 0
            : errno,
        "setsockopt");
    return std::unique_ptr<ListenerState>(
        new ListenerState(std::move(endpoint), std::move(socket)));
}

ListenerState::ListenerState(std::shared_ptr<EndpointState> endpoint, UniqueFd socket)
    : endpoint_(std::move(endpoint)),
      socket_(std::move(socket)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      handle_(make_handle(socket_.get())) {
    check_zero(events_ ? 0 : errno, "epoll_create1");
    watch(socket_.get());
    unproven_.reserve(max_unproven);
}

ListenerState::~ListenerState() {
    if (!creator_.is_current()) {
        return;
    }
    // As long as a forked child has the sockets open, close(2) does not end the connections. The
    // kernel would also accept further connections, whose peers would wait for an answer.
    ::shutdown(socket_.get(), SHUT_RDWR);
    for (const Unproven& peer : unproven_) {
        ::shutdown(peer.socket.get(), SHUT_RDWR);
    }
}

SetupProgress ListenerState::advance(std::unique_ptr<Handshake>& finished,
                                     ErrorInfo& error) noexcept {
    // An error of accept_connections() or check_proofs() must not stop the handshakes that have
    // already started. Therefore the error is reported after all handshakes were advanced.
    const auto accepted = attempt([this] { accept_connections(); });
    const auto checked = attempt([this] { check_proofs(); });
    Handshakes advanced;
    more_ = false;
    for (std::size_t left = handshakes_.size(); left > 0 && !handshakes_.empty(); --left) {
        // While a handshake unlocks EndpointOptions::mutex, another thread may call this function.
        // That thread must not find the same handshake in handshakes_.
        advanced.splice(advanced.end(), handshakes_, handshakes_.begin());
        ++advancing_;
        const SetupProgress progress = advanced.front()->advance(error);
        --advancing_;
        if (progress == SetupProgress::waiting) {
            handshakes_.splice(handshakes_.end(), advanced);
            continue;
        }
        forget(advanced.front()->socket());
        more_ = left > 1;
        if (progress == SetupProgress::ready) {
            finished = std::move(advanced.front());
        }
        return progress;
    }
    for (const auto& result : {accepted, checked}) {
        if (!result) {
            error = result.error_info();
            return SetupProgress::failed;
        }
    }
    return SetupProgress::waiting;
}

void ListenerState::accept_connections() {
    for (std::size_t i = 0; i < max_unproven && !is_full(); ++i) {
        UniqueFd socket = rdmabuf::detail::tcp_try_accept(socket_.get());
        if (!socket) {
            return;
        }
        if (unproven_.size() == max_unproven) {
            check_proofs();
        }
        if (unproven_.size() == max_unproven) {
            forget(unproven_.front().socket.get());
            unproven_.erase(unproven_.begin());
        }
        watch(socket.get());
        unproven_.push_back({.socket = std::move(socket),
                             .deadline = now_ns() + to_ns(endpoint_->options.handshake)});
    }
}

void ListenerState::check_proofs() {
    for (std::size_t i = 0; i < unproven_.size() && !is_full();) {
        Unproven& peer = unproven_[i];
        const ProofStatus status = check_proof(peer);
        if (status == ProofStatus::waiting) {
            ++i;
            continue;
        }
        UniqueFd socket = std::move(peer.socket);
        unproven_.erase(unproven_.begin() + static_cast<std::ptrdiff_t>(i));
        forget(socket.get());
        if (status == ProofStatus::accepted) {
            auto handshake = std::make_unique<Handshake>(endpoint_, std::move(socket), handle_);
            watch(handshake->socket());
            handshakes_.push_back(std::move(handshake));
        }
    }
}

ListenerState::ProofStatus ListenerState::check_proof(Unproven& peer) const {
    auto* const bytes = reinterpret_cast<std::byte*>(&peer.proof);
    while (peer.received < sizeof peer.proof) {
        const ssize_t count =
            ::recv(peer.socket.get(), bytes + peer.received, sizeof peer.proof - peer.received, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            return now_ns() < peer.deadline ? ProofStatus::waiting : ProofStatus::dropped;
        }
        if (count <= 0) {
            return ProofStatus::dropped;
        }
        peer.received += static_cast<std::size_t>(count);
    }
    // The protocol version of the peer is not checked here. This end sends its own version in its
    // Hello, so that the peer can report that the versions differ.
    return peer.proof.magic == ConnectorProof::expected_magic &&
                   same_secret(peer.proof.secret, handle_.connector_secret())
               ? ProofStatus::accepted
               : ProofStatus::dropped;
}

void ListenerState::watch(int socket) const {
    epoll_event event{};
    event.events = EPOLLIN;
    check_zero(::epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &event) == 0 ? 0 : errno,
               "epoll_ctl");
}

void ListenerState::forget(int socket) const noexcept {
    static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, socket, nullptr));
}

void ListenerState::wait(std::chrono::milliseconds timeout) const noexcept {
    std::optional<std::int64_t> deadline;
    const auto earliest = [&](std::optional<std::int64_t> other) {
        deadline = deadline && other ? std::min(*deadline, *other) : other ? other : deadline;
    };
    const auto waited = attempt([&] {
        std::vector<pollfd> sockets;
        if (!is_full()) {
            sockets.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
            for (const Unproven& peer : unproven_) {
                sockets.push_back({.fd = peer.socket.get(), .events = POLLIN, .revents = 0});
                earliest(peer.deadline);
            }
        }
        for (const auto& handshake : handshakes_) {
            sockets.push_back(
                {.fd = handshake->socket(), .events = handshake->events(), .revents = 0});
            earliest(handshake->deadline());
        }
        std::mutex* const mutex = endpoint_->options.mutex;
        if (mutex != nullptr) {
            // During this wait, another thread may accept a connection, whose socket is not in
            // `sockets`. Therefore the wait is limited.
            earliest(now_ns() + longest_shared_wait_ns);
        }
        wait_for_sockets(sockets, timeout, deadline, mutex);
    });
    static_cast<void>(waited); // After ENOMEM the caller tries again at once.
}

} // namespace rdmabuf::transport::detail
