// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/connection.hpp"
#include "fabric/host_address.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The value of the device index in packets to another host. The receiving process finds the
/// destination device by the IP addresses of the TCP connection, not by this index.
inline constexpr std::uint8_t device_by_address = 0xff;

/// The destination that an address vector (ibv_ah_attr) specifies: a device of this host, or
/// another host.
struct Destination {
    /// Index of the destination device on this host; device_by_address for another host; -1 if the
    /// address belongs to no device of this host, and no other host can be reached at it.
    int device = -1;
    /// The IP addresses of this host and of the destination host. Zeros if the destination is on
    /// this host.
    fabric::Route route;
};

/// Returns the destination that the address vector @p address specifies.
/// @param from  the local device of the queue pair that sends
[[nodiscard]] Destination destination_of(const Device& from, const ibv_ah_attr& address);

/// Returns whether a received packet is for the device of @p qp. If @p qp is connected, the packet
/// must also come from the host of its peer.
/// @param from   connection on which the packet arrived; null if this process has sent the packet
/// @param index  device index in the packet header
[[nodiscard]] bool is_addressed_to(const Qp& qp, const fabric::Connection* from,
                                   std::uint8_t index);

} // namespace softverbs
