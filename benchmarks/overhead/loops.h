// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/extended_completion_queue.hpp>
#include <rdmabuf/queue_pair.hpp>
extern "C" {
#endif

// C declarations, with names in the style of C.
// NOLINTBEGIN(readability-identifier-naming,modernize-*)

enum { batch_size = 32 };

/// The verbs objects that the C loops post to and poll.
struct endpoint {
    struct ibv_qp* qp;
    struct ibv_qp_ex* qpx;
    struct ibv_cq* cq;
    struct ibv_cq_ex* cqx;
};

/// The local and the remote memory of all requests.
struct transfer {
    struct ibv_sge local;
    uint64_t remote_address;
    uint32_t rkey;
};

/// The loops in plain C verbs. Each returns 0 when every operation succeeded.
typedef int c_loop(const struct endpoint* e, const struct transfer* t, long iterations);
c_loop c_send_poll, c_write_poll, c_fetch_add_poll, c_post_recv, c_write_list, c_write_batch,
    c_poll_extended;

// NOLINTEND(readability-identifier-naming,modernize-*)

#ifdef __cplusplus
}

/// The objects of this library that correspond to struct endpoint.
struct Endpoint {
    rdmabuf::QueuePair qp;
    rdmabuf::CompletionQueue cq;
    rdmabuf::ExtendedCompletionQueue cqx;
};

/// The same loops with this library. They have C linkage, so that callgrind finds them by name.
extern "C" {
using CxxLoop = int(const Endpoint& e, const transfer& t, long iterations);
CxxLoop cxx_send_poll, cxx_write_poll, cxx_fetch_add_poll, cxx_post_recv, cxx_write_list,
    cxx_write_batch, cxx_poll_extended;
}
#endif
