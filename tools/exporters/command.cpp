// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf exporters`.
#include "../command.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "../command_line.hpp"
#include "../names.hpp"
#include "../options.hpp"
#include "exporter_info.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* exporters_description =
    R"(Lists the exporters of dma-bufs: whether each can be used on this machine, or
the reason why not, and the versions of the kernel modules of its driver.
)";

constexpr const char* exporters_notes =
    R"(The command loads the driver of each exporter, such as libcuda.so.1, and
initialises it. "when pinned" is the entry of the exporter in the tables of
rdmabuf: what happens to the memory when a NIC pins it.

Examples:
  rdmabuf exporters
  rdmabuf exporters --exporter cuda && echo "CUDA memory can be exported"

Exit status: 0 at least one of the listed exporters is available, 1 none or
another failure, 2 wrong command line.)";

struct ExportersOptions {
    std::string exporter;
    bool json = false;
};

int run_exporters(const ExportersOptions& options) {
    exporters::Report report;
    for (const std::string& name : exporters::all_names()) {
        if (options.exporter.empty() || options.exporter == name) {
            report.exporters.push_back(exporters::query(name));
        }
    }
    write_stdout(options.json ? to_json(report) : to_text(report, style_of_stdout()));
    const bool usable = std::ranges::any_of(report.exporters, [](const auto& exporter) {
        return exporter.built && exporter.standalone && exporter.availability.available;
    });
    return usable ? exit_success : exit_failure;
}

} // namespace

Command add_exporters(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("exporters", "List exporters of dma-bufs and their state");
    auto options = std::make_shared<ExportersOptions>();
    app->set_help_flag();
    app->option_defaults()->group("Exporter");
    add_option(*app, "--exporter", "NAME", options->exporter, "List only this exporter")
        ->check(OneOf(exporters::all_names()));
    add_output_options(*app, options->json);
    app->footer(exporters_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf exporters --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(exporters_description); });
    return {.app = app, .run = [options] { return run_exporters(*options); }};
}

} // namespace rdmabuf::tools
