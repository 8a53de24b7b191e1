// SPDX-License-Identifier: BSD-3-Clause
#include <optional>
#include <utility>

#include "objects/completion_queue.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"
#include "objects/scatter_to_cqe.hpp"
#include "objects/srd.hpp"
#include "objects/tag_matching.hpp"
#include "objects/xrc_domain.hpp"

namespace softverbs {

namespace {

ibv_wc_opcode completed_opcode(ibv_wr_opcode opcode) noexcept {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_ATOMIC_WRITE:
            return IBV_WC_ATOMIC_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case IBV_WR_LOCAL_INV:
            return IBV_WC_LOCAL_INV;
        case IBV_WR_BIND_MW:
            return IBV_WC_BIND_MW;
        default:
            return IBV_WC_SEND;
    }
}

/// Returns whether the queue pair has begun to send a request that has not completed. This includes
/// requests that must be retransmitted and, on an SRD queue pair, posted requests that are still
/// delayed (Srd::held).
bool is_sending(const Qp& qp) noexcept {
    if (qp.srd != nullptr) {
        return !qp.srd->requests.empty();
    }
    const std::uint64_t first = qp.sends.first();
    return first < qp.requester.next || first < qp.requester.resent_until ||
           (!qp.sends.empty() && qp.sends[first].state == SendRequest::State::sending);
}

void flush_receive(Qp& qp, std::uint64_t wr_id) {
    Completion completion;
    completion.wc.wr_id = wr_id;
    completion.wc.status = IBV_WC_WR_FLUSH_ERR;
    completion.wc.opcode = IBV_WC_RECV;
    complete_receive(qp, completion);
}

} // namespace

void raise_event(Qp& qp, ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    for (Qp* const handle : qp.handles) { // only XRC targets have handles
        event.element.qp = handle->native();
        raise_event(context_of(handle->qp_base), event);
    }
    if (qp.type() != IBV_QPT_XRC_RECV) {
        event.element.qp = qp.native();
        raise_event(context_of(qp.qp_base), event);
    }
}

void release_slots(const Completion& completion) noexcept {
    if (completion.qp == nullptr) {
        if (completion.srq != nullptr) {
            --completion.srq->tags->operations;
        }
        return;
    }
    if (completion.send_limit != 0 && completion.qp->srd != nullptr) {
        completion.qp->sends.free(); // SRD completes out of order: each completion frees one slot
    } else if (completion.send_limit != 0) {
        completion.qp->sends.free_until(completion.send_limit);
    } else if (completion.srq != nullptr) {
        completion.srq->requests.free();
    } else {
        completion.qp->receives.free();
    }
}

void forget_work(Qp& qp) {
    const bool in_tagged_buffer = std::exchange(qp.responder.matched, false);
    if (std::exchange(qp.responder.current_taken, false) && qp.shared_queue != nullptr &&
        !in_tagged_buffer) {
        qp.shared_queue->requests.free();
    }
    invalidate_all(qp);
    if (qp.domain != nullptr) {
        forget_completions(qp);
    } else {
        forget(*qp.send_queue, qp.number());
    }
    if (qp.recv_queue != nullptr) {
        forget(*qp.recv_queue, qp.number());
    }
}

void complete_send(Qp& qp, ibv_wc_status status, std::uint32_t byte_len) {
    const SendRequest& request = qp.sends.front();
    const bool wanted =
        status != IBV_WC_SUCCESS || qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0;
    if (!wanted) {
        qp.sends.pop();
        end_draining(qp);
        return;
    }
    if ((request.flags & rendezvous_flag) != 0) [[unlikely]] {
        complete_rendezvous(qp, status);
        end_draining(qp);
        return;
    }
    Completion completion;
    completion.wc.wr_id = request.wr_id;
    completion.wc.status = status;
    completion.wc.opcode = completed_opcode(request.opcode);
    completion.wc.byte_len = byte_len;
    completion.wc.qp_num = qp.number();
    completion.qp = &qp;
    completion.send_limit = qp.sends.first() + 1;
    // Call take_response() before pop(), because take_response() reads the oldest request of the
    // send queue, which pop() removes.
    std::optional<Scatter> data;
    if (qp.scatter_to_cqe != nullptr && status == IBV_WC_SUCCESS) [[unlikely]] {
        data = take_response(qp);
    }
    // Remove the request before push(). If the completion queue overruns, push() flushes the send
    // queue. If this request were still in the send queue, it would complete twice.
    qp.sends.pop();
    push(*qp.send_queue, completion, data ? &*data : nullptr);
    end_draining(qp);
}

