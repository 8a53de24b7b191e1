// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/ib_user_verbs.h>

#include "cm/id.hpp"

namespace softverbs::cm {

/// An address vector for packets along a route.
void fill_address_vector(ib_uverbs_ah_attr& address, const Route& route);

/// The attributes, with their mask, that take a queue pair of the id to @p state: INIT, RTR or RTS.
/// 0, or EINVAL: the id has no device, or the connection is not so far.
[[nodiscard]] int queue_pair_attributes(const Id& id, std::uint32_t state,
                                        ib_uverbs_qp_attr& attributes);

} // namespace softverbs::cm
