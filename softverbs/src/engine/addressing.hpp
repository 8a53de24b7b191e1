// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/host_address.hpp"
#include "fabric/node.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// Device index in a packet to another host. The receiver finds the device by the addresses of the
/// connection that delivered the packet.
inline constexpr std::uint8_t device_by_address = 0xff;

/// The destination of an address vector: a device of this host, or another host.
struct Destination {
    /// Index of the device, or device_by_address; -1: no device has this address.
    int device = -1;
    /// Addresses of this host and of the destination host; all zeros if the destination is on this
    /// host.
    fabric::Route route;
};

/// Finds the destination of an address vector.
/// @param from  the sending device
[[nodiscard]] Destination destination_of(const Device& from, const ibv_ah_attr& address);

/// Returns whether a packet is for the device of @p qp. If @p qp is connected, the packet must also
/// come from the host of its peer.
/// @param from  connection that delivered the packet; null: from this process
/// @param index  device index in the packet
[[nodiscard]] bool is_addressed_to(const Qp& qp, const fabric::Connection* from,
                                   std::uint8_t index);

} // namespace softverbs
