// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <softverbs/softverbs.h>
#include <stdlib.h>

#include <filesystem>
#include <sstream>

namespace softverbs::tools {

namespace {

std::vector<std::string> profiles() {
    std::istringstream names(softverbs_profile_names());
    return {std::istream_iterator<std::string>(names), {}};
}

void set(const char* variable, const std::string& value) {
    if (!value.empty()) {
        ::setenv(variable, value.c_str(), 1);
    }
}

} // namespace

void DeviceOptions::add_to(CLI::App& command) {
    command.add_option("--devices", devices, "Number of devices, 1 to 8: soft0, soft1, ...")
        ->check([](const std::string& number) {
            return number.size() == 1 && number >= "1" && number <= "8"
                       ? std::string()
                       : "\"" + number + "\" is not a number from 1 to 8";
        })
        ->type_name("N");
    command.add_option("--profile", profile, "Kind of device; see below")
        ->check([](const std::string& name) {
            std::string all;
            for (const std::string& known : profiles()) {
                if (name == known) {
                    return std::string();
                }
                all += (all.empty() ? "" : ", ") + known;
            }
            return "there is no profile \"" + name + "\"; the profiles are " + all;
        })
        ->type_name("NAME");
    command.add_option("--link-layer", link_layer, "infiniband or ethernet (RoCE)")
        ->check([](const std::string& name) {
            return name == "infiniband" || name == "ethernet"
                       ? std::string()
                       : "\"" + name + "\" is not infiniband or ethernet";
        })
        ->type_name("LAYER");
    command.add_option("--faults", faults, "Faults to inject: reg_mr#3=ENOMEM,...")
        ->type_name("LIST");
    command.add_option("--dir", directory, "Directory where processes meet")->type_name("DIR");
    command.add_option("--network", network, "unprotected-tcp: reach other hosts")
        ->type_name("KIND");
    command.add_option("--secret-file", secret_file, "Secret of the hosts, with --network")
        ->type_name("FILE");
    command.add_flag("--only", only, "Hide the devices of the real libibverbs");
}

void DeviceOptions::set_environment() const {
    set("SOFTVERBS_DEVICES", devices);
    set("SOFTVERBS_PROFILE", profile);
    set("SOFTVERBS_LINK_LAYER", link_layer);
    set("SOFTVERBS_FAULTS", faults);
    set("SOFTVERBS_NETWORK", network);
    // Make paths absolute, because the program may change its working directory.
    if (!directory.empty()) {
        set("SOFTVERBS_DIR", std::filesystem::absolute(directory));
    }
    if (!secret_file.empty()) {
        set("SOFTVERBS_SECRET_FILE", std::filesystem::absolute(secret_file));
    }
    if (only) {
        set("SOFTVERBS_ONLY", "1");
    }
}

} // namespace softverbs::tools
