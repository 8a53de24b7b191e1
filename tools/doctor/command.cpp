// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf doctor`.
#include "../command.hpp"

#include <memory>
#include <string>

#include "../command_line.hpp"
#include "options.hpp"
#include "run.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* doctor_description =
    R"(Checks whether RDMA on dma-bufs and device memory works on this machine. Says
for each condition whether it is met, what a failure means and what to do. Then
writes and reads each memory by each NIC, and compares the bytes.
)";

constexpr const char* doctor_notes =
    R"(Each line has the verdict and what a failure does: "block" no dma-buf can be
registered, or data cannot be transferred, by the named GPU or NIC or at all;
"p2p" the NIC cannot access memory of the GPU directly, "slow" transfers are
slower, "gpu" only operations that the GPU posts fail, "note" no effect by
itself.

A proof allocates memory, registers it as register_memory() does, writes and
reads it by RDMA at odd offsets, and compares all bytes where the memory is. A
proof with host memory shows that the NIC works, and does not count for the
exit status. Run the command as root to see the registers of PCI bridges.

--root and --replay check another machine by a file that --dump wrote there, by
the output of `rdma_topo dump` of rdma-core, which has only the PCI functions,
or by a copy of its directories sys, proc and dev. docs/troubleshooting.md says
how to make the copy.

Examples:
  rdmabuf doctor
  rdmabuf doctor --device mlx5_0 --gpu 0 --pair
  rdmabuf doctor --gpu 0000:17:00.0 --require dmabuf >/dev/null && echo healthy
  rdmabuf doctor --failed
  rdmabuf doctor --dump node17.json; rdmabuf doctor --replay node17.json
  rdmabuf doctor --json --failed | jq '.findings[].remedy'

Exit status: 0 at least one pair of memory and NIC was proven in both
directions: with memory of a GPU if PCI lists one that is more than a display
controller or --gpu selects one, otherwise also if only memory on the NIC was
proven and no dma-buf (the result says so); 1 each pair has a failure that
excludes it, and the cause is in the output; 2 it is not known, or wrong
command line. With --fix-script and --emit-env: 0.)";

struct DoctorParsed {
    doctor::Options options;
    std::string required;
};

} // namespace

Command add_doctor(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("doctor", "Find out if RDMA on device memory works, and why not");
    auto parsed = std::make_shared<DoctorParsed>();
    doctor::Options& options = parsed->options;
    app->set_help_flag();
    app->option_defaults()->group("Selection");
    add_option(*app, "--device", "NAME", options.device, "Only this RDMA device (default: all)");
    add_option(
        *app, "--gpu", "GPU", options.gpu,
        "Only the GPU with this PCI address, or with this index, counted from 0 in the order of "
        "the PCI addresses in sysfs, and not in that of CUDA, which counts only GPUs that the "
        "process can use; the result has its PCI address");
    app->add_flag("--pair", options.pair,
                  "Check all pairs of GPU and NIC (default: the nearest NICs of each GPU)");
    add_option(*app, "--root", "DIR", options.root,
               "Read sys, proc and dev in this directory, a copy of another machine; makes no "
               "proofs")
        ->check(CLI::ExistingDirectory);
    add_option(*app, "--replay", "FILE", options.replay,
               "Check the machine that --dump wrote to this file, or rdma_topo dump (rdma-core); "
               "makes no proofs")
        ->check(CLI::ExistingFile)
        ->excludes("--root");
    app->option_defaults()->group("Exit status");
    add_option(*app, "--require", "KIND", parsed->required,
               "dmabuf: only a proof with a dma-buf gives status 0, and not one with memory on the "
               "NIC or by peer memory")
        ->check(OneOf({"dmabuf"}));
    app->option_defaults()->group("Output");
    auto* const json = app->add_flag("--json", options.json,
                                     "Print one JSON object (share/rdmabuf/doctor.schema.json)");
    auto* const script =
        app->add_flag("--fix-script", options.fix_script,
                      "Print the commands that correct failed conditions as a shell script; runs "
                      "nothing and makes no proofs")
            ->excludes(json);
    app->add_flag("--emit-env", options.emit_env,
                  "Print the variables of UCX, NCCL and NVSHMEM for each GPU; makes no proofs")
        ->excludes(json)
        ->excludes(script);
    app->add_flag("--failed", options.failed, "Print only what failed, and the result")
        ->excludes(script);
    add_option(*app, "--dump", "FILE", options.dump,
               "Also write the files that were read, and the report, to this file, so that another "
               "machine can check them with --replay; of the environment, only the variables of "
               "rdma-core, and of the kernel log, only the lines that the doctor looks for")
        ->excludes("--emit-env");
    app->set_help_flag("-h,--help", "Print this text");
    app->footer(doctor_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf doctor --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(doctor_description); });
    return {.app = app, .run = [parsed] {
                parsed->options.require_dmabuf = !parsed->required.empty();
                return doctor::run(parsed->options);
            }};
}

} // namespace rdmabuf::tools
