// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/sa.h>
#include <rdma/ib_user_verbs.h>

#include "cm/id.hpp"
#include "cm/user_cm.hpp"

namespace softverbs::cm {

/// The following functions return the responses to the commands that query the route or the
/// addresses of an id.
[[nodiscard]] rdma_ucm_query_route_resp query_route(const Id& id);
[[nodiscard]] rdma_ucm_query_addr_resp query_address(const Id& id);
[[nodiscard]] rdma_ucm_query_addr_resp query_gid(const Id& id);
/// Returns the path record of the resolved route of an id.
[[nodiscard]] ibv_path_data query_path(const Id& id);

/// Stores a path record, which the program has obtained without rdma_cm, in the route of an id.
void set_path(Id& id, const ibv_path_record& path);

/// Sets the address vector of a queue pair to the destination of a route.
void fill_address_vector(ib_uverbs_ah_attr& address, const Route& route);

/// Stores in @p attributes the attributes and the mask for the transition of a queue pair to @p
/// state (INIT, RTR or RTS). Returns 0, or EINVAL if the id has no device or its connection is not
/// ready for this state.
[[nodiscard]] int queue_pair_attributes(const Id& id, std::uint32_t state,
                                        ib_uverbs_qp_attr& attributes);

} // namespace softverbs::cm
