// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cm/id.hpp"

namespace softverbs::cm {

/// Q_Key of the port spaces UDP and IB (RDMA_UDP_QKEY in <rdma/rdma_cma.h>).
inline constexpr std::uint32_t udp_queue_key = 0x0123'4567;
/// Q_Key of the port space IPOIB. The IPoIB broadcast group has the same Q_Key.
inline constexpr std::uint32_t ipoib_queue_key = 0x0000'0b1b;
[[nodiscard]] std::uint32_t queue_key(std::uint16_t port_space) noexcept;

/// Returns the multicast GID of an address, as the kernel's rdma_cm does. On InfiniBand, RFC 4391
/// defines it; in the port space UDP, it has another byte than that of IPoIB. On RoCE, an IPv6
/// address is its own MGID, and the IPv4 address a.b.c.d gives ff0e::ffff:a.b.c.d for RoCE v1 and
/// ::ffff:a.b.c.d for RoCE v2. The unspecified address and addresses of AF_IB are not changed.
[[nodiscard]] Gid multicast_gid(const Address& group, std::uint16_t port_space, const Route& route);
/// Returns the multicast LID of a group, or 0 for RoCE. On a real network, the subnet manager
/// assigns it. softverbs computes it from the MGID, so that it is the same in all processes.
[[nodiscard]] std::uint16_t multicast_lid(const Gid& mgid, const Route& route);
/// Returns the parameters for the event RDMA_CM_EVENT_MULTICAST_JOIN.
[[nodiscard]] rdma_ucm_ud_param multicast_parameters(const Multicast& group,
                                                     std::uint16_t port_space, const Route& route);

} // namespace softverbs::cm
