// SPDX-License-Identifier: BSD-3-Clause
#include "abi/operations.hpp"

#include "abi/verbs.hpp"
#include "objects/tag_matching.hpp"

namespace softverbs {

namespace {

/// Returns @p function if the device has the feature (@p has is true), and otherwise null. As in
/// the providers of libibverbs, the pointer of an unsupported function is null.
template <class Function>
Function* when(bool has, Function* function) {
    return has ? function : nullptr;
}

/// Makes @p pointer a function that implements the verb @p name by @p own.
template <VerbName name, auto own, class Result, class Native, class... Arguments>
void set(Result (*&pointer)(Native*, Arguments...), bool has = true) {
    pointer = when(has, call_own<name, own, Result, Native, Arguments...>);
}
template <VerbName name, auto own, class Native>
void set_destroying(int (*&pointer)(Native*)) {
    pointer = destroy_own<name, own, Native>;
}

} // namespace

void set_operations(Context& context) {
    const Device& device = *context.device;
    context.query_port = query_port_op;
    context.query_device_ex =
        when(device.has(SOFTVERBS_FEATURE_QUERY_DEVICE_EX), query_device_ex_op);
    context.query_rt_values = query_rt_values_op;
    set<"ibv_alloc_null_mr", alloc_null_mr>(context.alloc_null_mr);
    context.advise_mr = advise_mr_op;
    set<"ibv_create_cq_ex", create_cq>(context.create_cq_ex,
                                       device.has(SOFTVERBS_FEATURE_CREATE_CQ_EX));
    set<"ibv_modify_cq", modify_cq>(context.modify_cq);
    set<"ibv_modify_qp_rate_limit", modify_rate_limit>(
        context.modify_qp_rate_limit, device.attributes.packet_pacing_caps.qp_rate_limit_max != 0);
    const bool xrc = (device.attributes.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
    set<"ibv_open_xrcd", open_xrcd>(context.open_xrcd, xrc);
    set_destroying<"ibv_close_xrcd", close_xrcd>(context.close_xrcd);
    set<"ibv_open_qp", open_qp>(context.open_qp, xrc);
    context.get_srq_num = when(xrc, get_srq_num_op);
    set<"ibv_alloc_td", alloc_td>(context.alloc_td);
    set_destroying<"ibv_dealloc_td", dealloc_td>(context.dealloc_td);
    set<"ibv_alloc_parent_domain", alloc_parent_domain>(context.alloc_parent_domain);
    context.create_qp_ex = when(device.has(SOFTVERBS_FEATURE_CREATE_QP_EX), create_qp_ex_op);
    context.create_srq_ex = create_srq_ex_op;
    context.post_srq_ops = when(device.attributes.tm_caps.flags != 0, post_srq_ops);
    set<"ibv_alloc_dm", alloc_dm>(context.alloc_dm, device.has(SOFTVERBS_FEATURE_DM));
    context.reg_dm_mr = when(device.has(SOFTVERBS_FEATURE_DM), reg_dm_mr_op);
    set_destroying<"ibv_free_dm", free_dm>(context.free_dm);

    ibv_context_ops& ops = context.context.ops;
    set<"ibv_alloc_mw", alloc_mw>(ops.alloc_mw, device.has(SOFTVERBS_FEATURE_MW));
    set_destroying<"ibv_dealloc_mw", dealloc_mw>(ops.dealloc_mw);
    ops.bind_mw = bind_mw;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_srq_recv = post_srq_recv;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
}

} // namespace softverbs
