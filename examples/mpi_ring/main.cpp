// SPDX-License-Identifier: BSD-3-Clause
//
// Computes the sum of the arrays of all MPI ranks, element by element. Each rank has one array, in
// memory of any type:
//
//   mpirun -n 4 mpi_ring udmabuf 1000000
//
// MPI starts the ranks and exchanges the handles (addresses) of their listeners. Each rank sends
// its numbers to its right neighbour over rdmabuf/transport.hpp.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>

#include "ring.hpp"
#include "support/transport.hpp"

namespace {

using namespace mpi_ring;
using namespace rdmabuf::transport;

struct Arguments {
    std::string memory; // "host" or the name of an exporter
    std::size_t count = 262144;
    std::string address; // IP address or interface to listen at; empty: chosen by the endpoint
};

/// Holds the objects that a rank creates before it receives the handles of its neighbours.
struct Resources {
    Resources(const Arguments& arguments, std::size_t ranks)
        : context(rdmabuf::Context::open_first()),
          resolver([] {
              auto all = rdmabuf::Resolver::system();
              all.add(rdmabuf::make_memfd_exporter());
              return all;
          }()),
          endpoint(examples::value_of(
              Endpoint::open(context, resolver, {.timeout = std::chrono::seconds(30)}))),
          memory(endpoint, resolver, arguments.memory, all_reduce_size(ranks, arguments.count)),
          listener(examples::value_of(endpoint.listen(arguments.address))) {}

    rdmabuf::Context context;
    rdmabuf::Resolver resolver;
    Endpoint endpoint;
    RingMemory memory;
    Listener listener;
};

/// Sends the listener handle of this rank to all ranks.
/// @return the handles of all ranks, indexed by rank
std::vector<Handle> exchange(const Handle& mine, std::size_t ranks) {
    constexpr int size = Handle::wire_size;
    std::vector<std::byte> bytes(ranks * Handle::wire_size);
    MPI_Allgather(mine.bytes().data(), size, MPI_BYTE, bytes.data(), size, MPI_BYTE,
                  MPI_COMM_WORLD);
    std::vector<Handle> handles(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
        if (const auto decoded = Handle::decode(std::span(bytes).subspan(i * Handle::wire_size))) {
            handles[i] = *decoded;
        }
    }
    return handles;
}

/// Returns the number at position @p index in the input of rank @p rank. All input numbers are
/// whole numbers whose sums a float can hold exactly.
float number_at(std::size_t rank, std::size_t index) {
    return static_cast<float>((index * 7 + rank * 31) % 1999) - 999;
}

/// Runs an all-reduce and prints its time. @throws std::runtime_error if a sum is wrong
void run(Resources& own, const Arguments& arguments, std::size_t rank,
         const std::vector<Handle>& handles) {
    Ring ring(own.endpoint, own.listener, rank, handles);
    std::vector<float> numbers(arguments.count);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = number_at(rank, i);
    }
    own.memory.write(0, numbers);
    const auto begin = std::chrono::steady_clock::now();
    all_reduce(ring, own.memory, arguments.count);
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;

    const std::vector<float> sums = own.memory.read(0, arguments.count);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        float expected = 0;
        for (std::size_t other = 0; other < ring.size(); ++other) {
            expected += number_at(other, i);
        }
        if (sums[i] != expected) {
            throw std::runtime_error("number " + std::to_string(i) + " is " +
                                     std::to_string(sums[i]) + " instead of " +
                                     std::to_string(expected));
        }
    }
    std::printf("rank %zu of %zu: %zu sums right, %.3f ms, %s, %s\n", rank, ring.size(),
                sums.size(), time.count(), own.memory.description().c_str(),
                own.context.device_name().c_str());
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
    int rank = 0;
    int size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    Arguments arguments;
    arguments.memory = argc > 1 ? argv[1] : "";
    arguments.count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : arguments.count;
    arguments.address = argc > 3 ? argv[3] : "";
    if (argc < 2 || argc > 4 || arguments.count == 0 || size < 2) {
        if (rank == 0) {
            std::fputs(
                "usage: mpirun -n RANKS mpi_ring host|EXPORTER [COUNT [ADDRESS]], with two "
                "ranks or more\n",
                stderr);
        }
        MPI_Finalize();
        return 2;
    }

    std::optional<Resources> own;
    try {
        own.emplace(arguments, static_cast<std::size_t>(size));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "mpi_ring: rank %d: %s\n", rank, error.what());
    }
    // If this rank has no resources, it sends an empty handle, so that the other ranks do not wait
    // for it.
    const auto handles =
        exchange(own ? own->listener.handle() : Handle(), static_cast<std::size_t>(size));
    int status = 1;
    if (std::ranges::find(handles, Handle()) == handles.end()) {
        try {
            run(*own, arguments, static_cast<std::size_t>(rank), handles);
            status = 0;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "mpi_ring: rank %d: %s\n", rank, error.what());
            // MPI functions could wait forever for a rank that has exited, so this rank aborts the
            // whole job. The delay lets the other ranks report their own errors first.
            std::this_thread::sleep_for(std::chrono::seconds(1));
            MPI_Abort(MPI_COMM_WORLD, status);
            std::_Exit(status);
        }
    }
    // A neighbour may not have received all data of this rank yet. No rank may therefore destroy
    // its resources before all ranks are done.
    MPI_Barrier(MPI_COMM_WORLD);
    own.reset();
    MPI_Finalize();
    return status;
}
