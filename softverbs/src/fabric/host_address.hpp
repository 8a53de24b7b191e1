// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace softverbs::fabric {

/// The IP address of a host, in network byte order. An IPv4 address has the mapped form
/// (::ffff:a.b.c.d), as in a RoCE GID. All zeros: this host.
struct HostAddress {
    std::array<std::uint8_t, 16> bytes{};

    friend bool operator==(const HostAddress&, const HostAddress&) = default;
    /// Returns false if the address is all zeros.
    explicit operator bool() const noexcept { return *this != HostAddress{}; }
};

/// The addresses of the two hosts of a TCP connection. Both are zeros for a connection within this
/// host.
struct Route {
    HostAddress local;
    HostAddress remote;

    friend bool operator==(const Route&, const Route&) = default;
};

[[nodiscard]] bool is_ipv4(const HostAddress& address) noexcept;
/// Returns whether other hosts may be able to connect to @p address. Returns false for unspecified,
/// loopback, link-local and multicast addresses.
[[nodiscard]] bool is_global(const HostAddress& address) noexcept;
/// Returns the address as text: "192.0.2.1" or "2001:db8::1".
[[nodiscard]] std::string to_string(const HostAddress& address);
/// Parses an IPv4 or IPv6 address. Returns no value if @p text is invalid.
[[nodiscard]] std::optional<HostAddress> parse_host_address(const std::string& text);

/// A sockaddr with an IP address and a port.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    SocketAddress() noexcept = default;
    SocketAddress(const HostAddress& host, std::uint16_t port) noexcept;
    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&storage);
    }
};
/// Returns the IP address in an IPv4 or IPv6 socket address. Returns no value for other address
/// families.
[[nodiscard]] std::optional<HostAddress> host_of(const sockaddr& address) noexcept;

} // namespace softverbs::fabric
