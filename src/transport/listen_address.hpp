// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>

#include <string>
#include <vector>

namespace rdmabuf::detail {

struct InterfaceAddress {
    std::string interface;
    sockaddr_storage address{};
    bool is_loopback = false;
    /// True if the interface is a software bridge, such as docker0. The addresses of a bridge are
    /// usually not reachable from other machines.
    bool is_bridge = false;
    /// True if the interface has a hardware device: it is not a tunnel, a bridge, or one end of a
    /// veth pair.
    bool has_device = false;
    bool has_default_route = false;
};

/// Returns the IPv4 and IPv6 addresses of the interfaces that are up, in the kernel's order.
/// @throws Error with the errno value of getifaddrs(3)
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Selects the address that other machines can most likely reach. The order is: an interface of a
/// default route, an interface with a hardware device, another interface, a bridge, the loopback
/// interface. Among interfaces of the same kind, an IPv4 address precedes an IPv6 address. Of
/// several such addresses, the first is selected.
/// @return null if @p addresses is empty
[[nodiscard]] const InterfaceAddress* best_address(const std::vector<InterfaceAddress>& addresses);

/// Returns the address to listen at, as text for getaddrinfo(3).
/// @param host  an IPv4 or IPv6 address, the name of an interface, or empty for best_address()
/// @throws Error ENODEV if no interface (of that name) is up and has an address
[[nodiscard]] std::string listen_address(const std::string& host);

} // namespace rdmabuf::detail
