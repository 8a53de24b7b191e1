// SPDX-License-Identifier: BSD-3-Clause
#include "abi/operations.hpp"

#include "objects/queue_pair.hpp"
#include "objects/tag_matching.hpp"

namespace softverbs {

namespace {

/// Returns @p function if the device has the feature (@p has is true), and otherwise null. As in
/// the providers of libibverbs, the pointer of an unsupported function is null.
template <class Function>
Function* when(bool has, Function* function) {
    return has ? function : nullptr;
}

} // namespace

void set_operations(Context& context) {
    const Device& device = *context.device;
    context.query_port = query_port_op;
    context.query_device_ex =
        when(device.has(SOFTVERBS_FEATURE_QUERY_DEVICE_EX), query_device_ex_op);
    context.query_rt_values = query_rt_values_op;
    context.alloc_null_mr = alloc_null_mr_op;
    context.advise_mr = advise_mr_op;
    context.create_cq_ex = when(device.has(SOFTVERBS_FEATURE_CREATE_CQ_EX), create_cq_ex_op);
    context.modify_cq = modify_cq_op;
    context.modify_qp_rate_limit =
        when(device.attributes.packet_pacing_caps.qp_rate_limit_max != 0, modify_qp_rate_limit_op);
    const bool xrc = (device.attributes.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
    context.open_xrcd = when(xrc, open_xrcd_op);
    context.close_xrcd = close_xrcd_op; // A test may remove XRC while a domain exists.
    context.open_qp = when(xrc, open_qp_op);
    context.get_srq_num = when(xrc, get_srq_num_op);
    context.alloc_td = alloc_td_op;
    context.dealloc_td = dealloc_td_op;
    context.alloc_parent_domain = alloc_parent_domain_op;
    context.create_qp_ex = when(device.has(SOFTVERBS_FEATURE_CREATE_QP_EX), create_qp_ex_op);
    context.create_srq_ex = create_srq_ex_op;
    context.post_srq_ops = when(device.attributes.tm_caps.flags != 0, post_srq_ops);
    context.alloc_dm = when(device.has(SOFTVERBS_FEATURE_DM), alloc_dm_op);
    context.reg_dm_mr = when(device.has(SOFTVERBS_FEATURE_DM), reg_dm_mr_op);
    context.free_dm = free_dm_op;

    ibv_context_ops& ops = context.context.ops;
    ops.alloc_mw = when(device.has(SOFTVERBS_FEATURE_MW), alloc_mw_op);
    ops.dealloc_mw = dealloc_mw_op;
    ops.bind_mw = bind_mw;
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_srq_recv = post_srq_recv;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
}

} // namespace softverbs
