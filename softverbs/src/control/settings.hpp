// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/network_settings.hpp"
#include "objects/device.hpp"

namespace softverbs {

inline constexpr unsigned max_devices = 8;

/// The settings from the SOFTVERBS_* environment variables.
struct Settings {
    std::string profile = "default";
    unsigned devices = 1;
    bool ethernet = false;
    std::string faults;
    std::string disorder;
    /// Hides the devices of the real libibverbs.
    bool only = false;
    /// Settings of the network between hosts, which is disabled if there is no address.
    fabric::NetworkSettings network;
};

/// Reads SOFTVERBS_PROFILE, SOFTVERBS_DEVICES, SOFTVERBS_LINK_LAYER, SOFTVERBS_FAULTS,
/// SOFTVERBS_DISORDER and SOFTVERBS_ONLY, and for the network between hosts SOFTVERBS_NETWORK,
/// SOFTVERBS_SECRET_FILE, SOFTVERBS_PORT and SOFTVERBS_ADDRESS. An invalid value ends the process
/// with a message on stderr, because running with other settings would mislead the user.
[[nodiscard]] Settings settings_from_environment();

/// Prints the valid values of the variable on stderr, and ends the process.
[[noreturn]] void refuse_setting(const char* variable, std::string_view value,
                                 std::string_view expected);

/// Creates the devices of a profile, which must exist.
[[nodiscard]] std::vector<std::unique_ptr<Device>> describe_devices(const Settings& settings);

} // namespace softverbs
