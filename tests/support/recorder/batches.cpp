// SPDX-License-Identifier: BSD-3-Clause
// Records the requests that a program builds between ibv_wr_start() and ibv_wr_complete().
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "state.hpp"

namespace rdmabuf::testing::recorder {
namespace {

struct Batch {
    /// A copy of the queue pair with the function pointers that the recorder has replaced.
    ibv_qp_ex original{};
    std::vector<Send> requests;
};

std::map<ibv_qp_ex*, Batch>& batches() {
    static std::map<ibv_qp_ex*, Batch> the_batches;
    return the_batches;
}

/// Returns the batch of a queue pair. The reference stays valid when other queue pairs are added.
Batch& batch_of(ibv_qp_ex* qp) {
    const Writing lock;
    return batches().at(qp);
}

/// Adds a request to the batch. The functions that follow set its parts.
ibv_send_wr& add(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
    Send send{};
    send.request.wr_id = qp->wr_id;
    send.request.send_flags = qp->wr_flags;
    send.request.opcode = opcode;
    send.extended = true;
    send.queue_pair = qp->qp_base.qp_num;
    return batch_of(qp).requests.emplace_back(std::move(send)).request;
}

ibv_send_wr& add_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey,
                      std::uint64_t address) {
    ibv_send_wr& request = add(qp, opcode);
    request.wr.rdma.rkey = rkey;
    request.wr.rdma.remote_addr = address;
    return request;
}

ibv_send_wr& add_atomic(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey,
                        std::uint64_t address) {
    ibv_send_wr& request = add(qp, opcode);
    request.wr.atomic.rkey = rkey;
    request.wr.atomic.remote_addr = address;
    return request;
}

void keep_inline(ibv_qp_ex* qp, const void* address, std::size_t length) {
    const auto* const bytes = static_cast<const std::uint8_t*>(address);
    batch_of(qp).requests.back().inline_data.emplace_back(bytes, bytes + length);
}

void start(ibv_qp_ex* qp) {
    batch_of(qp).requests.clear();
    batch_of(qp).original.wr_start(qp);
}

int complete(ibv_qp_ex* qp) {
    notify_observer("ibv_wr_complete");
    Batch& batch = batch_of(qp);
    const int error = batch.original.wr_complete(qp);
    const Writing writing;
    const unsigned call = ++state().posting_calls;
    auto& to = error == 0 ? writing->sends : writing->refused_batches;
    for (Send& send : std::exchange(batch.requests, {})) {
        send.call = call;
        to.push_back(std::move(send));
    }
    return error;
}

void abort(ibv_qp_ex* qp) {
    batch_of(qp).requests.clear();
    batch_of(qp).original.wr_abort(qp);
    ++Writing()->aborted_batches;
}

void set_frame(ibv_qp_ex& qp) {
    qp.wr_start = start;
    qp.wr_complete = complete;
    qp.wr_abort = abort;
}

void set_requests(ibv_qp_ex& qp) {
    qp.wr_send = [](ibv_qp_ex* ex) {
        add(ex, IBV_WR_SEND);
        batch_of(ex).original.wr_send(ex);
    };
    qp.wr_send_imm = [](ibv_qp_ex* ex, __be32 immediate) {
        add(ex, IBV_WR_SEND_WITH_IMM).imm_data = immediate;
        batch_of(ex).original.wr_send_imm(ex, immediate);
    };
    qp.wr_send_inv = [](ibv_qp_ex* ex, std::uint32_t rkey) {
        add(ex, IBV_WR_SEND_WITH_INV).invalidate_rkey = rkey;
        batch_of(ex).original.wr_send_inv(ex, rkey);
    };
    qp.wr_local_inv = [](ibv_qp_ex* ex, std::uint32_t rkey) {
        add(ex, IBV_WR_LOCAL_INV).invalidate_rkey = rkey;
        batch_of(ex).original.wr_local_inv(ex, rkey);
    };
    qp.wr_bind_mw = [](ibv_qp_ex* ex, ibv_mw* window, std::uint32_t rkey,
                       const ibv_mw_bind_info* part) {
        ibv_send_wr& request = add(ex, IBV_WR_BIND_MW);
        request.bind_mw.mw = window;
        request.bind_mw.rkey = rkey;
        request.bind_mw.bind_info = *part;
        batch_of(ex).original.wr_bind_mw(ex, window, rkey, part);
    };
    qp.wr_atomic_write = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                            const void* value) {
        add_rdma(ex, IBV_WR_ATOMIC_WRITE, rkey, address);
        keep_inline(ex, value, sizeof(std::uint64_t));
        batch_of(ex).original.wr_atomic_write(ex, rkey, address, value);
    };
    qp.wr_rdma_write = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, address);
        batch_of(ex).original.wr_rdma_write(ex, rkey, address);
    };
    qp.wr_rdma_write_imm = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                              __be32 immediate) {
        add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address).imm_data = immediate;
        batch_of(ex).original.wr_rdma_write_imm(ex, rkey, address, immediate);
    };
    qp.wr_rdma_read = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(ex, IBV_WR_RDMA_READ, rkey, address);
        batch_of(ex).original.wr_rdma_read(ex, rkey, address);
    };
    qp.wr_atomic_cmp_swp = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t expected, std::uint64_t swap) {
        ibv_send_wr& request = add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
        request.wr.atomic.compare_add = expected;
        request.wr.atomic.swap = swap;
        batch_of(ex).original.wr_atomic_cmp_swp(ex, rkey, address, expected, swap);
    };
    qp.wr_atomic_fetch_add = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                                std::uint64_t addend) {
        add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address).wr.atomic.compare_add = addend;
        batch_of(ex).original.wr_atomic_fetch_add(ex, rkey, address, addend);
    };
}

