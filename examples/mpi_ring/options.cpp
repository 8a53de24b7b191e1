// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <memory>
#include <vector>

#include "support/command_line_parts.hpp"
#include "support/units.hpp"

#include <CLI/CLI.hpp>

namespace mpi_ring {

namespace {

using examples::UsageError;

constexpr const char* description =
    "Reduces or gathers numbers in a ring of MPI ranks, over RDMA in the memory of your choice.\n"
    "MPI starts the ranks and carries their handles to each other, and nothing else.\n";

constexpr const char* notes =
    "Each rank compares every number with what one rank alone would have computed.\n\n"
    "Example:\n"
    "  mpirun -n 4 mpi_ring --memory udmabuf --count 1000000\n\n"
    "Exit status of a rank: 0 all is right, 1 something failed, 2 the command line cannot work.";

// external and dm are the last: what they need of a program, this one has not.
constexpr auto memory_types = std::span(examples::memory_types).first<10>();
static_assert(memory_types.back().value == examples::MemoryType::memfd);

void declare_work(CLI::App& app, Options& options, std::string& chunk) {
    examples::add_choice<Collective>(app, "--collective", options.collective, collectives,
                                     "all-reduce (default) or all-gather")
        ->type_name("WHAT");
    examples::add_choice<NumberType>(app, "--type", options.pipeline.type, number_types,
                                     "Of the numbers: float32 (default) or int64")
        ->type_name("TYPE");
    examples::add_number(app, "--count", options.count, std::int64_t{1}, std::int64_t{1} << 40,
                         "Numbers of each rank (default 262144)");
    examples::add_number(app, "--iterations", options.iterations, 1, 100'000'000,
                         "How often (default 10)");
    app.add_option("--chunk", chunk, "Bytes of the longest message, as in 64K (default 256K)")
        ->type_name("SIZE");
    examples::add_number(app, "--window", options.pipeline.window, 1, 128,
                         "Messages under way at a time, each way (default 4)");
}

void declare_network(CLI::App& app, Options& options, unsigned& timeout_seconds) {
    app.add_option("--device", options.device,
                   "RDMA device (default: the first with an active port)")
        ->type_name("NAME");
    app.add_option("--address", options.address,
                   "Address or interface by which the neighbours connect (default: the first)")
        ->type_name("WHERE");
    examples::add_number(app, "--timeout", timeout_seconds, 1, 86400,
                         "Longest wait for a neighbour, in seconds (default 30)");
}

std::size_t choose_chunk(const std::string& given) {
    const auto size = examples::parse_size(given);
    if (!size || *size % 8 != 0 || *size > std::uint64_t{1} << 31) {
        throw UsageError(
            "--chunk " + given +
            " is no length of a message: write 8, 64K or 1M, a multiple of 8 up to 2G");
    }
    return *size;
}

} // namespace

const char* to_string(Collective collective) noexcept {
    return examples::name_of<Collective>(collective, collectives);
}

std::variant<Options, examples::Help> parse_options(std::span<const char* const> arguments) {
    Options options;
    std::string chunk = "256K";
    unsigned timeout_seconds = 30;

    CLI::App app(description, "mpi_ring");
    app.formatter(std::make_shared<examples::PlainFormatter>());
    app.footer(notes);
    app.set_help_flag("--help,-h", "Print this text");
    declare_work(app, options, chunk);
    examples::add_memory_options(app, options.memory, memory_types,
                                 "host (default), or the exporter that makes it: cuda, habana, "
                                 "level-zero, neuron, rocm, udmabuf, dma-heap, drm; memfd: the "
                                 "stand-in for a dma-buf, for softverbs");
    declare_network(app, options, timeout_seconds);

    // CLI11 takes them last first.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
        app.parse(std::move(reversed));
    } catch (const CLI::CallForHelp&) {
        return examples::Help{examples::help_text(app)};
    } catch (const CLI::ParseError& error) {
        throw UsageError(error.what());
    }
    options.pipeline.chunk = choose_chunk(chunk);
    options.timeout = std::chrono::seconds(timeout_seconds);
    examples::check_memory_options(options.memory, examples::given_options(app));
    return options;
}

} // namespace mpi_ring
