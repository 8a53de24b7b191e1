// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

#include "options.hpp"
#include "ring_memory.hpp"

namespace mpi_ring {

/// What a rank has before it knows the others: everything but neighbours.
struct Station {
    /// @param ranks  how many there are
    /// @throws std::exception with the reason when this machine does not have it
    Station(const Options& options, std::size_t ranks);

    rdmabuf::Context context;
    rdmabuf::Resolver resolver;
    rdmabuf::transport::Endpoint endpoint;
    RingMemory memory;
    rdmabuf::transport::Listener listener;
};

} // namespace mpi_ring
