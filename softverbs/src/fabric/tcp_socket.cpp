// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace softverbs::fabric {
namespace {

/// If the other host does not acknowledge sent data for this time, the kernel closes the
/// connection.
constexpr unsigned user_timeout_ms = 15'000;

#ifndef TCP_RTO_MAX_MS // Linux 6.15
#define TCP_RTO_MAX_MS 44
#endif

} // namespace

UniqueFd tcp_socket(const HostAddress& address) noexcept {
    const int family = is_ipv4(address) ? AF_INET : AF_INET6;
    UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    const int on = 1;
    if (socket && family == AF_INET6) {
        ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    return socket;
}

bool listen_at(int socket, const HostAddress& address, std::uint16_t port,
               bool shares_port) noexcept {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (shares_port) {
        ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    }
    const SocketAddress name(address, port);
    return ::bind(socket, name.get(), name.length) == 0 && ::listen(socket, SOMAXCONN) == 0;
}

void set_connection_options(int socket) noexcept {
    const auto set = [socket](int level, int option, int value) {
        ::setsockopt(socket, level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms);
    set(IPPROTO_TCP, TCP_RTO_MAX_MS, 1000);
    // After a second without data from the other host, the kernel sends a probe every second, until
    // the other host acknowledges a probe. The connection fails after TCP_USER_TIMEOUT, not after
    // TCP_KEEPCNT probes.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
}

} // namespace softverbs::fabric
