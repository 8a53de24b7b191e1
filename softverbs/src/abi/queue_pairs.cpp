// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "abi/operations.hpp"
#include "abi/verbs.hpp"
#include "objects/multicast.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

ibv_qp* create_qp_ex_op(ibv_context* native, ibv_qp_init_attr_ex* attributes) {
    Context& context = context_of(native);
    return call_with_memory("ibv_create_qp_ex", context, *attributes, [&](QueueMemory& memory) {
        return native_of<ibv_qp*>(create_qp(context, *attributes, memory));
    });
}

int get_srq_num_op(ibv_srq* native, std::uint32_t* number) {
    const Guard guard;
    const Srq& srq = *static_cast<Srq*>(native);
    if (srq.number == 0) {
        return EINVAL; // only SRQs of type XRC have a number
    }
    *number = srq.number;
    return 0;
}

ibv_srq* create_srq_ex_op(ibv_context* native, ibv_srq_init_attr_ex* attributes) {
    Context& context = context_of(native);
    return call_with_memory(
        "ibv_create_srq_ex", context, *attributes,
        [&](QueueMemory& memory) -> ibv_srq* { return create_srq(context, *attributes, memory); });
}

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
    Context* const context = ours(pd->context);
    if (context == nullptr) {
        return forward<ibv_create_qp>("ibv_create_qp", pd, init);
    }
    ibv_qp_init_attr_ex extended{};
    extended.qp_context = init->qp_context;
    extended.send_cq = init->send_cq;
    extended.recv_cq = init->recv_cq;
    extended.srq = init->srq;
    extended.cap = init->cap;
    extended.qp_type = init->qp_type;
    extended.sq_sig_all = init->sq_sig_all;
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    return call_with_memory("ibv_create_qp", *context, extended, [&](QueueMemory& memory) {
        Qp* const made = create_qp(*context, extended, memory);
        if (made != nullptr) {
            init->cap = extended.cap;
        }
        return native_of<ibv_qp*>(made);
    });
}

SOFTVERBS_ENTRY ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
    if (ours(qp->context) == nullptr) {
        return forward<ibv_qp_to_qp_ex>("ibv_qp_to_qp_ex", qp);
    }
    Qp& known = Qp::of(qp);
    return known.extended ? &known : nullptr;
}

SOFTVERBS_ENTRY int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    return ours(qp->context) != nullptr
               ? call("ibv_modify_qp", context_of(*qp),
                      [&] {
                          const int error = modify_qp(Qp::of(qp), *attributes, mask);
                          if (error == 0 && (mask & IBV_QP_STATE) != 0) {
                              qp->state = attributes->qp_state;
                          }
                          return error;
                      })
               : forward<ibv_modify_qp>("ibv_modify_qp", qp, attributes, mask);
}

SOFTVERBS_ENTRY int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask,
                                 ibv_qp_init_attr* init) {
    if (ours(qp->context) == nullptr) {
        return forward<ibv_query_qp>("ibv_query_qp", qp, attributes, mask, init);
    }
    // The attributes that ibv_query_qp() returns for a queue pair with the efa driver of the
    // kernel.
    constexpr int efa_attributes = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
                                   IBV_QP_SQ_PSN | IBV_QP_CAP | IBV_QP_RNR_RETRY;
    return call("ibv_query_qp", context_of(*qp), [&] {
        if (device_of(*qp).rules.is_efa && (mask & ~efa_attributes) != 0) {
            return EOPNOTSUPP;
        }
        query_qp(Qp::of(qp), *attributes, *init);
        if ((mask & IBV_QP_STATE) != 0) {
            qp->state = attributes->qp_state;
        }
        return 0;
    });
}

SOFTVERBS_ENTRY int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode,
                                               std::uint32_t flags) {
    // ibv_query_qp_data_in_order() returns 0 if the order in which received data is written is
    // unknown. softverbs copies data with memcpy(3), which guarantees no order.
    return ours(qp->context) != nullptr ? 0
                                        : forward<ibv_query_qp_data_in_order>(
                                              "ibv_query_qp_data_in_order", qp, opcode, flags);
}

SOFTVERBS_ENTRY int ibv_destroy_qp(ibv_qp* qp) {
    return unlocked_destroying_verb<ibv_destroy_qp, "ibv_destroy_qp", destroy_qp>(qp);
}

SOFTVERBS_ENTRY int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
    return verb<ibv_query_ece, "ibv_query_ece", query_ece>(qp, ece);
}

SOFTVERBS_ENTRY int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
    return verb<ibv_set_ece, "ibv_set_ece", set_ece>(qp, ece);
}

SOFTVERBS_ENTRY int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
    return verb<ibv_attach_mcast, "ibv_attach_mcast", attach_multicast>(qp, gid, lid);
}

SOFTVERBS_ENTRY int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
    return verb<ibv_detach_mcast, "ibv_detach_mcast", detach_multicast>(qp, gid, lid);
}

SOFTVERBS_ENTRY ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
    Context* const context = ours(pd->context);
    if (context == nullptr) {
        return forward<ibv_create_srq>("ibv_create_srq", pd, init);
    }
    ibv_srq_init_attr_ex extended{};
    extended.srq_context = init->srq_context;
    extended.attr = init->attr;
    extended.comp_mask = IBV_SRQ_INIT_ATTR_PD;
    extended.pd = pd;
    return call_with_memory(
        "ibv_create_srq", *context, extended,
        [&](QueueMemory& memory) -> ibv_srq* { return create_srq(*context, extended, memory); });
}

SOFTVERBS_ENTRY int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
    return verb<ibv_modify_srq, "ibv_modify_srq", modify_srq>(srq, attributes, mask);
}

SOFTVERBS_ENTRY int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
    if (ours(srq->context) == nullptr) {
        return forward<ibv_query_srq>("ibv_query_srq", srq, attributes);
    }
    return call("ibv_query_srq", context_of(*srq), [&] {
        query_srq(*static_cast<Srq*>(srq), *attributes);
        return 0;
    });
}

SOFTVERBS_ENTRY int ibv_destroy_srq(ibv_srq* srq) {
    return unlocked_destroying_verb<ibv_destroy_srq, "ibv_destroy_srq", destroy_srq>(srq);
}