void end_draining(Qp& qp) {
    if (qp.state() == IBV_QPS_SQD && qp.attributes.sq_draining != 0 && !is_sending(qp)) {
        qp.attributes.sq_draining = 0;
        if (qp.attributes.en_sqd_async_notify != 0) {
            raise_event(qp, IBV_EVENT_SQ_DRAINED);
        }
    }
}

void complete_receive(Qp& qp, Completion completion, const Scatter* data) {
    completion.wc.qp_num = qp.number();
    completion.qp = &qp;
    completion.srq = qp.shared_queue;
    if (std::exchange(qp.responder.matched, false)) {
        // A tagged buffer uses no entry of the shared receive queue. Set the queue pair and the
        // shared receive queue in the completion to null, so that polling it frees no entry.
        completion.qp = nullptr;
        completion.srq = nullptr;
        completion.wc.wc_flags |= IBV_WC_TM_MATCH;
        completion.tag = qp.responder.tag;
        completion.tag_data = qp.responder.tag_data;
    }
    push(*qp.recv_queue, completion, data);
}

bool take_receive(Qp& qp, RecvRequest& request) {
    Srq* shared = qp.shared_queue;
    Ring<RecvRequest>& requests = shared != nullptr ? shared->requests : qp.receives;
    if (requests.empty()) {
        return false;
    }
    request = requests.front();
    requests.pop();
    if (shared != nullptr && requests.size() < shared->limit) {
        shared->limit = 0;
        ibv_async_event event{};
        event.element.srq = shared;
        event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
        raise_event(context_of(*shared), event);
    }
    return true;
}

const RecvRequest* next_receive(Qp& qp) noexcept {
    Srq* const shared = qp.shared_queue;
    Ring<RecvRequest>& requests = shared != nullptr ? shared->requests : qp.receives;
    return requests.empty() ||
                   (shared != nullptr && (shared->limit != 0 || shared->tags != nullptr))
               ? nullptr
               : &requests.front();
}

void consume_receive(Qp& qp) noexcept {
    (qp.shared_queue != nullptr ? qp.shared_queue->requests : qp.receives).pop();
}

void flush_sends(Qp& qp) {
    while (qp.srd != nullptr && !qp.srd->requests.empty()) {
        complete_srd(qp, qp.srd->requests.begin()->first, efa::Status::flushed);
    }
    while (!qp.sends.empty()) {
        complete_send(qp, IBV_WC_WR_FLUSH_ERR);
    }
    process().engine.flushed(qp);
}

void flush_receives(Qp& qp) {
    if (qp.responder.current_taken) {
        qp.responder.current_taken = false;
        flush_receive(qp, qp.responder.current.wr_id);
    }
    while (!qp.receives.empty()) {
        const std::uint64_t wr_id = qp.receives.front().wr_id;
        qp.receives.pop();
        flush_receive(qp, wr_id);
    }
}

void enter_error(Qp& qp, int event) {
    if (qp.state() == IBV_QPS_ERR) {
        return;
    }
    qp.current_state = IBV_QPS_ERR;
    qp.attributes.sq_draining = 0;
    if (event >= 0) {
        raise_event(qp, static_cast<ibv_event_type>(event));
    }
    flush_sends(qp);
    flush_receives(qp);
    // Do not flush a shared receive queue, because other queue pairs use its receive requests.
    // IBV_EVENT_QP_LAST_WQE_REACHED reports that this queue pair takes no more requests from the
    // shared receive queue.
    if (qp.shared_queue != nullptr && qp.type() != IBV_QPT_XRC_RECV && !qp.last_receive_flushed) {
        qp.last_receive_flushed = true;
        raise_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
    }
}

void enter_send_queue_error(Qp& qp) {
    if (qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD) {
        qp.current_state = IBV_QPS_SQE;
        qp.attributes.sq_draining = 0;
        flush_sends(qp);
    }
}

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
    if (qp == nullptr ||
        (qp->state() != IBV_QPS_RTR && qp->state() != IBV_QPS_RTS && qp->state() != IBV_QPS_SQD)) {
        return false;
    }
    return contains(qp->send_queue, qp_number) || contains(qp->recv_queue, qp_number);
}

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
