// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <string.h>

#include <span>

#include "objects/efa.hpp"
#include "objects/posting.hpp"
#include "objects/process.hpp"
#include "objects/tag_matching.hpp"

// The ibv_wr_*() functions. As in hardware providers, the functions that build requests return no
// error. After an error, they ignore the rest of the batch. Then ibv_wr_complete() returns the
// error and posts nothing.

namespace softverbs {

namespace {

/// Makes the current batch of ibv_wr_*() calls fail if @p error is not 0.
void fail_batch(Qp& qp, int error) {
    if (qp.batch_error == 0) {
        qp.batch_error = error;
    }
}

/// Checks that the send queue has a free entry for one more request of the batch that
/// ibv_wr_start() has begun. Allocates the queue if it is not allocated yet. Returns 0, or ENOMEM
/// if the queue is full or no memory is left.
int find_room(Qp& qp) {
    if (qp.batch_end < qp.batch_limit) {
        return 0;
    }
    const Guard guard;
    if (const int error = allocate_sends(qp); error != 0) {
        return error;
    }
    qp.batch_limit = qp.sends.limit();
    return qp.batch_end < qp.batch_limit ? 0 : ENOMEM;
}

/// Adds a request to the current batch of ibv_wr_*() calls. Returns null if this call or an earlier
/// call of the batch has failed.
SendRequest* begin(ibv_qp_ex* native, ibv_wr_opcode opcode, std::uint64_t op) {
    Qp& qp = Qp::of(native);
    if (qp.batch_error != 0) {
        return nullptr;
    }
    if ((qp.init.send_ops_flags & op) == 0 ||
        (device_of(qp.qp_base).rules.is_efa && !has_valid_flags(qp, native->wr_flags))) {
        fail_batch(qp, EINVAL);
        return nullptr;
    }
    if (const int error = find_room(qp); error != 0) {
        fail_batch(qp, error);
        return nullptr;
    }
    SendRequest& request = qp.sends[qp.batch_end++];
    request.reset();
    request.wr_id = native->wr_id;
    // IBV_SEND_INLINE is ignored here. Inline data is set with ibv_wr_set_inline_data(). The
    // program cannot set rendezvous_flag.
    request.flags = native->wr_flags & ~(unsigned{IBV_SEND_INLINE} | rendezvous_flag);
    request.opcode = opcode;
    return &request;
}

/// Returns the last request of the current batch of ibv_wr_*() calls. Returns null if the batch has
/// failed or is empty; an empty batch then fails with EINVAL.
SendRequest* latest(Qp& qp) {
    if (qp.batch_error == 0 && qp.batch_end == qp.sends.end()) {
        fail_batch(qp, EINVAL);
    }
    return qp.batch_error == 0 ? &qp.sends[qp.batch_end - 1] : nullptr;
}

/// Implements an ibv_wr_*() function whose arguments are the values for @p members. The bit of the
/// operation is 1 << opcode (see supported_ops()).
template <ibv_wr_opcode opcode, auto... members, class... Values>
void wr(ibv_qp_ex* qp, Values... values) {
    if (SendRequest* request = begin(qp, opcode, std::uint64_t{1} << opcode)) {
        ((request->*members = values), ...);
    }
}

void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_address,
                     const void* value) {
    if (SendRequest* request = begin(qp, IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE)) {
        request->rkey = rkey;
        request->remote_address = remote_address;
        // The 8 bytes of an atomic write are stored in the request, so the data is inline.
        // max_inline_data does not limit it.
        request->is_inline = true;
        request->length = sizeof(std::uint64_t);
        memcpy(&request->swap, value, sizeof(std::uint64_t));
    }
}

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
    if (SendRequest* request = begin(qp, IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW)) {
        fail_batch(Qp::of(qp), set_bind(Qp::of(qp), *request, mw, rkey, *info));
    }
}

void wr_set_ud_addr(ibv_qp_ex* native, ibv_ah* ah, std::uint32_t remote_qpn,
                    std::uint32_t remote_qkey) {
    Qp& qp = Qp::of(native);
    if (SendRequest* request = latest(qp)) {
        fail_batch(qp, set_destination(qp, *request, ah, remote_qpn, remote_qkey));
    }
}

void wr_set_xrc_srqn(ibv_qp_ex* native, std::uint32_t remote_srqn) {
    if (SendRequest* request = latest(Qp::of(native))) {
        request->remote_qkey = remote_srqn;
    }
}

