// SPDX-License-Identifier: BSD-3-Clause
#include "control/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "control/text.hpp"
#include "fabric/environment.hpp"

namespace softverbs {

using fabric::environment_variable;

namespace {

[[noreturn]] void refuse(const std::string& text) {
    std::fprintf(stderr, "softverbs: %s\n", text.c_str());
    std::fflush(stderr);
    ::_exit(2);
}

std::uint16_t first_port() {
    const auto port = environment_variable("SOFTVERBS_PORT");
    if (port.empty()) {
        return fabric::default_first_port;
    }
    const auto number = parse_number<std::uint16_t>(port);
    if (!number || *number < 1024 || *number > fabric::highest_first_port) {
        refuse_setting("SOFTVERBS_PORT", port,
                       "a number from 1024 to " + std::to_string(fabric::highest_first_port) +
                           ", the first of " + std::to_string(fabric::network_ports) +
                           " TCP ports");
    }
    return *number;
}

/// Returns the host addresses of the devices, one per device, from SOFTVERBS_ADDRESS or the network
/// interfaces. Ends the process if there are fewer addresses than devices, or if SOFTVERBS_ADDRESS
/// contains an invalid or repeated address, or one that is not of this host.
std::vector<fabric::HostAddress> own_addresses(unsigned devices) {
    const auto there_are = fabric::addresses_of_this_host();
    const auto list = environment_variable("SOFTVERBS_ADDRESS");
    std::vector<fabric::HostAddress> addresses = list.empty() ? there_are : decltype(there_are){};
    for (std::size_t at = 0; !list.empty() && at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        const auto address = fabric::parse_host_address(std::string(list.substr(at, end - at)));
        if (!address || std::ranges::find(there_are, *address) == there_are.end() ||
            std::ranges::find(addresses, *address) != addresses.end()) {
            std::string possible;
            for (const auto& one : there_are) {
                possible += (possible.empty() ? "" : ", ") + to_string(one);
            }
            refuse_setting("SOFTVERBS_ADDRESS", list,
                           possible.empty() ? "an address of a network interface that is up; this "
                                              "host has only loopback"
                                            : "one or more of: " + possible);
        }
        addresses.push_back(*address);
        at = end + 1;
    }
    if (addresses.size() < devices) {
        refuse(
            "SOFTVERBS_NETWORK=unprotected-tcp needs an address of this host for each device; "
            "there are " +
            std::to_string(addresses.size()) + " addresses and " + std::to_string(devices) +
            " devices; add an address to a network interface that is up" +
            (list.empty() ? "" : ", or list more in SOFTVERBS_ADDRESS"));
    }
    addresses.resize(devices);
    return addresses;
}

fabric::NetworkSettings network_from_environment(unsigned devices) {
    const std::string secret_file(environment_variable("SOFTVERBS_SECRET_FILE"));
    if (secret_file.empty()) {
        refuse(
            "SOFTVERBS_NETWORK=unprotected-tcp needs a secret that all hosts share; make a file "
            "with: "
            "(umask 077; head -c 32 /dev/urandom >FILE), copy it to all hosts, and set "
            "SOFTVERBS_SECRET_FILE to its path");
    }
    try {
        return {own_addresses(devices), first_port(), fabric::read_secret(secret_file)};
    } catch (const std::system_error& error) {
        refuse(error.what());
    }
}

} // namespace

void refuse_setting(const char* variable, std::string_view value, std::string_view expected) {
    refuse(std::string(variable) + " is \"" + std::string(value) + "\", and has to be " +
           std::string(expected));
}

Settings settings_from_environment() {
    Settings settings;
    if (const auto profile = environment_variable("SOFTVERBS_PROFILE"); !profile.empty()) {
        if (!is_profile(profile)) {
            refuse_setting("SOFTVERBS_PROFILE", profile, "one of " + profile_names());
        }
        settings.profile = profile;
    }
    if (const auto devices = environment_variable("SOFTVERBS_DEVICES"); !devices.empty()) {
        const auto number = parse_number(devices);
        if (!number || *number < 1 || *number > max_devices) {
            refuse_setting("SOFTVERBS_DEVICES", devices,
                           "a number from 1 to " + std::to_string(max_devices));
        }
        settings.devices = *number;
    }
    if (const auto layer = environment_variable("SOFTVERBS_LINK_LAYER"); !layer.empty()) {
        if (layer != "ethernet" && layer != "infiniband") {
            refuse_setting("SOFTVERBS_LINK_LAYER", layer, "infiniband or ethernet");
        }
        settings.ethernet = layer == "ethernet";
    }
    settings.faults = environment_variable("SOFTVERBS_FAULTS");
    settings.disorder = environment_variable("SOFTVERBS_DISORDER");
    if (const auto text = environment_variable("SOFTVERBS_REGISTRATION_DELAY"); !text.empty()) {
        const auto delay = parse_milliseconds(text);
        if (!delay || *delay > max_registration_delay_ms) {
            refuse_setting("SOFTVERBS_REGISTRATION_DELAY", text,
                           "a number of milliseconds from 0ms to " +
                               std::to_string(max_registration_delay_ms) + "ms");
        }
        settings.registration_delay_ms = *delay;
    }
    if (const auto clock = environment_variable("SOFTVERBS_CLOCK"); !clock.empty()) {
        if (clock != "manual") {
            refuse_setting("SOFTVERBS_CLOCK", clock, "manual, or not set");
        }
        settings.manual_clock = true;
    }
    if (const auto network = environment_variable("SOFTVERBS_NETWORK"); !network.empty()) {
        if (network != "unprotected-tcp") {
            refuse_setting("SOFTVERBS_NETWORK", network,
                           "unprotected-tcp (anyone on the path can read and change the data), or "
                           "not set");
        }
        if (environment_variable("SOFTVERBS_LINK_LAYER") == "infiniband") {
            refuse_setting("SOFTVERBS_LINK_LAYER", "infiniband",
                           "ethernet, or not set, with SOFTVERBS_NETWORK=unprotected-tcp");
        }
        settings.ethernet = true;
        settings.network = network_from_environment(settings.devices);
    } else {
        for (const char* const variable :
             {"SOFTVERBS_ADDRESS", "SOFTVERBS_PORT", "SOFTVERBS_SECRET_FILE"}) {
            if (const auto value = environment_variable(variable); !value.empty()) {
                refuse_setting(variable, value,
                               "unset, or used with SOFTVERBS_NETWORK=unprotected-tcp");
            }
        }
    }
    if (const auto only = environment_variable("SOFTVERBS_ONLY"); !only.empty()) {
        if (only != "0" && only != "1") {
            refuse_setting("SOFTVERBS_ONLY", only, "0 or 1");
        }
        settings.only = only == "1";
    }
    return settings;
}

std::vector<std::unique_ptr<Device>> describe_devices(const Settings& settings) {
    std::vector<std::unique_ptr<Device>> devices;
    for (unsigned i = 0; i < settings.devices; ++i) {
        devices.push_back(std::make_unique<Device>());
        const bool has_address = i < settings.network.addresses.size();
        describe(*devices.back(), i, settings.profile, settings.ethernet,
                 has_address ? settings.network.addresses[i] : fabric::HostAddress{});
    }
    return devices;
}

} // namespace softverbs
