// SPDX-License-Identifier: BSD-3-Clause
// Queue pairs, and posting to them in both ways.
#include "state.hpp"

using standin::fail;
using standin::Kind;
using standin::Qp;
using standin::state;

namespace {

Qp& from(ibv_qp* qp) {
    return static_cast<Qp&>(*reinterpret_cast<ibv_qp_ex*>(qp));
}
Qp& from(ibv_qp_ex* qp) {
    return static_cast<Qp&>(*qp);
}

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        default:
            return IBV_WC_SEND;
    }
}

/// Takes a request that has been found good: what is signalled completes at once.
void take(Qp& qp, standin::Send send) {
    const ibv_send_wr& request = send.request;
    const bool failed = qp.qp_base.state == IBV_QPS_ERR;
    if (failed || qp.attributes.sq_sig_all != 0 || (request.send_flags & IBV_SEND_SIGNALED) != 0) {
        ibv_wc completion{};
        completion.wr_id = request.wr_id;
        completion.status = failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS;
        completion.opcode = completion_opcode(request.opcode);
        completion.qp_num = qp.qp_base.qp_num;
        standin::complete(qp.qp_base.send_cq, completion);
    }
    ++qp.sends;
    state().record.sends.push_back(std::move(send));
}

int post_send(ibv_qp* native, ibv_send_wr* request, ibv_send_wr** failed) {
    const auto guard = standin::lock();
    Qp& qp = from(native);
    int error = state().enter("ibv_post_send");
    if (error == 0 && native->state != IBV_QPS_RTS && native->state != IBV_QPS_ERR) {
        error = EINVAL;
    }
    ++state().posting_calls;
    for (; request != nullptr; request = request->next) {
        if (error == 0 && qp.sends == qp.attributes.cap.max_send_wr) {
            error = ENOMEM;
        }
        if (error == 0 && request->num_sge > static_cast<int>(qp.attributes.cap.max_send_sge)) {
            error = EINVAL;
        }
        if (error != 0) {
            *failed = request;
            return error;
        }
        take(qp, {*request,
                  {request->sg_list, request->sg_list + request->num_sge},
                  {},
                  false,
                  state().posting_calls});
    }
    return 0;
}

int post_recv(ibv_qp* native, ibv_recv_wr* request, ibv_recv_wr** failed) {
    const auto guard = standin::lock();
    Qp& qp = from(native);
    int error = state().enter("ibv_post_recv");
    if (error == 0 && native->state == IBV_QPS_RESET) {
        error = EINVAL;
    }
    ++state().posting_calls;
    for (; request != nullptr; request = request->next) {
        if (error == 0 && qp.receives == qp.attributes.cap.max_recv_wr) {
            error = ENOMEM;
        }
        if (error != 0) {
            *failed = request;
            return error;
        }
        ++qp.receives;
        state().record.receives.push_back({*request,
                                           {request->sg_list, request->sg_list + request->num_sge},
                                           false,
                                           state().posting_calls});
    }
    return 0;
}

/// Begins a request of a batch.
ibv_send_wr& add(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
    standin::Send send{};
    send.request.wr_id = qp->wr_id;
    send.request.send_flags = qp->wr_flags;
    send.request.opcode = opcode;
    send.extended = true;
    return from(qp).batch.emplace_back(std::move(send)).request;
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

int complete_batch(ibv_qp_ex* native) {
    const auto guard = standin::lock();
    Qp& qp = from(native);
    if (const int error = state().enter("ibv_wr_complete"); error != 0) {
        qp.batch.clear();
        return error;
    }
    ++state().posting_calls;
    for (standin::Send& send : qp.batch) {
        send.call = state().posting_calls;
        take(qp, std::move(send));
    }
    qp.batch.clear();
    return 0;
}

void set_batch_operations(ibv_qp_ex& qp) {
    qp.wr_start = [](ibv_qp_ex* ex) { from(ex).batch.clear(); };
    qp.wr_complete = complete_batch;
    qp.wr_abort = [](ibv_qp_ex* ex) {
        from(ex).batch.clear();
        ++state().record.aborted_batches;
    };
    qp.wr_send = [](ibv_qp_ex* ex) { add(ex, IBV_WR_SEND); };
    qp.wr_send_imm = [](ibv_qp_ex* ex, __be32 immediate) {
        add(ex, IBV_WR_SEND_WITH_IMM).imm_data = immediate;
    };
    qp.wr_rdma_write = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(ex, IBV_WR_RDMA_WRITE, rkey, address);
    };
    qp.wr_rdma_write_imm = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                              __be32 immediate) {
        add_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address).imm_data = immediate;
    };
    qp.wr_rdma_read = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
        add_rdma(ex, IBV_WR_RDMA_READ, rkey, address);
    };
    qp.wr_atomic_cmp_swp = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                              std::uint64_t expected, std::uint64_t swap) {
        ibv_send_wr& request = add_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
        request.wr.atomic.compare_add = expected;
        request.wr.atomic.swap = swap;
    };
    qp.wr_atomic_fetch_add = [](ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address,
                                std::uint64_t addend) {
        add_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address).wr.atomic.compare_add = addend;
    };
    qp.wr_set_ud_addr = [](ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
        ibv_send_wr& request = from(ex).batch.back().request;
        request.wr.ud.ah = ah;
        request.wr.ud.remote_qpn = number;
        request.wr.ud.remote_qkey = qkey;
    };
    qp.wr_set_sge = [](ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t address,
                       std::uint32_t length) {
        from(ex).batch.back().entries = {{.addr = address, .length = length, .lkey = lkey}};
    };
    qp.wr_set_sge_list = [](ibv_qp_ex* ex, std::size_t count, const ibv_sge* list) {
        from(ex).batch.back().entries.assign(list, list + count);
    };
    qp.wr_set_inline_data = [](ibv_qp_ex* ex, void* address, std::size_t length) {
        const auto* const bytes = static_cast<const std::uint8_t*>(address);
        from(ex).batch.back().inline_data.emplace_back(bytes, bytes + length);
    };
    qp.wr_set_inline_data_list = [](ibv_qp_ex* ex, std::size_t count, const ibv_data_buf* list) {
        for (std::size_t i = 0; i < count; ++i) {
            const auto* const bytes = static_cast<const std::uint8_t*>(list[i].addr);
            from(ex).batch.back().inline_data.emplace_back(bytes, bytes + list[i].length);
        }
    };
}

