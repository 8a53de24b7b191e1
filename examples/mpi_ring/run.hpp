// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "options.hpp"
#include "ring.hpp"
#include "ring_memory.hpp"

namespace mpi_ring {

struct Result {
    /// Of one turn, from when all ranks were ready until this one had its numbers.
    double mean_usec = 0;
    /// The first thing that was not as it had to be; empty when all was right.
    std::string wrong;
};

/// Does it as often as asked for, and checks each time, off the clock, all that this rank has then.
/// @throws std::system_error when a neighbour is lost
[[nodiscard]] Result run(Ring& ring, RingMemory& memory, const Options& options);

} // namespace mpi_ring
