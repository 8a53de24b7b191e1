// SPDX-License-Identifier: BSD-3-Clause
#include "control/verbs_names.hpp"

#include <algorithm>
#include <array>

namespace softverbs {

namespace {

/// The verbs that destroy no object and that softverbs_fail_call() can make fail.
constexpr auto verbs = std::to_array<std::string_view>({
    "ibv_advise_mr",
    "ibv_alloc_dm",
    "ibv_alloc_mw",
    "ibv_alloc_null_mr",
    "ibv_alloc_parent_domain",
    "ibv_alloc_pd",
    "ibv_alloc_td",
    "ibv_attach_mcast",
    "ibv_bind_mw",
    "ibv_create_ah",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_cq_ex",
    "ibv_create_qp",
    "ibv_create_qp_ex",
    "ibv_create_srq",
    "ibv_create_srq_ex",
    "ibv_detach_mcast",
    "ibv_dm_export_dmabuf_fd",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_device_list",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_memcpy_from_dm",
    "ibv_memcpy_to_dm",
    "ibv_modify_cq",
    "ibv_modify_qp",
    "ibv_modify_qp_rate_limit",
    "ibv_modify_srq",
    "ibv_open_device",
    "ibv_open_qp",
    "ibv_open_xrcd",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_post_srq_ops",
    "ibv_post_srq_recv",
    "ibv_query_device",
    "ibv_query_device_ex",
    "ibv_query_gid",
    "ibv_query_gid_ex",
    "ibv_query_gid_table",
    "ibv_query_pkey",
    "ibv_query_port",
    "ibv_query_qp",
    "ibv_query_rt_values_ex",
    "ibv_query_srq",
    "ibv_reg_dm_mr",
    "ibv_reg_dmabuf_mr",
    "ibv_reg_mr",
    "ibv_req_notify_cq",
    "ibv_rereg_mr",
    "ibv_resize_cq",
    "ibv_wr_complete",
    "rdma_accept",
    "rdma_bind_addr",
    "rdma_connect",
    "rdma_create_event_channel",
    "rdma_create_id",
    "rdma_disconnect",
    "rdma_get_cm_event",
    "rdma_init_qp_attr",
    "rdma_join_multicast",
    "rdma_listen",
    "rdma_migrate_id",
    "rdma_notify",
    "rdma_reject",
    "rdma_resolve_addr",
    "rdma_resolve_route",
    "rdma_set_option",
});

/// The verbs that destroy an object and that softverbs_fail_call() can make fail.
constexpr auto destroying_verbs = std::to_array<std::string_view>({
    "ibv_close_device",
    "ibv_close_xrcd",
    "ibv_dealloc_td",
    "ibv_dealloc_mw",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_ah",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_destroy_qp",
    "ibv_destroy_srq",
    "ibv_free_dm",
    "rdma_destroy_id",
    "rdma_leave_multicast",
});

} // namespace

bool is_verb(std::string_view name) noexcept {
    return !name.empty() && (std::ranges::find(verbs, name) != verbs.end() || destroys(name));
}

bool destroys(std::string_view name) noexcept {
    return std::ranges::find(destroying_verbs, name) != destroying_verbs.end();
}

} // namespace softverbs
