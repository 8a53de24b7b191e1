// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "objects/device.hpp"

namespace softverbs {

[[nodiscard]] bool is_profile(std::string_view name);
/// Returns the names of all profiles, separated by commas. Used in error texts.
[[nodiscard]] std::string profile_names();

/// Initializes a device according to a profile.
/// @param index    index of the device, from 0
/// @param profile  name of the profile, which must exist
/// @param address  address of this host that the device uses; zeros if SOFTVERBS_NETWORK is not set
void describe(Device& device, unsigned index, std::string_view profile, bool ethernet,
              const fabric::HostAddress& address);

} // namespace softverbs
