// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Attributes (IBV_QP_*) that ibv_modify_qp() requires and permits for a state transition, besides
/// IBV_QP_STATE.
struct Transition {
    bool allowed = false;
    int required = 0;
    int optional = 0;
};

/// The transition table of the InfiniBand specification (10.3.1, 11.2.5.2) and of the kernel's
/// ib_modify_qp_is_ok().
[[nodiscard]] Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept;

} // namespace softverbs
