// SPDX-License-Identifier: BSD-3-Clause
//
// Defines the command line of `rdmabuf perf`.
#include "../command.hpp"

#include <memory>

#include "../command_line.hpp"
#include "../names.hpp"
#include "options.hpp"

namespace rdmabuf::tools {

namespace {

constexpr const char* perf_description =
    R"(Measures RDMA transfers between two ends, in memory of any type, and checks
them. Start one end with --listen and the other with --connect HOST, or both in
one process with --loopback.
)";

constexpr const char* perf_notes =
    R"(Latency is half a round trip for send, write and write-imm: the other end
answers each transfer with another one of the same size. For read, cas and
fadd, latency is the time of the whole operation. With --depth N it includes
the time in the queue behind N - 1 other transfers. Bandwidth and message rate
count one direction, over the time from the first measured transfer to the last
completion; 1 MB is 10^6 bytes. A write is followed by an empty send, because
polling cannot detect a completed write in the memory of a GPU. With --check
all figures include the time to fill and to compare the data.

Both ends need the same options for the transfer. Memory and device may differ.
Both ends print the figures of the connecting end. The TCP connection between
the ends is neither encrypted nor authenticated.

Examples:
  rdmabuf perf --loopback --memory host --verb write --size 1M --check
  rdmabuf perf --listen --memory udmabuf --verb read --depth 16
  rdmabuf perf --connect 192.0.2.1 --verb read --depth 16
  rdmabuf perf --loopback --memory cuda --verb write --sweep
  rdmabuf perf --loopback --memory dm --verb fadd --json | jq .latency_usec

Exit status: 0 success, 1 failure, 2 wrong command line.)";

struct PerfParsed {
    perf::Options options;
    unsigned timeout_seconds = 30;
    // The options --size and --warmup. If one of them is not on the command line, complete()
    // chooses its value.
    CLI::Option* size = nullptr;
    CLI::Option* warmup = nullptr;
};

void add_ends(CLI::App& app, PerfParsed& parsed) {
    perf::Options& options = parsed.options;
    app.option_defaults()->group("Ends");
    auto* const listen =
        app.add_flag("--listen", options.listen, "Wait for the other end and answer it");
    auto* const connect = add_option(app, "--connect", "HOST", options.host,
                                     "Connect to the other end: name or address")
                              ->excludes(listen);
    auto* const loopback = app.add_flag("--loopback", options.loopback, "Both ends in this process")
                               ->excludes(listen)
                               ->excludes(connect);
    app.add_flag("--rdma-cm", options.rdma_cm,
                 "Connect the queue pairs by librdmacm (default: by the TCP connection)")
        ->excludes(loopback);
    add_option(app, "--tcp-port", "N", options.tcp_port,
               "Port of the listening end, for TCP and for librdmacm (default 18520)")
        ->check(CLI::Range(1, 65535))
        ->excludes(loopback);
    add_option(app, "--timeout", "N", parsed.timeout_seconds,
               "Maximum time to wait for the other end, in seconds (default 30)")
        ->check(CLI::Range(1, 86400));
}

void add_transfer(CLI::App& app, PerfParsed& parsed) {
    perf::Options& options = parsed.options;
    app.option_defaults()->group("Transfer");
    // CLI11 applies the last transform first: OneOf rejects unknown names, then Transformer
    // converts the name to its value.
    add_option(app, "--verb", "VERB", options.verb,
               "send (default), write, write-imm, read, cas or fadd")
        ->transform(CLI::Transformer(perf::verbs()))
        ->transform(OneOf(names_of(perf::verbs())));
    add_option(app, "--qp-type", "TYPE", options.qp_type,
               "rc (default), or srd on EFA, for send, write-imm and read")
        ->transform(CLI::Transformer(perf::qp_types()))
        ->transform(OneOf(names_of(perf::qp_types())));
    parsed.size = add_option(app, "--size", "SIZE", options.size,
                             "Bytes per transfer: 8, 64K, 1M (default 4K; cas and fadd: 8)")
                      ->transform(CLI::AsSizeValue(false))
                      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 31));
    app.add_flag("--sweep", options.sweep,
                 "Measure each power of two up to --size (default then 1M)");
    add_option(app, "--depth", "N", options.depth,
               "Transfers in flight in each direction (default 1)")
        ->check(CLI::Range(1, 1024));
    add_option(app, "--iterations", "N", options.iterations, "Measured transfers (default 1000)")
        ->check(CLI::Range(1, 100'000'000));
    parsed.warmup = add_option(app, "--warmup", "N", options.warmup,
                               "Transfers before the measured ones (default: the larger "
                               "of a tenth of the iterations and the depth)")
                        ->check(CLI::Range(0, 100'000'000));
    app.add_flag("--check", options.check,
                 "Compare every byte that arrives, and the bytes around it");
}

} // namespace

Command add_perf(CLI::App& program) {
    CLI::App* const app =
        program.add_subcommand("perf", "Measure and check transfers between two ends");
    auto parsed = std::make_shared<PerfParsed>();
    app->set_help_flag();
    add_ends(*app, *parsed);
    add_transfer(*app, *parsed);
    add_memory_options(*app, parsed->options.memory);
    add_device_options(*app, parsed->options.device);
    app->option_defaults()->group("Output");
    add_output_options(*app, parsed->options.json);
    app->footer(perf_notes);
    // `rdmabuf --help` shows the short description, and `rdmabuf perf --help` shows the long one.
    app->preparse_callback([app](std::size_t) { app->description(perf_description); });
    return {.app = app, .run = [parsed] {
                perf::Options& options = parsed->options;
                options.timeout = std::chrono::seconds(parsed->timeout_seconds);
                complete(options, parsed->size->count() > 0, parsed->warmup->count() > 0);
                run(options);
                return exit_success;
            }};
}

} // namespace rdmabuf::tools
