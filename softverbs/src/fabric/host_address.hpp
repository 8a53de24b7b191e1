// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace softverbs::fabric {

/// The IP address of a host in network byte order: IPv6, or IPv4 in its mapped form
/// (::ffff:a.b.c.d), as in a RoCE GID. All zeros mean this host.
struct HostAddress {
    std::array<std::byte, 16> bytes{};

    friend bool operator==(const HostAddress&, const HostAddress&) = default;
    /// True unless the address is all zeros.
    explicit operator bool() const noexcept { return *this != HostAddress{}; }
};

/// The two addresses of a connection between hosts. Both are zeros for a connection within this
/// host.
struct Route {
    HostAddress local;
    HostAddress remote;

    friend bool operator==(const Route&, const Route&) = default;
};

[[nodiscard]] bool is_ipv4(const HostAddress& address) noexcept;
/// Whether other hosts can connect to the address: it is not unspecified, loopback, link-local or
/// multicast.
[[nodiscard]] bool is_global(const HostAddress& address) noexcept;
/// The address as text, such as "192.0.2.1" or "2001:db8::1".
[[nodiscard]] std::string to_string(const HostAddress& address);
/// Parses an IPv4 or IPv6 address. Returns nothing if @p text is not an address.
[[nodiscard]] std::optional<HostAddress> parse_host_address(const std::string& text);

/// The socket address of a host and a port.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    SocketAddress() noexcept = default;
    SocketAddress(const HostAddress& host, std::uint16_t port) noexcept;
    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&storage);
    }
};
/// The host address of an IPv4 or IPv6 socket address; nothing for other families.
[[nodiscard]] std::optional<HostAddress> host_of(const sockaddr& address) noexcept;

} // namespace softverbs::fabric
