// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/queue_pair.hpp>

// Connecting uses the prepared queue pair up, and should look like it.
rdmabuf::QueuePair connect(rdmabuf::PreparedQueuePair& prepared,
                           const rdmabuf::QueuePairAddress& peer) {
#ifdef MUST_COMPILE
    return std::move(prepared).connect(peer);
#else
    return prepared.connect(peer);
#endif
}
