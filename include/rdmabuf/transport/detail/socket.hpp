// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

/// Sockets that never block and calls that never throw: tcp(7), ipv6(7).
namespace rdmabuf::transport::detail {

/// An address of this machine as others see it.
struct HostAddress {
    std::array<std::uint8_t, 16> bytes{};
    std::uint32_t scope = 0;
};

[[nodiscard]] inline HostAddress mapped(const in_addr& ipv4) noexcept {
    HostAddress result;
    result.bytes[10] = result.bytes[11] = 0xff;
    std::memcpy(result.bytes.data() + 12, &ipv4, sizeof ipv4);
    return result;
}

/// What the calls take: of IPv4's own family where it is an IPv4 address, as machines may have no
/// IPv6.
class SocketAddress {
  public:
    SocketAddress(const HostAddress& host, std::uint16_t port) noexcept {
        in6_addr ipv6{};
        std::memcpy(&ipv6, host.bytes.data(), sizeof ipv6);
        if (IN6_IS_ADDR_V4MAPPED(&ipv6)) {
            ipv4_.sin_family = AF_INET;
            ipv4_.sin_port = htons(port);
            std::memcpy(&ipv4_.sin_addr, host.bytes.data() + 12, sizeof ipv4_.sin_addr);
            return;
        }
        ipv6_.sin6_family = AF_INET6;
        ipv6_.sin6_port = htons(port);
        ipv6_.sin6_scope_id = host.scope;
        ipv6_.sin6_addr = ipv6;
    }

    [[nodiscard]] int family() const noexcept { return is_ipv4() ? AF_INET : AF_INET6; }
    [[nodiscard]] const sockaddr* get() const noexcept {
        return is_ipv4() ? reinterpret_cast<const sockaddr*>(&ipv4_)
                         : reinterpret_cast<const sockaddr*>(&ipv6_);
    }
    [[nodiscard]] socklen_t size() const noexcept {
        return is_ipv4() ? sizeof ipv4_ : sizeof ipv6_;
    }

  private:
    [[nodiscard]] bool is_ipv4() const noexcept { return ipv4_.sin_family == AF_INET; }

    sockaddr_in ipv4_{};
    sockaddr_in6 ipv6_{};
};

/// Reads an IPv4 or IPv6 address. @return 0, or EINVAL
[[nodiscard]] inline int parse_address(const std::string& text, HostAddress& result) noexcept {
    in_addr ipv4{};
    if (::inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
        result = mapped(ipv4);
        return 0;
    }
    in6_addr ipv6{};
    if (::inet_pton(AF_INET6, text.c_str(), &ipv6) == 1) {
        std::memcpy(result.bytes.data(), &ipv6, sizeof ipv6);
        return 0;
    }
    return EINVAL;
}

/// The address of an interface that is up: IPv4 before IPv6, and that of the loopback interface
/// where there is no other. With a name, of that interface only. @return 0, ENODEV, or what
/// getifaddrs(3) says
[[nodiscard]] inline int find_address(const std::string& interface, HostAddress& result) noexcept {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) {
        return errno;
    }
    int best = 0;
    for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
            (!interface.empty() && interface != entry->ifa_name)) {
            continue;
        }
        const int family = entry->ifa_addr->sa_family;
        const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
        const int score = (family == AF_INET ? 2 : family == AF_INET6 ? 1 : 0) + (loopback ? 0 : 2);
        if ((family != AF_INET && family != AF_INET6) || score <= best) {
            continue;
        }
        best = score;
        if (family == AF_INET) {
            sockaddr_in address{};
            std::memcpy(&address, entry->ifa_addr, sizeof address);
            result = mapped(address.sin_addr);
        } else {
            sockaddr_in6 address{};
            std::memcpy(&address, entry->ifa_addr, sizeof address);
            std::memcpy(result.bytes.data(), &address.sin6_addr, result.bytes.size());
            result.scope = address.sin6_scope_id;
        }
    }
    ::freeifaddrs(all);
    return best > 0 ? 0 : ENODEV;
}

/// @return 0, or an errno value; the same of those below
[[nodiscard]] inline int open_socket(int family, UniqueFd& made) noexcept {
    made.reset(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int on = 1;
    return made && ::setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 ? 0
                                                                                           : errno;
}

/// Listens at a free port.
[[nodiscard]] inline int listen_at(const HostAddress& host, UniqueFd& made,
                                   std::uint16_t& port) noexcept {
    const SocketAddress address(host, 0);
    if (const int error = open_socket(address.family(), made); error != 0) {
        return error;
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::bind(made.get(), address.get(), address.size()) != 0 ||
        ::listen(made.get(), SOMAXCONN) != 0 ||
        ::getsockname(made.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
        return errno;
    }
    // The port is at the same place in both families.
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &bound, sizeof ipv4);
    port = ntohs(ipv4.sin_port);
    return 0;
}

/// Begins to connect.
[[nodiscard]] inline int connect_to(const Handle& handle, UniqueFd& made) noexcept {
    const SocketAddress address({.bytes = handle.address(), .scope = handle.scope()},
                                handle.port());
    if (const int error = open_socket(address.family(), made); error != 0) {
        return error;
    }
    return ::connect(made.get(), address.get(), address.size()) == 0 || errno == EINPROGRESS
               ? 0
               : errno;
}

/// EAGAIN while connect_to() is under way.
[[nodiscard]] inline int connected(int socket) noexcept {
    pollfd request{.fd = socket, .events = POLLOUT, .revents = 0};
    if (::poll(&request, 1, 0) == 0) {
        return EAGAIN;
    }
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

/// Sends all of a little: what a socket's buffer takes at once.
[[nodiscard]] inline int send_little(int socket, std::span<const std::byte> bytes) noexcept {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) {
        return errno;
    }
    return static_cast<std::size_t>(sent) == bytes.size() ? 0 : EIO;
}

/// Receives until @p got is all of @p bytes; EAGAIN until then, ECONNRESET when the peer has
/// closed.
[[nodiscard]] inline int receive_into(int socket, std::span<std::byte> bytes,
                                      std::size_t& got) noexcept {
    while (got < bytes.size()) {
        const ssize_t received = ::recv(socket, bytes.data() + got, bytes.size() - got, 0);
        if (received == 0) {
            return ECONNRESET;
        }
        if (received < 0) {
            return errno == EINTR ? EAGAIN : errno;
        }
        got += static_cast<std::size_t>(received);
    }
    return 0;
}

/// Whether the other end is still there: 0, ECONNRESET when it is not, EPROTO when it speaks out of
/// turn.
[[nodiscard]] inline int look_at_peer(int socket) noexcept {
    std::byte byte{};
    const ssize_t received = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (received > 0) {
        return EPROTO;
    }
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        return 0;
    }
    return ECONNRESET;
}

} // namespace rdmabuf::transport::detail
