// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace softverbs::tools {

/// The device options of `softverbs run` and `softverbs devices`. Each sets one environment
/// variable; an empty option leaves its variable unchanged.
struct DeviceOptions {
    std::string devices;
    std::string profile;
    std::string link_layer;
    std::string faults;
    std::string directory;
    std::string network;
    std::string secret_file;
    bool only = false;

    void add_to(CLI::App& command);
    /// Sets the variables in this process.
    void set_environment() const;
};

} // namespace softverbs::tools
