// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf devices`.
#include "../command.hpp"

#include <memory>
#include <string>

#include <rdmabuf/error.hpp>

#include "../command_line.hpp"
#include "../options.hpp"
#include "device_info.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* devices_description =
    R"(Lists the RDMA devices of this machine with their ports and GIDs, and with the
limits and features that matter for dma-bufs and device memory.
)";

constexpr const char* devices_notes =
    R"("dma-buf import" is the result of a probe: the device, its provider and this
kernel can register dma-bufs. "kernel driver" is the entry of the driver in the
tables of rdmabuf, which were made from sources, not from tests on hardware.

Examples:
  rdmabuf devices
  rdmabuf devices --device mlx5_0 --json | jq '.devices[0].limits'

Exit status: 0 at least one device can be opened, 1 there is none or another
failure, 2 wrong command line.)";

struct DevicesOptions {
    std::string device;
    bool json = false;
};

devices::Report read(const DevicesOptions& options) {
    devices::Report report;
    try {
        const DeviceList list;
        const Topology topology = Topology::read();
        if (!options.device.empty()) {
            report.devices.push_back(devices::query(find_device(list, options.device), topology));
            return report;
        }
        // DeviceList::front() throws if the list is empty. Its Error has a hint that names the
        // likely causes.
        static_cast<void>(list.front());
        for (const Device& device : list) {
            report.devices.push_back(devices::query(device, topology));
        }
    } catch (const Error& error) {
        report.reason = error.hint().empty() ? error.what() : error.hint();
    }
    return report;
}

int run_devices(const DevicesOptions& options) {
    const devices::Report report = read(options);
    write_stdout(options.json ? to_json(report) : to_text(report, style_of_stdout()));
    for (const devices::DeviceInfo& device : report.devices) {
        if (device.opened) {
            return exit_success;
        }
    }
    return exit_failure;
}

} // namespace

Command add_devices(CLI::App& program) {
    CLI::App* const app = program.add_subcommand("devices", "List RDMA devices, ports and limits");
    auto options = std::make_shared<DevicesOptions>();
    app->set_help_flag();
    app->option_defaults()->group("Device");
    add_option(*app, "--device", "NAME", options->device, "List only this device");
    add_output_options(*app, options->json);
    app->footer(devices_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf devices --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(devices_description); });
    return {.app = app, .run = [options] { return run_devices(*options); }};
}

} // namespace rdmabuf::tools
