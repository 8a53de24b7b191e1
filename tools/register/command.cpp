// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf register`.
#include "../command.hpp"

#include <memory>

#include "../command_line.hpp"
#include "../names.hpp"
#include "../options.hpp"
#include "trial.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* register_description =
    R"(Allocates memory of any type, registers it on an RDMA device, and prints each
path that was tried with its result. The memory is deregistered and freed
before the command ends.
)";

constexpr const char* register_notes =
    R"(A registration that succeeds does not prove that data arrives: use
rdmabuf perf --check for that.

Examples:
  rdmabuf register --memory cuda --device mlx5_0
  rdmabuf register --memory rocm --path dmabuf,peermem --access remote_write

Exit status: 0 the memory was registered, 1 no path succeeded or another
failure, 2 wrong command line.)";

struct RegisterParsed {
    trial::Options options;
    std::vector<Access> access;
};

int run_register(RegisterParsed& parsed) {
    trial::Options& options = parsed.options;
    for (const Access flag : parsed.access) {
        options.access |= flag;
    }
    const trial::Trial result = trial::try_registration(options);
    write_stdout(options.json ? to_json(result) : to_text(result, style_of_stdout()));
    return result.registered ? exit_success : exit_failure;
}

} // namespace

Command add_register(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("register", "Register memory and print the paths that were tried");
    auto parsed = std::make_shared<RegisterParsed>();
    trial::Options& options = parsed->options;
    app->set_help_flag();
    app->option_defaults()->group("Registration");
    add_option(*app, "--size", "SIZE", options.size, "Bytes of memory: 4096, 64K, 1G (default 1M)")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 46U));
    add_option(*app, "--offset", "BYTES", options.offset,
               "Do not register the first bytes of the memory (default 0)")
        ->transform(CLI::AsSizeValue(false));
    add_option(*app, "--path", "PATHS", options.paths,
               "Paths to try in this order, separated by commas: dmabuf, dmabuf_data_direct, "
               "peermem, host, on_demand (default: dmabuf, host)")
        ->delimiter(',')
        ->transform(CLI::Transformer(trial::paths()))
        ->transform(OneOf(names_of(trial::paths())));
    add_option(*app, "--access", "FLAGS", parsed->access,
               "Access flags beside local_write, separated by commas: remote_write, remote_read, "
               "remote_atomic, relaxed_ordering")
        ->delimiter(',')
        ->transform(CLI::Transformer(trial::access_flags()))
        ->transform(OneOf(names_of(trial::access_flags())));
    add_memory_options(*app, options.memory);
    add_device_name_option(*app, options.device);
    add_output_options(*app, options.json);
    app->footer(register_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf register --help` the long one.
    app->preparse_callback([app](std::size_t) { app->description(register_description); });
    return {.app = app, .run = [parsed] { return run_register(*parsed); }};
}

} // namespace rdmabuf::tools
