// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/queue_pair.hpp>

// Nothing can be sent before there is a connection.
rdmabuf::Status send(rdmabuf::PreparedQueuePair& prepared, const ibv_sge& local) {
#ifdef MUST_COMPILE
    return std::move(prepared).connect(prepared.address()).post_send(local);
#else
    return prepared.post_send(local);
#endif
}
