// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "options.hpp"
#include "run.hpp"

#include <CLI/CLI.hpp>

namespace {

constexpr int usage_error = 2;

constexpr char run_footer[] = R"(Profiles:
  default     all of verbs, on-demand paging, 8 MiB of device memory
  mlx5        a ConnectX-5: 128 KiB of device memory, atomics among NICs
  efa         no atomics, no device memory, no memory windows
  rxe         no dma-bufs, no device memory
  old-kernel  dma-bufs are EPROTONOSUPPORT, as before Linux 5.12
  small-mr    regions of at most 1 MiB

Children of the command find the same devices. Exit status: the command's; 127
when it is not found, 126 when it cannot be run, 2 for a wrong option.

Example, in two terminals:
  softverbs run -- ibv_rc_pingpong
  softverbs run -- ibv_rc_pingpong localhost)";

/// CLI11 of Debian 12 cannot set the line of a command's usage.
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

int run_command(int argc, char** argv) {
    using namespace softverbs::tools;
    CLI::App app("A software RDMA device for programs that use verbs.", "softverbs");
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

    // Everything behind "--" is the command's, which CLI11 would take for arguments of this
    // program.
    char** const end = argv + argc;
    char** const separator = std::find_if(
        argv, end, [](const char* argument) { return std::string_view(argument) == "--"; });
    try {
        app.parse(static_cast<int>(separator - argv), argv);
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        std::cerr << "softverbs: " << error.what() << "\n"
                  << "Try \"softverbs --help\" or \"softverbs run --help\".\n";
        return usage_error;
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