/// What drivers answer to limits they do not have.
int check_limits(const ibv_device_attr& limits, const ibv_qp_cap& cap) {
    const auto above = [](std::uint32_t asked, int limit) {
        return asked > static_cast<std::uint32_t>(limit);
    };
    return above(cap.max_send_wr, limits.max_qp_wr) || above(cap.max_recv_wr, limits.max_qp_wr) ||
                   above(cap.max_send_sge, limits.max_sge) ||
                   above(cap.max_recv_sge, limits.max_sge) || above(cap.max_inline_data, 256)
               ? EINVAL
               : 0;
}

ibv_qp* make_qp(ibv_context* context, const ibv_qp_init_attr_ex& attributes) {
    if (const int error =
            check_limits(standin::device_of(context).attributes.orig_attr, attributes.cap);
        error != 0) {
        return fail(error);
    }
    state().record.qps.push_back(attributes);
    std::vector<const void*> parents{attributes.pd, static_cast<standin::Cq*>(attributes.send_cq),
                                     static_cast<standin::Cq*>(attributes.recv_cq)};
    if (attributes.srq != nullptr) {
        parents.push_back(static_cast<standin::Srq*>(attributes.srq));
    }
    Qp* const qp = state().make<Qp>(Kind::qp, std::move(parents));
    qp->attributes = attributes;
    ibv_qp& base = qp->qp_base;
    base.context = context;
    base.pd = attributes.pd;
    base.send_cq = attributes.send_cq;
    base.recv_cq = attributes.recv_cq;
    base.srq = attributes.srq;
    base.qp_num = 0x100 + state().next_number();
    base.qp_type = attributes.qp_type;
    base.state = IBV_QPS_RESET;
    if ((attributes.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
        set_batch_operations(*qp);
    }
    return &base;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_qp_ex"); error != 0) {
        return fail(error);
    }
    return make_qp(context, *attributes);
}

} // namespace

void standin::set_queue_pair_operations(Context& context) {
    context.context.ops.post_send = post_send;
    context.context.ops.post_recv = post_recv;
    if (context.listed->spec.extended_queue_pairs) {
        context.create_qp_ex = create_qp_ex;
    }
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_qp"); error != 0) {
        return fail(error);
    }
    ibv_qp_init_attr_ex extended{};
    extended.send_cq = attributes->send_cq;
    extended.recv_cq = attributes->recv_cq;
    extended.srq = attributes->srq;
    extended.cap = attributes->cap;
    extended.qp_type = attributes->qp_type;
    extended.sq_sig_all = attributes->sq_sig_all;
    extended.pd = pd;
    return make_qp(pd->context, extended);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
    Qp& whole = from(qp);
    return whole.wr_start != nullptr ? &whole : nullptr;
}

int ibv_modify_qp(ibv_qp* native, ibv_qp_attr* attributes, int mask) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_modify_qp"); error != 0) {
        return error;
    }
    state().record.modifications.push_back({native->qp_num, *attributes, mask});
    const ibv_qp_state from_state = native->state;
    const ibv_qp_state to_state = attributes->qp_state;
    // Changing one's mind in INIT is a step, too.
    const bool forward = (from_state == IBV_QPS_RESET && to_state == IBV_QPS_INIT) ||
                         (from_state == IBV_QPS_INIT && to_state == IBV_QPS_INIT) ||
                         (from_state == IBV_QPS_INIT && to_state == IBV_QPS_RTR) ||
                         (from_state == IBV_QPS_RTR && to_state == IBV_QPS_RTS);
    if ((mask & IBV_QP_STATE) == 0 || !(forward || to_state == IBV_QPS_ERR)) {
        return EINVAL;
    }
    native->state = to_state;
    return 0;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* /*init*/) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_query_qp"); error != 0) {
        return error;
    }
    attributes->qp_state = qp->state;
    return 0;
}

int ibv_destroy_qp(ibv_qp* qp) {
    const auto guard = standin::lock();
    return state().destroy(&from(qp), Kind::qp, "ibv_destroy_qp");
}
