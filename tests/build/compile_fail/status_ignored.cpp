// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/queue_pair.hpp>

// A request that was not posted never completes: waiting for it would be for ever.
void send(const rdmabuf::QueuePair& qp, const ibv_sge& local) {
#ifdef MUST_COMPILE
    qp.post_send(local).throw_if_failed();
#else
    qp.post_send(local);
#endif
}
