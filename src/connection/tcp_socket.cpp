// SPDX-License-Identifier: BSD-3-Clause
#include "connection/tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "connection/host_address.hpp"

namespace rdmabuf::detail {
namespace {

UniqueFd make_socket(int family) {
    UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    check_zero(socket ? 0 : errno, "socket");
    return socket;
}

void set_option(const UniqueFd& socket, int level, int option, int value) {
    check_zero(::setsockopt(socket.get(), level, option, &value, sizeof value), "setsockopt");
}

/// Sets the options with which small messages are sent at once, and with which an idle connection
/// detects within two minutes that the other machine has failed.
void set_connection_options(const UniqueFd& socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::uint16_t port_of(const sockaddr& address) noexcept {
    return ntohs(address.sa_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

template <class Call>
sockaddr_storage name_of(Call call, int socket, const char* function) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    check_zero(call(socket, reinterpret_cast<sockaddr*>(&address), &size), function);
    return address;
}

/// Returns true if both socket addresses have the same IP address and the same port.
bool same_place(const sockaddr_storage& left, const sockaddr_storage& right) noexcept {
    const auto& one = reinterpret_cast<const sockaddr&>(left);
    const auto& other = reinterpret_cast<const sockaddr&>(right);
    if (one.sa_family != other.sa_family || port_of(one) != port_of(other)) {
        return false;
    }
    return one.sa_family == AF_INET6
               ? IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(left).sin6_addr,
                                    &reinterpret_cast<const sockaddr_in6&>(right).sin6_addr)
               : reinterpret_cast<const sockaddr_in&>(left).sin_addr.s_addr ==
                     reinterpret_cast<const sockaddr_in&>(right).sin_addr.s_addr;
}

std::string connect_hint(int error, const sockaddr& peer) {
    switch (error) {
        case ECONNREFUSED:
            return "no program listens at " + to_string(peer);
        case ETIMEDOUT:
            return to_string(peer) + " did not answer";
        default:
            return "no connection to " + to_string(peer);
    }
}

UniqueFd connect_to(const addrinfo& address, const Deadline& deadline) {
    UniqueFd socket = tcp_start_connect(*address.ai_addr, address.ai_addrlen);
    const bool ended = wait_writable(socket.get(), deadline.left());
    check_zero(ended ? tcp_connect_result(socket.get()) : ETIMEDOUT, "connect", [&](int error) {
        return connect_hint(error, *address.ai_addr) +
               (error == ETIMEDOUT ? "; the time limit was " + deadline.describe() : "");
    });
    return socket;
}

std::string bind_hint(int error, const std::string& address) {
    switch (error) {
        case EADDRINUSE:
            return "another socket listens at " + address;
        case EADDRNOTAVAIL:
            return address + " is not an address of this machine";
        case EACCES:
            return "listening at " + address + " needs CAP_NET_BIND_SERVICE";
        default:
            return "cannot listen at " + address;
    }
}

void bind_and_listen(const UniqueFd& socket, const sockaddr& address, socklen_t size) {
    // SO_REUSEADDR lets bind(2) succeed while connections of an earlier process still use the port
    // in the state TIME_WAIT. If the kernel selects the port, the option is set only after bind(2).
    // If the option were set before bind(2), the kernel could select a port to which another socket
    // with this option is bound. Then listen(2) would fail.
    const bool is_picked = port_of(address) == 0;
    if (!is_picked) {
        set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    const auto hint = [&](int error) { return bind_hint(error, to_string(address)); };
    check_zero(::bind(socket.get(), &address, size), "bind", hint);
    if (is_picked) {
        set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    check_zero(::listen(socket.get(), SOMAXCONN), "listen", hint);
}

UniqueFd listen_at_all(std::uint16_t port) {
    try {
        UniqueFd socket = make_socket(AF_INET6);
        set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(port);
        bind_and_listen(socket, reinterpret_cast<const sockaddr&>(address), sizeof address);
        return socket;
    } catch (const Error& error) {
        // EAFNOSUPPORT and EADDRNOTAVAIL mean that the kernel does not support IPv6. In this case,
        // a socket with IPv4 is used instead. All other errors are thrown.
        if (error.error() != EAFNOSUPPORT && error.error() != EADDRNOTAVAIL) {
            throw;
        }
    }
    UniqueFd socket = make_socket(AF_INET);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    bind_and_listen(socket, reinterpret_cast<const sockaddr&>(address), sizeof address);
    return socket;
}

/// Returns true if accept(2) failed because no connection is pending, because a signal has
/// interrupted the call, or because one connection failed before it was accepted.
bool is_passing(int error) {
    switch (error) {
        case EAGAIN:
        case EINTR:
        case ECONNABORTED:
        case ENETDOWN:
        case EPROTO:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case EOPNOTSUPP:
        case ENETUNREACH:
            return true;
        default:
            return false;
    }
}

bool is_closed(int error) {
    return error == ECONNRESET || error == EPIPE;
}

} // namespace

UniqueFd tcp_connect(const std::string& host, std::uint16_t port, const Deadline& deadline) {
    return try_each(resolve_host(host, port), deadline, connect_to);
}

UniqueFd tcp_listen(const std::string& host, std::uint16_t port) {
    if (host.empty()) {
        return listen_at_all(port);
    }
    return try_each(resolve_host(host, port), Deadline(std::chrono::milliseconds(0)),
                    [](const addrinfo& address, const Deadline&) {
                        UniqueFd socket = make_socket(address.ai_family);
                        bind_and_listen(socket, *address.ai_addr, address.ai_addrlen);
                        return socket;
                    });
}

UniqueFd tcp_accept(int listener, const Deadline& deadline) {
    while (true) {
        if (!wait_readable(listener, deadline.left())) {
            throw Error(ETIMEDOUT, "accept", "no peer connected within " + deadline.describe());
        }
        if (UniqueFd socket = tcp_try_accept(listener)) {
            return socket;
        }
    }
}

UniqueFd tcp_start_connect(const sockaddr& address, socklen_t size) {
    UniqueFd socket = make_socket(address.sa_family);
    set_connection_options(socket);
    const int error = ::connect(socket.get(), &address, size) == 0 ? 0 : errno;
    // If connect(2) fails with EINTR, the connection attempt continues in the background; see
    // connect(2).
    check_zero(error == EINPROGRESS || error == EINTR ? 0 : error, "connect",
               [&](int failure) { return connect_hint(failure, address); });
    return socket;
}

int tcp_connect_result(int socket) {
    if (!wait_writable(socket, std::chrono::milliseconds(0))) {
        return EAGAIN;
    }
    int error = 0;
    socklen_t size = sizeof error;
    check_zero(::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size), "getsockopt");
    if (error != 0) {
        return error;
    }
    const auto peer = attempt([&] { return name_of(::getpeername, socket, "getpeername"); });
    if (!peer && peer.code().value() == ENOTCONN) {
        return ECONNRESET; // The peer has reset the connection since then.
    }
    if (!peer) {
        peer.error_info().raise();
    }
    // If no process listens at the port, the kernel can select the same port for this end, and
    // connect the socket to itself.
    return same_place(local_address(socket), *peer) ? ECONNREFUSED : 0;
}

UniqueFd tcp_try_accept(int listener) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
        set_connection_options(socket);
        return socket;
    }
    check_zero(is_passing(errno) ? 0 : errno, "accept");
    return {};
}

sockaddr_storage local_address(int socket) {
    return name_of(::getsockname, socket, "getsockname");
}

std::uint16_t local_port(int socket) {
    const sockaddr_storage address = local_address(socket);
    return port_of(reinterpret_cast<const sockaddr&>(address));
}

void send_all(int socket, std::span<const std::byte> bytes, const Deadline& deadline,
              std::string_view what) {
    const std::string doing = "this side sent " + std::string(what);
    while (!bytes.empty()) {
        const ssize_t sent =
            ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (is_closed(errno)) {
            throw Error(ECONNRESET, "send", "the peer closed the connection while " + doing);
        } else if (errno == EAGAIN) {
            if (!wait_writable(socket, deadline.left())) {
                throw Error(ETIMEDOUT, "send",
                            "the peer did not read from the connection within " +
                                deadline.describe() + ", while " + doing);
            }
        } else {
            check_zero(errno == EINTR ? 0 : errno, "send", "while " + doing);
        }
    }
}

std::size_t Receiver::some(std::span<std::byte> buffer) {
    while (true) {
        const ssize_t received = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (received > 0) {
            received_ += static_cast<std::size_t>(received);
            return static_cast<std::size_t>(received);
        }
        if (received == 0 || is_closed(errno)) {
            throw Error(ECONNRESET, "recv", "the peer closed the connection while " + progress());
        }
        check_zero(errno == EAGAIN || errno == EINTR ? 0 : errno, "recv", "while " + progress());
        if (!wait_readable(socket_, deadline_.left())) {
            throw Error(ETIMEDOUT, "recv",
                        "not complete within " + deadline_.describe() + ", while " + progress());
        }
    }
}

void Receiver::all(std::span<std::byte> buffer) {
    while (!buffer.empty()) {
        buffer = buffer.subspan(some(buffer));
    }
}

std::string Receiver::progress() const {
    return "this side waited for " + std::string(what_) + ", of which " +
           std::to_string(received_) + " bytes had come";
}

} // namespace rdmabuf::detail
