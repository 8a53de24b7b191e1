// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/connection.hpp"
#include "fabric/host_address.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// The value of the device index in packets to another host. The receiving process finds its device
/// by the addresses of the TCP connection, not by this index.
inline constexpr std::uint8_t device_by_address = 0xff;

/// The destination that an address vector specifies: a device of this host, or another host.
struct Destination {
    /// Index of the device on this host; device_by_address for another host; -1 if there is no
    /// device with this address.
    int device = -1;
    /// The addresses of this host and of the destination host. Zeros if the destination is on this
    /// host.
    fabric::Route route;
};

/// Returns the destination of an address vector.
/// @param from  the device that sends
[[nodiscard]] Destination destination_of(const Device& from, const ibv_ah_attr& address);

/// Returns whether a received packet is for the device of @p qp. For a connected queue pair, the
/// packet must also come from the host of its peer.
/// @param from   connection on which the packet arrived; null if this process has sent it
/// @param index  device index in the packet
[[nodiscard]] bool is_addressed_to(const Qp& qp, const fabric::Connection* from,
                                   std::uint8_t index);

} // namespace softverbs
