// SPDX-License-Identifier: BSD-3-Clause
#include "objects/srd.hpp"

namespace softverbs {

void Srd::reset() noexcept {
    requests.clear();
    held.clear();
    blocked.clear();
    sessions.clear();
}

void complete_srd(Qp& qp, std::uint64_t number, efa::Status status) {
    const auto found = qp.srd->requests.find(number);
    if (found == qp.srd->requests.end()) {
        return;
    }
    const SendRequest& request = found->second.request;
    const bool writes =
        request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    Completion completion;
    completion.wc.wr_id = request.wr_id;
    completion.wc.status = efa::wc_status(status);
    // As libefa does, report RDMA reads as sends.
    completion.wc.opcode = writes ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
    completion.wc.vendor_err = static_cast<std::uint32_t>(status);
    completion.wc.qp_num = qp.number();
    completion.qp = &qp;
    completion.send_limit = 1; // marks a send completion; release_slots() frees one slot
    // Remove the request before push(), because push() flushes all requests of the queue pair if
    // the completion queue overruns.
    qp.srd->requests.erase(found);
    push(*qp.send_queue, completion);
    end_draining(qp);
}

} // namespace softverbs
