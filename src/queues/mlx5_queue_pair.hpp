// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace rdmabuf::detail {

/// Returns true if mlx5_create_qp() can be called: libmlx5 drives the device and has
/// mlx5dv_create_qp (rdma-core 17 or newer).
[[nodiscard]] bool has_mlx5_create_qp(ibv_device* device) noexcept;

struct Mlx5QueuePairFlags {
    /// True sets the flag MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE of libmlx5.
    bool disable_scatter_to_cqe = false;
    /// True sets the flag MLX5DV_QP_CREATE_OOO_DP of libmlx5.
    bool out_of_order_placement = false;
};

/// Creates a queue pair with mlx5dv_create_qp(3) and @p flags. has_mlx5_create_qp() must be true
/// for the device. Returns null and sets errno on failure, as ibv_create_qp_ex(3) does.
[[nodiscard]] ibv_qp* mlx5_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes,
                                     Mlx5QueuePairFlags flags) noexcept;

} // namespace rdmabuf::detail
