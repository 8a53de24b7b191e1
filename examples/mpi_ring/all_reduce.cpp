// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "ring.hpp"

namespace mpi_ring {

namespace {

/// Returns the index of the first element of a segment. If @p count is not a multiple of @p ranks,
/// the first segments have one element more than the last segments.
std::size_t first_of(std::size_t segment, std::size_t ranks, std::size_t count) {
    return count / ranks * segment + std::min(segment, count % ranks);
}

} // namespace

std::size_t all_reduce_size(std::size_t ranks, std::size_t count) {
    return (count + first_of(1, ranks, count)) * sizeof(float);
}

void all_reduce(Ring& ring, RingMemory& memory, std::size_t count) {
    const std::size_t ranks = ring.size();
    const auto offset = [&](std::size_t segment) {
        return first_of(segment, ranks, count) * sizeof(float);
    };
    const auto length = [&](std::size_t segment) { return offset(segment + 1) - offset(segment); };

    // In step 0, each rank sends the segment whose index is its rank. In each later step, it sends
    // the segment that it received in the previous step. The index of the received segment is
    // always one lower than that of the sent segment (modulo the number of ranks).
    for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
        const std::size_t sent = (ring.rank() + 2 * ranks - step) % ranks;
        const std::size_t received = (sent + ranks - 1) % ranks;
        const bool reduces = step < ranks - 1;
        // Numbers that this rank must still add are received behind its array. Complete sums are
        // received at their final position.
        const std::size_t place = reduces ? count * sizeof(float) : offset(received);
        ring.shift(memory, offset(sent), length(sent), place, length(received));
        if (reduces && length(received) > 0) {
            const std::size_t numbers = length(received) / sizeof(float);
            std::vector<float> sums = memory.read(offset(received), numbers);
            add(memory.read(place, numbers), sums);
            memory.write(offset(received), sums);
        }
    }
}

} // namespace mpi_ring
