// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf resources`.
#include "../command.hpp"

#include <memory>
#include <string>
#include <vector>

#include "../command_line.hpp"
#include "../names.hpp"
#include "../options.hpp"
#include "kernel_resources.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools {

namespace {

constexpr const char* resources_description =
    R"(Lists the verbs objects that exist in the kernel on each RDMA device: their
numbers and limits, and the queue pairs and memory regions with their owners.
)";

constexpr const char* resources_notes =
    R"(The command queries the kernel by NETLINK_RDMA. Without root, the kernel lists
only objects of processes in the PID namespace of the command. Devices of
softverbs have no objects in the kernel.

Examples:
  rdmabuf resources
  rdmabuf resources --json | jq '.devices[] | {name, mr: .counts.mr}'

Exit status: 0 the kernel listed at least one device, 1 it did not, or another
failure, 2 wrong command line.)";

struct ResourcesOptions {
    std::string device;
    bool json = false;
};

/// Removes all devices except the one of --device.
/// @throws UsageError if the kernel does not list this device
void select(resources::Report& report, const std::string& device) {
    std::vector<std::string> names;
    names.reserve(report.devices.size());
    for (const auto& each : report.devices) {
        names.push_back(each.name);
    }
    std::erase_if(report.devices, [&device](const auto& each) { return each.name != device; });
    if (!names.empty() && report.devices.empty()) {
        throw UsageError(fmt::format("the kernel does not list --device {}{}", device,
                                     suggestion(device, names)));
    }
}

int run_resources(const ResourcesOptions& options) {
    resources::Report report = resources::read_resources();
    if (!options.device.empty()) {
        select(report, options.device);
    }
    write_stdout(options.json ? resources::to_json(report)
                              : resources::to_text(report, style_of_stdout()));
    return report.devices.empty() ? exit_failure : exit_success;
}

} // namespace

Command add_resources(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("resources", "List queue pairs and regions in the kernel");
    auto options = std::make_shared<ResourcesOptions>();
    app->set_help_flag();
    app->option_defaults()->group("Device");
    add_option(*app, "--device", "NAME", options->device, "List only this device");
    add_output_options(*app, options->json);
    app->footer(resources_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf resources --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(resources_description); });
    return {.app = app, .run = [options] { return run_resources(*options); }};
}

} // namespace rdmabuf::tools
