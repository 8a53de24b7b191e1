// SPDX-License-Identifier: BSD-3-Clause
#include "control/settings.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "control/profile.hpp"

namespace softverbs {

namespace {

std::string_view variable(const char* name) {
    // A program with more privileges than its user does not take the user's word.
    const char* const value = ::secure_getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
}

} // namespace

void refuse_setting(const char* variable, std::string_view value, std::string_view expected) {
    std::fprintf(stderr, "softverbs: %s is \"%.*s\", and has to be %.*s\n", variable,
                 static_cast<int>(value.size()), value.data(), static_cast<int>(expected.size()),
                 expected.data());
    std::fflush(stderr);
    ::_exit(2);
}

Settings settings_from_environment() {
    Settings settings;
    if (const auto profile = variable("SOFTVERBS_PROFILE"); !profile.empty()) {
        if (!is_profile(profile)) {
            refuse_setting("SOFTVERBS_PROFILE", profile, "one of " + profile_names());
        }
        settings.profile = profile;
    }
    if (const auto devices = variable("SOFTVERBS_DEVICES"); !devices.empty()) {
        const auto [end, error] =
            std::from_chars(devices.data(), devices.data() + devices.size(), settings.devices);
        if (error != std::errc() || end != devices.data() + devices.size() ||
            settings.devices < 1 || settings.devices > max_devices) {
            refuse_setting("SOFTVERBS_DEVICES", devices,
                           "a number from 1 to " + std::to_string(max_devices));
        }
    }
    if (const auto layer = variable("SOFTVERBS_LINK_LAYER"); !layer.empty()) {
        if (layer != "ethernet" && layer != "infiniband") {
            refuse_setting("SOFTVERBS_LINK_LAYER", layer, "infiniband or ethernet");
        }
        settings.ethernet = layer == "ethernet";
    }
    settings.faults = variable("SOFTVERBS_FAULTS");
    return settings;
}

std::vector<std::unique_ptr<Device>> describe_devices(const Settings& settings) {
    std::vector<std::unique_ptr<Device>> devices;
    for (unsigned i = 0; i < settings.devices; ++i) {
        devices.push_back(std::make_unique<Device>());
        describe(*devices.back(), i, settings.profile, settings.ethernet);
    }
    return devices;
}

} // namespace softverbs
