// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/ib_user_verbs.h>

#include "cm/id.hpp"

namespace softverbs::cm {

/// Sets the address vector of a queue pair to the destination of a route.
void fill_address_vector(ib_uverbs_ah_attr& address, const Route& route);

/// Stores in @p attributes the attributes and the mask for the transition of a queue pair to @p
/// state (INIT, RTR or RTS). Returns 0, or EINVAL if the id has no device or its connection is not
/// ready for this state.
[[nodiscard]] int queue_pair_attributes(const Id& id, std::uint32_t state,
                                        ib_uverbs_qp_attr& attributes);

} // namespace softverbs::cm
