// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

/// Which attributes ibv_modify_qp() needs and takes (IBV_QP_*), besides IBV_QP_STATE.
struct Transition {
    bool allowed = false;
    int required = 0;
    int optional = 0;
};

/// As the InfiniBand specification (10.3.1, 11.2.5.2) and the kernel's ib_modify_qp_is_ok() have
/// it.
[[nodiscard]] Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept;

} // namespace softverbs
