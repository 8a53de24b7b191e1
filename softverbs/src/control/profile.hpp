// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "objects/device.hpp"

namespace softverbs {

[[nodiscard]] bool is_profile(std::string_view name);
/// "default, mlx5, …", for texts.
[[nodiscard]] std::string profile_names();

/// Makes @p device number @p index of the kind that the profile is. The profile has to be one.
/// @param address  of this host, for a network between hosts; zeros: there is no such network
void describe(Device& device, unsigned index, std::string_view profile, bool ethernet,
              const fabric::HostAddress& address);

} // namespace softverbs
