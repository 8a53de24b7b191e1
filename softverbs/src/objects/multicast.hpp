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

// The functions below implement ibv_attach_mcast() and ibv_detach_mcast(). The caller holds
// Process::lock.

/// Attaches a queue pair to a multicast group. Attaching it again does nothing. Returns 0, EINVAL
/// (not a datagram queue pair, not a multicast GID, or not a multicast LID) or ENOMEM (a limit of
/// the device is reached).
[[nodiscard]] int attach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Detaches a queue pair from a multicast group. Returns 0, or EINVAL if it is not attached.
[[nodiscard]] int detach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Detaches a queue pair from all multicast groups. Call this before the queue pair is freed.
void detach_multicast(const Qp& qp);

/// The queue pairs of this process that are attached to a multicast GID.
[[nodiscard]] std::vector<Qp*> multicast_members(const ibv_gid& gid);

} // namespace softverbs
