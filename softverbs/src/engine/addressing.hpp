// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/host_address.hpp"
#include "fabric/node.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The index in a packet for a device of another host: the addresses of the connection that carries
/// the packet decide which device it is.
inline constexpr std::uint8_t device_by_address = 0xff;

/// Where the address of a queue pair or of an address handle leads.
struct Destination {
    /// The index of the device, or device_by_address; -1: no device has the address.
    int device = -1;
    /// The addresses of the two hosts; zeros: the destination is on this host.
    fabric::Route route;
};

/// @param from  the device that sends
[[nodiscard]] Destination destination_of(const Device& from, const ibv_ah_attr& address);

/// Whether a packet that names the device index @p index and came by @p from (null: from this
/// process) is for the device of @p qp, and comes from the host that a connected queue pair has as
/// its peer.
[[nodiscard]] bool is_addressed_to(const Qp& qp, const fabric::Connection* from,
                                   std::uint8_t index);

} // namespace softverbs
