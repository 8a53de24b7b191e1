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

int advise_mr_op(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* entries,
                 std::uint32_t count);
ibv_mr* reg_dm_mr_op(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                     unsigned access);

int get_srq_num_op(ibv_srq* native, std::uint32_t* number);

ibv_qp* create_qp_ex_op(ibv_context* native, ibv_qp_init_attr_ex* attributes);
ibv_srq* create_srq_ex_op(ibv_context* native, ibv_srq_init_attr_ex* attributes);

} // namespace softverbs
