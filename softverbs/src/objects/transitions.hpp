// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// The attributes (IBV_QP_*) that ibv_modify_qp() requires or permits for a state transition.
/// IBV_QP_STATE is not included.
struct Transition {
    bool allowed = false;
    int required = 0;
    int optional = 0;
};

/// Returns the attributes that a state transition requires and permits, according to the InfiniBand
/// specification (10.3.1, 11.2.5.2) and ib_modify_qp_is_ok() in the kernel.
[[nodiscard]] Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept;

/// Returns the attributes (IBV_QP_*) that ibv_modify_qp() ignores for a queue pair type. XRC_SEND
/// has no responder, and XRC_RECV has no requester; programs may use the attribute mask of an RC
/// queue pair for both types. See modify_qp_mask() in the kernel (uverbs_cmd.c).
[[nodiscard]] int ignored_attributes(ibv_qp_type type) noexcept;

} // namespace softverbs
