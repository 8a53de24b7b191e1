// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "pipeline.hpp"
#include "ring.hpp"
#include "ring_memory.hpp"

namespace mpi_ring {

/// Adds up the numbers of all ranks: a ring reduce-scatter, after which each rank has the sums of
/// one segment, and a ring all-gather of those, in one pipeline. Each rank sends and receives 2
/// (ranks - 1) / ranks times the numbers, whatever the number of ranks.
/// @param memory  begins with this rank's numbers, and after it with the sums
/// @param count   of each rank's numbers
/// @throws std::system_error when a neighbour is lost
void all_reduce(Ring& ring, RingMemory& memory, std::size_t count, const PipelineOptions& options);

/// The bytes that it takes.
[[nodiscard]] std::size_t all_reduce_memory(std::size_t ranks, std::size_t count,
                                            const PipelineOptions& options) noexcept;

} // namespace mpi_ring
