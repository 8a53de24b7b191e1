// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cm/address.hpp"

namespace softverbs::cm {

/// Identifies an address of this machine, so that cm::find_device() can select the device for it.
struct LocalAddress {
    bool loopback = false;
    /// For 127.0.0.N: N - 1; for ::1: 0. For other addresses: the index, from 0, of the network
    /// interface that has the address. Interfaces without IP addresses and loopback are not
    /// counted. The order is that of if_nametoindex(3).
    unsigned ordinal = 0;
};
/// Returns the LocalAddress of @p address. Returns no value if the address is neither a loopback
/// address nor an address of this machine.
[[nodiscard]] std::optional<LocalAddress> find_local(const Address& address);

/// Returns the names of the network interfaces with IPv4 or IPv6 addresses, without loopback, in
/// the order of their kernel indices. If there are none, returns "lo".
[[nodiscard]] std::vector<std::string> local_interfaces();

/// Returns the source address that the kernel's routing table selects for a destination. Returns no
/// value and sets errno if there is no route or a system call fails.
[[nodiscard]] std::optional<Address> route_source(const Address& destination);

} // namespace softverbs::cm
