// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "pipeline.hpp"
#include "ring.hpp"
#include "ring_memory.hpp"

namespace mpi_ring {

/// Gives every rank the numbers of all, one rank's behind the other's.
/// @param memory  begins with room for all numbers, and has this rank's own at their place
/// @param count   of each rank's numbers
/// @throws std::system_error when a neighbour is lost
void all_gather(Ring& ring, RingMemory& memory, std::size_t count, const PipelineOptions& options);

/// The bytes that it takes.
[[nodiscard]] std::size_t all_gather_memory(std::size_t ranks, std::size_t count,
                                            const PipelineOptions& options) noexcept;

} // namespace mpi_ring
