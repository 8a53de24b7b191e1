// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

namespace rdmabuf::detail {

/// Whether create_without_scatter_to_cqe() can be called: the device is driven by libmlx5, and that
/// library has the functions for it (rdma-core 17).
[[nodiscard]] bool has_scatter_to_cqe(ibv_device* device) noexcept;

/// Creates a queue pair with mlx5dv_create_qp(3) and MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE, on a
/// device for which has_scatter_to_cqe() is true. Otherwise as ibv_create_qp_ex(3): null and errno
/// on failure.
[[nodiscard]] ibv_qp* create_without_scatter_to_cqe(ibv_context* context,
                                                    ibv_qp_init_attr_ex* attributes) noexcept;

} // namespace rdmabuf::detail
