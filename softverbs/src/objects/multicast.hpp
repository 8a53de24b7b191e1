// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "objects/queue_pair.hpp"

namespace softverbs {

/// The destination queue pair number of multicast datagrams. Each queue pair that is attached to
/// the destination GID receives them.
inline constexpr std::uint32_t multicast_qp_number = 0xffffff;

[[nodiscard]] inline bool is_multicast(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xff;
}

// The functions below expect that the caller holds Process::lock.

/// Implements ibv_attach_mcast(). Does nothing if the queue pair is already attached. Returns 0,
/// EOPNOTSUPP (the device does not support multicast), EINVAL (not a UD queue pair, multicast GID
/// or multicast LID) or ENOMEM (a limit of the device is exceeded).
[[nodiscard]] int attach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Implements ibv_detach_mcast(). Returns 0, or EINVAL if the queue pair is not attached.
[[nodiscard]] int detach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Returns whether the queue pair is attached to a multicast group. It cannot be destroyed then.
[[nodiscard]] bool is_attached(const Qp& qp);

/// Returns the queue pairs of this process that are attached to a multicast GID.
[[nodiscard]] std::vector<Qp*> multicast_members(const ibv_gid& gid);

} // namespace softverbs
