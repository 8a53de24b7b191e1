// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "objects/device.hpp"

namespace softverbs {

/// Sets those function pointers in the context that the inline functions of verbs.h call. A pointer
/// is null if the device does not have the feature that the function needs. The pointers of
/// functions that destroy objects are never null, because a test may remove a feature while objects
/// exist.
void set_operations(Context& context);

// set_operations() stores the addresses of these functions in a context. They are called only with
// objects of softverbs devices.

int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
                  std::size_t size);
int query_device_ex_op(ibv_context* native, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attributes, std::size_t size);
int query_rt_values_op(ibv_context* context, ibv_values_ex* values);

ibv_mr* alloc_null_mr_op(ibv_pd* pd);
int advise_mr_op(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* entries,
                 std::uint32_t count);
ibv_dm* alloc_dm_op(ibv_context* native, ibv_alloc_dm_attr* attributes);
int free_dm_op(ibv_dm* dm);
ibv_mr* reg_dm_mr_op(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                     unsigned access);
ibv_mw* alloc_mw_op(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw_op(ibv_mw* mw);

ibv_td* alloc_td_op(ibv_context* native, ibv_td_init_attr* attributes);
int dealloc_td_op(ibv_td* td);
ibv_xrcd* open_xrcd_op(ibv_context* native, ibv_xrcd_init_attr* attributes);
int close_xrcd_op(ibv_xrcd* xrcd);
ibv_qp* open_qp_op(ibv_context* native, ibv_qp_open_attr* attributes);
int get_srq_num_op(ibv_srq* native, std::uint32_t* number);
ibv_pd* alloc_parent_domain_op(ibv_context* native, ibv_parent_domain_init_attr* attributes);

ibv_cq_ex* create_cq_ex_op(ibv_context* native, ibv_cq_init_attr_ex* attributes);
int modify_cq_op(ibv_cq* cq, ibv_modify_cq_attr* attributes);
int modify_qp_rate_limit_op(ibv_qp* qp, ibv_qp_rate_limit_attr* attributes);
ibv_qp* create_qp_ex_op(ibv_context* native, ibv_qp_init_attr_ex* attributes);
ibv_srq* create_srq_ex_op(ibv_context* native, ibv_srq_init_attr_ex* attributes);

} // namespace softverbs
