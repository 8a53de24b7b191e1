// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace softverbs::tools {

/// Device options of `softverbs run` and `softverbs devices`. Each option that is not empty sets an
/// environment variable.
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
    void set_environment() const;
};

} // namespace softverbs::tools
