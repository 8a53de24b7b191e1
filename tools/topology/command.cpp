// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf topology`.
#include "../command.hpp"

#include <exception>
#include <memory>
#include <string>

#include <rdmabuf/context.hpp>

#include "../command_line.hpp"
#include "../options.hpp"
#include "machine.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* topology_description =
    R"(Prints the tree of PCI bridges with NICs and GPUs, the best NIC for each GPU
and for host memory of each NUMA node, and the type of each path between them.
)";

constexpr const char* topology_notes =
    R"(The path types are those of NCCL and of nvidia-smi topo -m, from near to far:
  PIX   at most one PCIe switch, no host bridge
  PXB   several PCIe switches, no host bridge
  PHB   one PCIe host bridge
  NODE  two host bridges of one NUMA node
  SYS   the interconnect between NUMA nodes
  ?     sysfs does not describe the path
A path by the data-direct function of a NIC has the mark *. sysfs does not show
chip-to-chip links of GPUs (NVLink-C2C), so no path has the type C2C here. If
several NICs are equal, GPUs of one model get different NICs.

Examples:
  rdmabuf topology
  rdmabuf topology --json | jq '.memory[] | {gpu, best: .nics[0].nic}'

Exit status: 0 the machine has a NIC, 1 it has none or another failure, 2 wrong
command line.)";

struct TopologyOptions {
    std::string root = "/";
    bool json = false;
};

/// Sets the data-direct functions of the NICs that can be opened. The topology then shows no
/// data-direct function for the other NICs, even if they have one.
void query_data_direct(Topology& machine) {
    try {
        const DeviceList list;
        for (const Device& device : list) {
            try {
                static_cast<void>(machine.query_data_direct(Context(device)));
            } catch (const std::exception&) {
                // The NIC stays in the topology without a data-direct function.
                continue;
            }
        }
    } catch (const std::exception&) {
        // Without ib_uverbs no device can be queried, and sysfs still describes the NICs.
        return;
    }
}

int run_topology(const TopologyOptions& options) {
    Topology machine = Topology::read(options.root);
    if (options.root == "/") {
        query_data_direct(machine);
    }
    write_stdout(options.json ? topology::to_json(machine)
                              : topology::to_text(machine, style_of_stdout()));
    return machine.nics().empty() ? exit_failure : exit_success;
}

} // namespace

Command add_topology(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("topology", "Print the tree of NICs and GPUs, and their distances");
    auto options = std::make_shared<TopologyOptions>();
    app->set_help_flag();
    app->option_defaults()->group("Machine");
    add_option(*app, "--root", "DIR", options->root,
               "Read sys below this directory, for example a copy from another machine (default /)")
        ->check(CLI::ExistingDirectory);
    add_output_options(*app, options->json);
    app->footer(topology_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf topology --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(topology_description); });
    return {.app = app, .run = [options] { return run_topology(*options); }};
}

} // namespace rdmabuf::tools
