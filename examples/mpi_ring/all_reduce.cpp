// SPDX-License-Identifier: BSD-3-Clause
#include "all_reduce.hpp"

#include "segments.hpp"

namespace mpi_ring {

namespace {

Segments segments_of(std::size_t ranks, std::size_t count,
                     const PipelineOptions& options) noexcept {
    return {ranks, count, size_of(options.type), options.chunk};
}

} // namespace

void all_reduce(Ring& ring, RingMemory& memory, std::size_t count, const PipelineOptions& options) {
    Pipeline(ring, memory, segments_of(ring.size(), count, options), options,
             {.reducing = ring.size() - 1, .copying = ring.size() - 1})
        .run();
}

std::size_t all_reduce_memory(std::size_t ranks, std::size_t count,
                              const PipelineOptions& options) noexcept {
    const Segments segments = segments_of(ranks, count, options);
    return segments.total() + Pipeline::inbox_size(segments, options);
}

} // namespace mpi_ring
