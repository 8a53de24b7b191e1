// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.hpp"

#include <memory>
#include <vector>

#include "support/command_line_parts.hpp"

#include <CLI/CLI.hpp>

namespace pingpong {

namespace {

constexpr const char* description =
    "Measures and checks RDMA between two ends, in the memory of your choice.\n"
    "Start one end with --listen and the other with --connect, or both at once with --loopback.\n";

constexpr const char* notes =
    "Latency is half a round trip for send, write and write-imm, and a whole operation for read,\n"
    "cas and fadd. Bandwidth is that of one transfer at a time; 1 MB is 10^6 bytes. An empty send\n"
    "behind each write announces it: memory that may be a GPU's is not polled.\n\n"
    "Both ends must be given the same transfer; their memory and device are their own. Both print\n"
    "what the connecting end has measured.\n\n"
    "Examples:\n"
    "  pingpong --loopback --memory drm --verb write --size 1M --validate\n"
    "  pingpong --listen --memory udmabuf --verb read\n"
    "  pingpong --connect 192.0.2.1 --memory host --verb read\n"
    "  pingpong --loopback --memory dm --verb fadd --json | jq .latency_usec\n\n"
    "Exit status: 0 done, 1 something failed, 2 the command line cannot work.";

void declare_ends(CLI::App& app, CommandLine& line) {
    app.add_flag("--listen", line.listen, "Wait for the other end");
    app.add_option("--connect", line.options.host, "Go to the other end, by name or address")
        ->type_name("HOST");
    app.add_flag("--loopback", line.loopback, "Be both ends");
    examples::add_choice<Bootstrap>(app, "--bootstrap", line.options.bootstrap, bootstraps,
                                    "How two processes meet: tcp (default) or rdmacm")
        ->type_name("HOW");
    examples::add_number(app, "--tcp-port", line.options.tcp_port, 1, 65535,
                         "Where they meet, by tcp or rdmacm (default 18520)");
    examples::add_number(app, "--timeout", line.timeout_seconds, 1, 86400,
                         "Longest wait for the other end, in seconds (default 30)");
}

void declare_memory(CLI::App& app, CommandLine& line) {
    examples::add_memory_options(
        app, line.options.memory, examples::memory_types,
        "host (default); cuda: an NVIDIA GPU's; level-zero: that of one of Intel's; rocm: of "
        "one of AMD's; habana: an Intel Gaudi's; neuron: an AWS Trainium's; udmabuf, dma-heap, "
        "drm; memfd: the stand-in for a dma-buf, for softverbs; external: one of udmabuf, or "
        "else a memfd, that the program adds itself; dm: the RDMA device's own");
}

void declare_device(CLI::App& app, CommandLine& line) {
    app.add_option("--device", line.options.device,
                   "RDMA device (default: the first with an active port)")
        ->type_name("NAME");
    examples::add_number(app, "--port", line.options.port, 1, 255,
                         "Port of the device (default 1)");
    examples::add_number(app, "--gid-index", line.options.gid_index, 0, 255,
                         "Entry of the port's GID table (default: RoCE v2 over IPv4 first)");
}

void declare_transfer(CLI::App& app, CommandLine& line) {
    examples::add_choice<Verb>(app, "--verb", line.options.verb, verbs,
                               "send (default), write, write-imm, read, cas or fadd")
        ->type_name("VERB");
    app.add_option("--size", line.size, "Bytes, as in 8, 64K, 1M (default 4K; cas and fadd: 8)")
        ->type_name("SIZE");
    examples::add_number(app, "--iterations", line.options.iterations, 1, 100'000'000,
                         "Transfers that count (default 1000)");
    examples::add_number(app, "--warmup", line.options.warmup, 0, 100'000'000,
                         "Transfers before those (default: a tenth of the iterations)");
    app.add_flag("--validate", line.options.validate,
                 "Check every byte of every transfer, and the bytes around it");
}

// Declares a group of options under a heading.
void declare_group(CLI::App& app, CommandLine& line, const char* heading,
                   void (*declare)(CLI::App&, CommandLine&)) {
    app.option_defaults()->group(heading);
    declare(app, line);
}

} // namespace

std::variant<CommandLine, Help> read_command_line(std::span<const char* const> arguments) {
    CommandLine line;
    CLI::App app(description, "pingpong");
    app.formatter(std::make_shared<examples::PlainFormatter>());
    app.footer(notes);
    app.set_help_flag();
    declare_group(app, line, "Ends", declare_ends);
    declare_group(app, line, "Transfer", declare_transfer);
    declare_group(app, line, "Memory", declare_memory);
    declare_group(app, line, "Device", declare_device);
    app.option_defaults()->group("Output");
    app.add_flag("--json", line.options.json, "Print one JSON object instead of a table");
    app.set_help_flag("--help,-h", "Print this text");

    // CLI11 takes them last first.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
        app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
        return Help{examples::help_text(app)};
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    line.given = examples::given_options(app);
    return line;
}

} // namespace pingpong
