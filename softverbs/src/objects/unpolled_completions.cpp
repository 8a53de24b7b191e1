// SPDX-License-Identifier: BSD-3-Clause
#include "objects/unpolled_completions.hpp"

#include "objects/completion_queue.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

namespace {

bool contains(const Cq* cq, std::uint32_t qp_number) noexcept {
    if (cq == nullptr) {
        return false;
    }
    for (std::uint64_t i = cq->taken; i != cq->pushed; ++i) {
        if (cq->ring[i & (cq->ring.size() - 1)].wc.qp_num == qp_number) {
            return true;
        }
    }
    return false;
}

} // namespace

bool has_unpolled_completions(std::uint32_t qp_number) {
    const Qp* const qp = process().qps.find(qp_number);
    if (qp == nullptr || qp->number() != qp_number ||
        (qp->state() != IBV_QPS_RTR && qp->state() != IBV_QPS_RTS && qp->state() != IBV_QPS_SQD)) {
        return false;
    }
    return contains(qp->send_queue, qp_number) || contains(qp->recv_queue, qp_number);
}

} // namespace softverbs
