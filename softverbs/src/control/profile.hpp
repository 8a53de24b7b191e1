// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "objects/device.hpp"

namespace softverbs {

[[nodiscard]] bool is_profile(std::string_view name);
/// The names of all profiles, separated by commas, for messages.
[[nodiscard]] std::string profile_names();

/// Sets all properties of a device to those of a profile.
/// @param index  number of the device, from 0
/// @param profile  its name, which must exist
/// @param address  of this host, for a network between hosts; zeros: there is no such network
void describe(Device& device, unsigned index, std::string_view profile, bool ethernet,
              const fabric::HostAddress& address);

} // namespace softverbs
