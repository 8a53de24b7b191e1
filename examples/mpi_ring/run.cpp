// SPDX-License-Identifier: BSD-3-Clause
#include "run.hpp"

#include <chrono>

#include "all_gather.hpp"
#include "all_reduce.hpp"
#include "numbers.hpp"

namespace mpi_ring {

namespace {

using std::chrono::steady_clock;

void prepare(const Ring& ring, RingMemory& memory, const Options& options, std::uint32_t turn) {
    const std::size_t own = options.count * size_of(options.pipeline.type);
    const std::size_t offset = options.collective == Collective::all_gather ? ring.rank() * own : 0;
    memory.write({.offset = offset, .length = own}, [&](std::span<std::byte> numbers) {
        fill(options.pipeline.type, numbers, static_cast<int>(ring.rank()), turn);
    });
}

void work(Ring& ring, RingMemory& memory, const Options& options) {
    options.collective == Collective::all_reduce
        ? all_reduce(ring, memory, options.count, options.pipeline)
        : all_gather(ring, memory, options.count, options.pipeline);
}

std::string check(const Ring& ring, RingMemory& memory, const Options& options,
                  std::uint32_t turn) {
    const bool reduced = options.collective == Collective::all_reduce;
    const auto ranks = static_cast<int>(ring.size());
    const NumberType type = options.pipeline.type;
    const std::size_t count = reduced ? options.count : options.count * ring.size();
    std::string wrong;
    memory.read({.offset = 0, .length = count * size_of(type)},
                [&](std::span<const std::byte> numbers) {
                    wrong = reduced ? find_wrong_sum(type, numbers, ranks, turn)
                                    : find_wrong_number(type, numbers, ranks, turn);
                });
    return wrong;
}

} // namespace

Result run(Ring& ring, RingMemory& memory, const Options& options) {
    Result result;
    std::chrono::duration<double, std::micro> total{};
    for (std::uint32_t turn = 0; turn < options.iterations; ++turn) {
        prepare(ring, memory, options, turn);
        ring.barrier();
        const auto begin = steady_clock::now();
        work(ring, memory, options);
        total += steady_clock::now() - begin;
        if (result.wrong.empty()) {
            result.wrong = check(ring, memory, options, turn);
        }
    }
    // A rank that left earlier would seem to be lost.
    ring.barrier();
    result.mean_usec = total.count() / options.iterations;
    return result;
}

} // namespace mpi_ring
