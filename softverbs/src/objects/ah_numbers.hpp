// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "objects/device.hpp"

// Address handle numbers of the profile efa. As on EFA, all address handles of a protection domain
// with the same destination GID have the same number. A receive completion contains the number of
// the address handle that leads to the sender, if the receiver has one. The caller holds
// Process::lock.

namespace softverbs {

/// Returns the number for a new address handle. Returns no value if all numbers are in use. Throws
/// std::bad_alloc.
[[nodiscard]] std::optional<std::uint16_t> take_ah_number(const Pd& pd, const ibv_gid& gid);
/// Must be called when an address handle is destroyed.
void release_ah_number(const Pd& pd, const ibv_gid& gid) noexcept;
/// Returns the number of the address handles with this GID. Returns efa::unknown_ah if there are
/// none.
[[nodiscard]] std::uint16_t find_ah_number(const Pd& pd, const ibv_gid& gid) noexcept;

} // namespace softverbs
