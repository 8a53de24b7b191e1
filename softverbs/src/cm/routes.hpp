// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cm/address.hpp"
#include "cm/id.hpp"
#include "objects/device.hpp"

namespace softverbs::cm {

/// Returns the names of the network interfaces with IPv4 or IPv6 addresses, without loopback, in
/// the order of their kernel indices. If there are none, returns "lo".
[[nodiscard]] std::vector<std::string> local_interfaces();

/// Returns the source address that the kernel's routing table selects for a destination. Returns no
/// value and sets errno if there is no route or a system call fails.
[[nodiscard]] std::optional<Address> route_source(const Address& destination);

/// Returns the device for an address of this machine: the device whose GID table contains the
/// address. If there is none, network interface i has device i modulo the number of devices, and
/// 127.0.0.N has device N - 1 modulo the number of devices. On failure, returns null and sets @p
/// error: EADDRNOTAVAIL (this machine does not have the address), ENODEV (there are no devices).
[[nodiscard]] Device* find_device(const Address& address, int& error);

/// Returns whether a device of this machine has the GID.
[[nodiscard]] bool has_device_gid(const Gid& gid);

/// Sets the members of the route for its local end: the device, and the port and GID for the
/// address @p source.
void set_device(Route& route, Device& device, const Address& source);

/// Sets the LID and GID of the destination, which is an address of @p device on this machine.
void set_destination(Route& route, Device& device, const Address& destination);

/// Returns the device from which @p destination, an address of another host, can be reached, and
/// stores the address of the device in @p source. The two addresses are of the same family. If @p
/// bound is not null, the device must have this address. If several devices are possible, prefers
/// the one whose address the kernel's routing table selects. Returns null if no device is possible.
[[nodiscard]] Device* find_network_device(const Address& destination, const Address* bound,
                                          Address& source);

} // namespace softverbs::cm
