// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "objects/device.hpp"

// Address handle numbers of the device profile efa. As on EFA, all address handles of a protection
// domain with the same destination GID have the same number. If the receiver has an address handle
// for the sender, ibv_wc::slid of a receive completion is the number of this address handle. The
// caller of these functions must hold Process::lock.

namespace softverbs {

/// Returns the number for a new address handle with the destination GID @p gid. Returns no value if
/// all numbers are in use. Throws std::bad_alloc.
[[nodiscard]] std::optional<std::uint16_t> take_ah_number(const Pd& pd, const ibv_gid& gid);
/// Must be called when an address handle with the destination GID @p gid is destroyed. The number
/// becomes free when the last such address handle is destroyed.
void release_ah_number(const Pd& pd, const ibv_gid& gid) noexcept;
/// Returns the AH number that the address handles with the destination GID @p gid share, or
/// efa::unknown_ah if no address handle has this GID.
[[nodiscard]] std::uint16_t find_ah_number(const Pd& pd, const ibv_gid& gid) noexcept;

} // namespace softverbs
