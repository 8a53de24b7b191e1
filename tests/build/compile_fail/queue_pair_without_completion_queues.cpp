// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/queue_pair.hpp>

// There is no queue pair without completion queues.
rdmabuf::QueuePairOptions options([[maybe_unused]] const rdmabuf::CompletionQueue& cq) {
#ifdef MUST_COMPILE
    return {.send_cq = cq, .recv_cq = cq, .max_send_wr = 1};
#else
    return {.max_send_wr = 1};
#endif
}
