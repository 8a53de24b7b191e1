// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cm/address.hpp"
#include "cm/id.hpp"
#include "objects/device.hpp"

namespace softverbs::cm {

/// Returns the device for an address of this machine: the device that has the address in a GID
/// table. If there is none, the n-th network interface and the address 127.0.0.n belong to the n-th
/// device. On failure returns null and sets @p error: EADDRNOTAVAIL (no interface has the address),
/// ENODEV (there are no devices).
[[nodiscard]] Device* find_device(const Address& address, int& error);

/// Fills in the local device, port and addresses of a route, for packets from the address @p
/// source.
void set_device(Route& route, Device& device, const Address& source);

/// Fills in the route's remote LID and GID for a destination at a device of this machine.
void set_destination(Route& route, Device& device, const Address& destination);

/// Returns the device through which @p destination, an address of another host, is reached, and the
/// address of that device. If @p bound is given, it is the device with that address. Otherwise it
/// is the device with the source address that the routing table selects, or else the first device
/// with an address of the same family. Returns null if there is no such device.
[[nodiscard]] Device* find_network_device(const Address& destination, const Address* bound,
                                          Address& source);

} // namespace softverbs::cm