void wr_set_sge_list(ibv_qp_ex* native, std::size_t count, const ibv_sge* list) {
    Qp& qp = Qp::of(native);
    SendRequest* request = latest(qp);
    if (request == nullptr) {
        return;
    }
    const bool is_srd_rdma = qp.srd != nullptr && request->opcode != IBV_WR_SEND &&
                             request->opcode != IBV_WR_SEND_WITH_IMM;
    if (count > (is_srd_rdma ? efa::max_rdma_sge : qp.init.cap.max_send_sge)) {
        fail_batch(qp, EINVAL);
        return;
    }
    set_entries(qp, qp.batch_end - 1, {list, count});
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    const ibv_sge entry{address, length, lkey};
    wr_set_sge_list(qp, 1, &entry);
}

void wr_set_inline_data_list(ibv_qp_ex* native, std::size_t count, const ibv_data_buf* list) {
    Qp& qp = Qp::of(native);
    if (latest(qp) == nullptr) {
        return;
    }
    if (qp.inline_bytes.empty()) {
        const Guard guard;
        fail_batch(qp, allocate_inline(qp));
    }
    if (qp.batch_error == 0) {
        fail_batch(qp, set_inline_data(qp, qp.batch_end - 1, std::span(list, count)));
    }
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
    const ibv_data_buf buffer{address, length};
    wr_set_inline_data_list(qp, 1, &buffer);
}

void wr_start(ibv_qp_ex* native) {
    Qp& qp = Qp::of(native);
    qp.batch_lock.lock();
    qp.batch_end = qp.sends.end();
    qp.batch_error = 0;
}

/// Returns whether all datagrams in the current batch of ibv_wr_*() calls have a destination.
bool all_addressed(Qp& qp) {
    if (!is_datagram(qp.type())) {
        return true;
    }
    for (std::uint64_t position = qp.sends.end(); position != qp.batch_end; ++position) {
        if (qp.sends[position].destination.port_num == 0) {
            return false;
        }
    }
    return true;
}

int wr_complete(ibv_qp_ex* native) {
    Qp& qp = Qp::of(native);
    const std::unique_lock batch(qp.batch_lock, std::adopt_lock);
    const Guard guard;
    if (const int error = check_sendable(qp, "ibv_wr_complete"); error != 0) {
        return error;
    }
    if (qp.batch_error != 0) {
        return qp.batch_error;
    }
    if (!all_addressed(qp)) {
        return EINVAL;
    }
    if (qp.batch_end != qp.sends.end()) {
        qp.sends.publish(qp.batch_end);
        added(qp);
    }
    return 0;
}

void wr_abort(ibv_qp_ex* qp) {
    Qp::of(qp).batch_lock.unlock();
}

} // namespace

void set_work_request_functions(Qp& qp) {
    // Set the functions for all operations that softverbs supports, even those that send_ops_flags
    // does not request. Such a function makes ibv_wr_complete() fail. A null pointer would crash
    // the program.
    constexpr auto key = &SendRequest::rkey;
    constexpr auto address = &SendRequest::remote_address;
    constexpr auto operand = &SendRequest::compare_add;
    qp.wr_send = wr<IBV_WR_SEND>;
    qp.wr_send_imm = wr<IBV_WR_SEND_WITH_IMM, &SendRequest::imm_data>;
    qp.wr_send_inv = wr<IBV_WR_SEND_WITH_INV, &SendRequest::invalidate_rkey>;
    qp.wr_rdma_write = wr<IBV_WR_RDMA_WRITE, key, address>;
    qp.wr_rdma_write_imm = wr<IBV_WR_RDMA_WRITE_WITH_IMM, key, address, &SendRequest::imm_data>;
    qp.wr_rdma_read = wr<IBV_WR_RDMA_READ, key, address>;
    qp.wr_atomic_cmp_swp = wr<IBV_WR_ATOMIC_CMP_AND_SWP, key, address, operand, &SendRequest::swap>;
    qp.wr_atomic_fetch_add = wr<IBV_WR_ATOMIC_FETCH_AND_ADD, key, address, operand>;
    qp.wr_atomic_write = wr_atomic_write;
    qp.wr_local_inv = wr<IBV_WR_LOCAL_INV, &SendRequest::invalidate_rkey>;
    qp.wr_bind_mw = wr_bind_mw;
    qp.wr_set_ud_addr = wr_set_ud_addr;
    qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
    qp.wr_start = wr_start;
    qp.wr_complete = wr_complete;
    qp.wr_abort = wr_abort;
}

} // namespace softverbs
