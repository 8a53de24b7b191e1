// SPDX-License-Identifier: BSD-3-Clause
#include "station.hpp"

#include "all_gather.hpp"
#include "all_reduce.hpp"
#include "support/open_device.hpp"
#include "support/transport.hpp"

namespace mpi_ring {

namespace {

std::size_t memory_size(const Options& options, std::size_t ranks) {
    return options.collective == Collective::all_reduce
               ? all_reduce_memory(ranks, options.count, options.pipeline)
               : all_gather_memory(ranks, options.count, options.pipeline);
}

} // namespace

Station::Station(const Options& options, std::size_t ranks)
    : context(examples::open_device(options.device)),
      resolver(examples::make_resolver(options.memory)),
      endpoint(examples::value_of(
          rdmabuf::transport::Endpoint::open(context, resolver, {.timeout = options.timeout}))),
      memory(endpoint, resolver, options.memory.type, memory_size(options, ranks)),
      listener(examples::value_of(endpoint.listen(options.address))) {}

} // namespace mpi_ring
