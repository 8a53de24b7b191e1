// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/queue_pair.hpp>

// A queue pair has one owner.
rdmabuf::QueuePair other_owner(rdmabuf::QueuePair& qp) {
#ifdef MUST_COMPILE
    return std::move(qp);
#else
    return qp;
#endif
}
