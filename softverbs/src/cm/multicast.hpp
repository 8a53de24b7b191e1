// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cm/id.hpp"

namespace softverbs::cm {

/// Q_Key of the UDP and InfiniBand port spaces (RDMA_UDP_QKEY in <rdma/rdma_cma.h>).
inline constexpr std::uint32_t udp_queue_key = 0x0123'4567;
/// Q_Key of the broadcast group of the IPoIB port space.
inline constexpr std::uint32_t ipoib_queue_key = 0x0000'0b1b;
[[nodiscard]] std::uint32_t queue_key(std::uint16_t port_space) noexcept;

/// The MGID that an IP multicast address maps to (RFC 4391; RoCE annex A17).
[[nodiscard]] Gid multicast_gid(const Address& group, std::uint16_t port_space, const Route& route);
/// Returns the MLID of a multicast group, as the subnet manager would assign it. It is computed
/// from the MGID, so that all processes use the same MLID.
[[nodiscard]] std::uint16_t multicast_lid(const Gid& mgid, const Route& route);
/// The parameters that the event of a completed join reports.
[[nodiscard]] rdma_ucm_ud_param multicast_parameters(const Multicast& group,
                                                     std::uint16_t port_space, const Route& route);

} // namespace softverbs::cm
