// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "objects/device.hpp"

namespace softverbs {

inline constexpr unsigned max_devices = 8;

/// What the environment asks for.
struct Settings {
    std::string profile = "default";
    unsigned devices = 1;
    bool ethernet = false;
    std::string faults;
};

/// SOFTVERBS_PROFILE, SOFTVERBS_DEVICES, SOFTVERBS_LINK_LAYER, SOFTVERBS_FAULTS. Ends the process
/// when one of them says what cannot be: running something else would mislead.
[[nodiscard]] Settings settings_from_environment();

/// Says on stderr what the variable can be, and ends the process.
[[noreturn]] void refuse_setting(const char* variable, std::string_view value,
                                 std::string_view expected);

/// The devices, of a profile that exists.
[[nodiscard]] std::vector<std::unique_ptr<Device>> describe_devices(const Settings& settings);

} // namespace softverbs
