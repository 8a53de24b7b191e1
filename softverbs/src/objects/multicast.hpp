// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "objects/queue_pair.hpp"

namespace softverbs {

/// The destination queue pair number of multicast datagrams. Each queue pair that is attached to
/// the destination GID receives them.
inline constexpr std::uint32_t multicast_qp_number = 0xffffff;

/// Returns whether the GID is an IPv4-mapped address (::ffff:a.b.c.d). RoCE v2 uses such GIDs.
[[nodiscard]] inline bool is_ipv4(const ibv_gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, mapped.data(), mapped.size()) == 0;
}

[[nodiscard]] inline bool is_multicast(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xff || (is_ipv4(gid) && (gid.raw[12] & 0xf0U) == 0xe0);
}

// The caller of the functions below must hold Process::lock.

/// Implements ibv_attach_mcast(). Does nothing if the queue pair is already attached. Returns 0,
/// EOPNOTSUPP (the device does not support multicast), EINVAL (the queue pair is not UD, or the GID
/// or the LID is not a multicast address) or ENOMEM (a limit of the device would be exceeded).
[[nodiscard]] int attach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Implements ibv_detach_mcast(). Returns 0, or EINVAL if the queue pair is not attached.
[[nodiscard]] int detach_multicast(Qp& qp, const ibv_gid& gid, std::uint16_t lid);
/// Returns whether the queue pair is attached to a multicast group. An attached queue pair cannot
/// be destroyed.
[[nodiscard]] bool is_attached(const Qp& qp);

/// Returns the queue pairs of this process that are attached to the multicast GID.
[[nodiscard]] std::vector<Qp*> multicast_members(const ibv_gid& gid);

} // namespace softverbs