void set_parts(ibv_qp_ex& qp) {
    qp.wr_set_ud_addr = [](ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
        ibv_send_wr& request = batch_of(ex).requests.back().request;
        request.wr.ud.ah = ah;
        request.wr.ud.remote_qpn = number;
        request.wr.ud.remote_qkey = qkey;
        batch_of(ex).original.wr_set_ud_addr(ex, ah, number, qkey);
    };
    qp.wr_set_sge = [](ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t address,
                       std::uint32_t length) {
        batch_of(ex).requests.back().entries = {{.addr = address, .length = length, .lkey = lkey}};
        batch_of(ex).original.wr_set_sge(ex, lkey, address, length);
    };
    qp.wr_set_sge_list = [](ibv_qp_ex* ex, std::size_t count, const ibv_sge* list) {
        batch_of(ex).requests.back().entries.assign(list, list + count);
        batch_of(ex).original.wr_set_sge_list(ex, count, list);
    };
    qp.wr_set_inline_data = [](ibv_qp_ex* ex, void* address, std::size_t length) {
        keep_inline(ex, address, length);
        batch_of(ex).original.wr_set_inline_data(ex, address, length);
    };
    qp.wr_set_inline_data_list = [](ibv_qp_ex* ex, std::size_t count, const ibv_data_buf* list) {
        for (const ibv_data_buf& buffer : std::span(list, count)) {
            keep_inline(ex, buffer.addr, buffer.length);
        }
        batch_of(ex).original.wr_set_inline_data_list(ex, count, list);
    };
}

} // namespace

void enter_queue_pair(ibv_qp* qp) {
    ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
    if (extended == nullptr || extended->wr_start == nullptr) {
        return;
    }
    const Writing lock;
    batches()[extended].original = *extended;
    set_frame(*extended);
    set_requests(*extended);
    set_parts(*extended);
}

void leave_queue_pair(ibv_qp* qp) {
    const Writing lock;
    // The queue pair is freed, so only its address may be used.
    batches().erase(reinterpret_cast<ibv_qp_ex*>(qp));
}

} // namespace rdmabuf::testing::recorder
