// SPDX-License-Identifier: BSD-3-Clause
//
// Reduces or gathers numbers in a ring of ranks, over dma-bufs. MPI starts the ranks and carries
// the handles of their listeners; all else goes by rdmabuf/transport.hpp.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "beginning.hpp"
#include "launcher.hpp"
#include "options.hpp"
#include "ring.hpp"
#include "run.hpp"
#include "station.hpp"
#include "support/units.hpp"

namespace mpi_ring {

namespace {

using rdmabuf::transport::Handle;

void report(const Options& options, const Station& station, const Ring& ring,
            const Result& result) {
    const std::size_t bytes = options.count * size_of(options.pipeline.type);
    // What a caller sees: its own numbers, in the time it waited.
    const double bandwidth = static_cast<double>(bytes) / result.mean_usec;
    std::printf("rank %zu of %zu: %s of %llu %s (%s) %s, %s, %s, %s, %s\n", ring.rank(),
                ring.size(), to_string(options.collective),
                static_cast<unsigned long long>(options.count), to_string(options.pipeline.type),
                examples::format_size(bytes).c_str(), result.wrong.empty() ? "right" : "WRONG",
                examples::format_usec(result.mean_usec).c_str(),
                examples::format_bandwidth(bandwidth).c_str(), station.memory.description().c_str(),
                station.context.device_name().c_str());
    std::fflush(stdout);
}

int run_ranks(const Launcher& launcher, const Options& options, Station& station,
              std::span<const Handle> handles) {
    Ring ring(station.endpoint, station.listener, launcher.rank(), handles, options.timeout);
    const Result result = run(ring, station.memory, options);
    report(options, station, ring, result);
    if (!result.wrong.empty()) {
        std::fprintf(stderr, "mpi_ring: rank %d: %s\n", launcher.rank(), result.wrong.c_str());
        return exit_failure;
    }
    return 0;
}

int main(const Launcher& launcher, std::span<const char* const> arguments) {
    Beginning beginning(arguments, launcher.rank(), launcher.size());
    auto& station = beginning.station;
    // Also a rank that has nothing to offer says so: the others are waiting.
    const auto handles = launcher.exchange(station ? station->listener.handle() : Handle());
    if (!station) {
        // The ranks have one command line, as a rule: it is enough that one says what is wrong.
        if (launcher.rank() == 0 || beginning.status == exit_failure || handles[0] != Handle()) {
            std::fputs(beginning.text.c_str(), beginning.status == 0 ? stdout : stderr);
        }
        return beginning.status;
    }
    if (std::ranges::find(handles, Handle()) != handles.end()) {
        return exit_failure;
    }
    try {
        return run_ranks(launcher, beginning.options, *station, handles);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_ring: rank %d: %s\n", launcher.rank(), error.what());
        // MPI itself may wait for a rank that has ended, so this rank aborts the job. That ends the
        // other ranks as well: the delay lets them report their own errors first.
        std::this_thread::sleep_for(std::chrono::seconds(1));
        Launcher::abort(exit_failure);
    }
}

} // namespace

} // namespace mpi_ring

int main(int argc, char** argv) {
    const mpi_ring::Launcher launcher(argc, argv);
    return mpi_ring::main(launcher, {argv + 1, static_cast<std::size_t>(argc - 1)});
}
