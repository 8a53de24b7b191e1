// SPDX-License-Identifier: BSD-3-Clause
#include <stdlib.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "options.hpp"
#include "subcommands.hpp"

#include <CLI/CLI.hpp>

namespace {

constexpr int usage_error = 2;

constexpr char run_footer[] = R"(Profiles:
  default     all of verbs, on-demand paging, 8 MiB of device memory
  mlx5        a ConnectX-5: 128 KiB of device memory, atomics among NICs
  efa         SRD and UD queue pairs only: no atomics, no device memory
  bnxt        a Thor of Broadcom: no UC, no device memory, no memory windows
  irdma       an E810 of Intel: no shared receive queues, no UC, no atomics
  rxe         Soft-RoCE: no dma-bufs, no device memory
  old-kernel  dma-bufs are EPROTONOSUPPORT, as before Linux 5.12
  small-mr    regions of at most 1 MiB

Children of the command find the same devices. Exit status: the command's; 127
when it is not found, 126 when it cannot be run, 2 for a wrong option.

Example, in two terminals:
  softverbs run -- ibv_rc_pingpong
  softverbs run -- ibv_rc_pingpong localhost)";

/// Replaces the usage lines of the subcommands run and devices. CLI11 in Debian 12 has no function
/// to set these lines.
class HelpFormatter : public CLI::Formatter {
  public:
    std::string make_usage(const CLI::App* app, std::string name) const override {
        const std::string& command = app->get_name();
        if (command == "run") {
            return run_usage;
        }
        return command == "devices" ? "usage: softverbs devices [option...]\n"
                                    : CLI::Formatter::make_usage(app, std::move(name));
    }

    static constexpr char run_usage[] =
        "usage: softverbs run [option...] [--] COMMAND [argument...]\n";
};

/// Options of the subcommands fault, port and reset-device, which send a command to a running
/// process.
struct RemoteOptions {
    int process = 0;
    std::string directory;
    std::string faults;
    std::string state;
    unsigned device = 0;
    unsigned port = 1;

    void add_to(CLI::App& command) {
        command.add_option("--pid", process, "The process")->required()->type_name("P");
        command.add_option("--dir", directory, "Directory where processes meet")->type_name("DIR");
    }
};

int run_command(int argc, char** argv) {
    using namespace softverbs::tools;
    CLI::App app("A software RDMA device for programs that use verbs.", "softverbs");
    app.set_version_flag("--version", "softverbs " SOFTVERBS_VERSION, "Print the version");
    app.require_subcommand(1);
    const auto formatter = std::make_shared<HelpFormatter>();
    formatter->column_width(26);
    app.formatter(formatter);

    DeviceOptions options;
    CLI::App* const run_app = app.add_subcommand("run", "Run a command on the software device");
    options.add_to(*run_app);
    run_app->footer(run_footer);
    run_app->prefix_command();

    CLI::App* const devices_app =
        app.add_subcommand("devices", "List the devices that a command finds");
    options.add_to(*devices_app);

    RemoteOptions remote;
    CLI::App* const fault_app = app.add_subcommand("fault", "Inject faults into a running process");
    remote.add_to(*fault_app);
    fault_app
        ->add_option("FAULTS", remote.faults,
                     "reg_mr#3=ENOMEM,packet#5=drop,slow:20ms; replaces all earlier")
        ->required()
        ->type_name("");
    CLI::App* const port_app = app.add_subcommand("port", "Change a port of a running process");
    remote.add_to(*port_app);
    port_app->add_option("--port", remote.port, "Port number, from 1 (default 1)")->type_name("N");
    port_app->add_option("STATE", remote.state, "up, down, or flap:100ms*5")
        ->required()
        ->type_name("");
    CLI::App* const reset_app =
        app.add_subcommand("reset-device", "Fail a device of a running process");
    remote.add_to(*reset_app);
    for (CLI::App* const sub_app : {port_app, reset_app}) {
        sub_app->add_option("--device", remote.device, "Device number, from 0 (default 0)")
            ->type_name("N");
    }

    // Let CLI11 parse only the arguments before the first "--". The arguments after "--" are added
    // to the command to run, which can begin before or after the "--".
    char** const end = argv + argc;
    char** const separator = std::find_if(
        argv, end, [](const char* argument) { return std::string_view(argument) == "--"; });
    try {
        app.parse(static_cast<int>(separator - argv), argv);
        // CLI11 regards an unknown option as the beginning of the command. Report an error instead.
        if (const auto rest = run_app->remaining();
            !rest.empty() && rest.front().starts_with('-')) {
            throw CLI::ParseError("run has no option '" + rest.front() + "'", usage_error);
        }
    } catch (const CLI::Success& help_or_version) {
        return app.exit(help_or_version);
    } catch (const CLI::ParseError& error) {
        std::cerr << "softverbs: " << error.what() << "\n"
                  << "Try \"softverbs --help\" or \"softverbs run --help\".\n";
        return usage_error;
    }
    if (!remote.directory.empty()) {
        ::setenv("SOFTVERBS_DIR", remote.directory.c_str(), 1);
    }
    if (fault_app->parsed()) {
        return send_command(remote.process, "fault " + remote.faults);
    }
    if (port_app->parsed()) {
        return send_command(remote.process, "port " + std::to_string(remote.device) + " " +
                                                std::to_string(remote.port) + " " + remote.state);
    }
    if (reset_app->parsed()) {
        return send_command(remote.process, "reset-device " + std::to_string(remote.device));
    }
    options.set_environment();
    if (devices_app->parsed()) {
        return list_devices();
    }
    std::vector<std::string> command = run_app->remaining();
    const bool separator_is_the_commands = !command.empty();
    command.insert(command.end(),
                   separator_is_the_commands || separator == end ? separator : separator + 1, end);
    if (command.empty()) {
        std::cerr << "softverbs: there is no command to run\n" << HelpFormatter::run_usage;
        return usage_error;
    }
    return run(command);
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_command(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "softverbs: " << error.what() << "\n";
        return 1;
    }
}
