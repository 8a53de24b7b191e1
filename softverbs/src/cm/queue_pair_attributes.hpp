// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/ib_user_verbs.h>

#include "cm/id.hpp"

namespace softverbs::cm {

/// Fills in the address vector for packets along a route.
void fill_address_vector(ib_uverbs_ah_attr& address, const Route& route);

/// Stores in @p attributes the attributes, and their mask, that move a queue pair of the id to @p
/// state: INIT, RTR or RTS. Returns 0, or EINVAL: the id has no device, or the connection has not
/// reached the step that this state needs.
[[nodiscard]] int queue_pair_attributes(const Id& id, std::uint32_t state,
                                        ib_uverbs_qp_attr& attributes);

} // namespace softverbs::cm
