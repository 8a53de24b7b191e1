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
inline constexpr unsigned max_registration_delay_ms = 10'000;

/// The settings from the SOFTVERBS_* environment variables.
struct Settings {
    std::string profile = "default";
    unsigned devices = 1;
    bool ethernet = false;
    std::string faults;
    std::string disorder;
    /// Duration of each registration in milliseconds; 0: registrations are not delayed.
    unsigned registration_delay_ms = 0;
    /// Whether the clock is stopped from the beginning.
    bool manual_clock = false;
    /// Whether real RDMA devices are hidden from the program.
    bool only = false;
    /// Settings of the network between hosts. If network.addresses is empty, this network is
    /// disabled.
    fabric::NetworkSettings network;
};

/// Reads the environment variables for all members of Settings; README.md describes the variables.
/// If the value of a variable is invalid, ends the process with a message on stderr: a test that
/// ran with default values instead would mislead the user.
[[nodiscard]] Settings settings_from_environment();

/// Prints the invalid value of the environment variable @p variable and its valid values on stderr.
/// Ends the process with exit status 2.
[[noreturn]] void refuse_setting(const char* variable, std::string_view value,
                                 std::string_view expected);

/// Creates the devices that @p settings describes. Settings::profile must be the name of an
/// existing profile (a set of device attributes).
[[nodiscard]] std::vector<std::unique_ptr<Device>> describe_devices(const Settings& settings);

[[nodiscard]] bool is_profile(std::string_view name);
/// Returns the names of all profiles, separated by commas. Used in error texts.
[[nodiscard]] std::string profile_names();

/// Initializes a device according to a profile. Also sets has_short_qp_numbers.
/// @param index    index of the device, from 0
/// @param profile  name of the profile, which must exist
/// @param address  address of this host that the device uses; zeros if SOFTVERBS_NETWORK is not set
void describe(Device& device, unsigned index, std::string_view profile, bool ethernet,
              const fabric::HostAddress& address);

} // namespace softverbs
