// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace rdmabuf::detail {

/// Whether mlx5_create_qp() can be called: the device is driven by libmlx5, and that library has
/// the functions for it (rdma-core 17).
[[nodiscard]] bool has_mlx5_create_qp(ibv_device* device) noexcept;

struct Mlx5QueuePairFlags {
    /// MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE.
    bool disable_scatter_to_cqe = false;
    /// MLX5DV_QP_CREATE_OOO_DP.
    bool out_of_order_placement = false;
};

/// Creates a queue pair with mlx5dv_create_qp(3) and these flags, on a device for which
/// has_mlx5_create_qp() is true. Otherwise as ibv_create_qp_ex(3): null and errno on failure.
[[nodiscard]] ibv_qp* mlx5_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes,
                                     Mlx5QueuePairFlags flags) noexcept;

} // namespace rdmabuf::detail
