// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cm/address.hpp"
#include "cm/id.hpp"
#include "objects/device.hpp"

namespace softverbs::cm {

/// The device that an address of this machine leads to: the one that has the address as a GID.
/// Otherwise the n-th interface leads to the n-th device, as does 127.0.0.n. Null, with @p error:
/// EADDRNOTAVAIL (no interface has the address), ENODEV (there are no devices).
[[nodiscard]] Device* find_device(const Address& address, int& error);

/// Fills in the route's local port for packets from a local address.
void set_device(Route& route, Device& device, const Address& source);

/// Fills in the route's remote LID and GID for a destination at a device of this machine.
void set_destination(Route& route, Device& device, const Address& destination);

/// The device with which @p destination, an address of another host, is reached, and its address:
/// where @p bound is given, the device with that address; otherwise the device with the address
/// that the routing table selects, or else the first one with an address of the same family. Null:
/// none.
[[nodiscard]] Device* find_network_device(const Address& destination, const Address* bound,
                                          Address& source);

} // namespace softverbs::cm
