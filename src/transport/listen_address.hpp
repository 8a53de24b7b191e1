// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace rdmabuf::detail {

/// One address of one network interface.
struct InterfaceAddress {
    std::string interface;
    sockaddr_storage address{};
    bool is_loopback = false;
    /// A software bridge, such as docker0. Its addresses are usually unknown outside this machine.
    bool is_bridge = false;
    /// The interface has a device: it is not a tunnel, a bridge, or one end of a veth pair.
    bool has_device = false;
    /// The default route of this machine leaves through the interface.
    bool has_default_route = false;
};

/// The IPv4 and IPv6 addresses of the interfaces that are up, in the kernel's order.
/// @throws Error what getifaddrs(3) reports
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Selects the address that other machines reach most likely: the interface of the default route,
/// then an interface with a device, another one, a bridge, and the loopback interface last. On
/// equal interfaces IPv4 is preferred to IPv6, and then the first address.
/// @return null for an empty list
[[nodiscard]] const InterfaceAddress* best_address(const std::vector<InterfaceAddress>& addresses);

/// Returns the address at which to listen, as text for getaddrinfo(3).
/// @param host  an IPv4 or IPv6 address, the name of an interface, or empty for best_address()
/// @throws Error ENODEV when no interface of that name is up and has an address
[[nodiscard]] std::string listen_address(const std::string& host);

} // namespace rdmabuf::detail
