// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "objects/queue_pair.hpp"

namespace softverbs {

/// Datagrams to this queue pair number go to all queue pairs that are attached to the multicast
/// GID which is their destination.
inline constexpr std::uint32_t multicast_qp_number = 0xffffff;

[[nodiscard]] inline bool is_multicast(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xff;
}

// These functions implement ibv_attach_mcast() and ibv_detach_mcast(). The caller holds
// Process::lock.

/// 0, or EINVAL (not a datagram queue pair, not a multicast GID, no multicast LID), ENOMEM (the
/// device's limits). To attach a queue pair again does nothing.
[[nodiscard]] int attach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// 0, or EINVAL: it is not attached.
[[nodiscard]] int detach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Before a queue pair is freed.
void detach_multicast(const Qp& qp);

/// The queue pairs of this process that are attached to a multicast GID.
[[nodiscard]] std::vector<Qp*> multicast_members(const ibv_gid& gid);

} // namespace softverbs
