// SPDX-License-Identifier: BSD-3-Clause
#include "queues/mlx5_queue_pair.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "device/verbs_extensions.hpp"

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>
#define RDMABUF_HAVE_MLX5DV_H 1
#else
#define RDMABUF_HAVE_MLX5DV_H 0
#endif

namespace rdmabuf::detail {
namespace {

/// This struct has the first members of mlx5dv_qp_init_attr, and space for its other members.
struct InitAttr {
    std::uint64_t comp_mask;
    std::uint32_t create_flags;
    std::uint64_t others[8];
};
constexpr std::uint64_t has_create_flags = 1;
constexpr std::uint32_t disable_scatter_to_cqe = 1U << 3U;
/// The value of MLX5DV_QP_CREATE_OOO_DP, which headers older than rdma-core 55 do not define. With
/// this flag, an older libmlx5 fails with EINVAL or EOPNOTSUPP.
constexpr std::uint32_t out_of_order_placement = 1U << 7U;

#if RDMABUF_HAVE_MLX5DV_H
static_assert(sizeof(InitAttr) >= sizeof(::mlx5dv_qp_init_attr));
static_assert(offsetof(InitAttr, comp_mask) == offsetof(::mlx5dv_qp_init_attr, comp_mask));
static_assert(offsetof(InitAttr, create_flags) == offsetof(::mlx5dv_qp_init_attr, create_flags));
static_assert(has_create_flags == MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS);
static_assert(disable_scatter_to_cqe == MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
#endif

using IsSupported = bool (*)(ibv_device*);
using CreateQp = ibv_qp* (*)(ibv_context*, ibv_qp_init_attr_ex*, InitAttr*);

// Looks up mlx5dv_create_qp. The lookup is repeated for each queue pair, because libibverbs may
// load libmlx5 later. Creating a queue pair takes much longer than the lookup.
CreateQp find_create_qp() noexcept {
    return reinterpret_cast<CreateQp>(find_mlx5_function("mlx5dv_create_qp"));
}

} // namespace

bool has_mlx5_create_qp(ibv_device* device) noexcept {
    const auto is_supported =
        reinterpret_cast<IsSupported>(find_mlx5_function("mlx5dv_is_supported"));
    return is_supported != nullptr && find_create_qp() != nullptr && is_supported(device);
}

ibv_qp* mlx5_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attributes,
                       Mlx5QueuePairFlags flags) noexcept {
    const CreateQp create_qp = find_create_qp();
    if (create_qp == nullptr) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    InitAttr extra{};
    extra.comp_mask = has_create_flags;
    extra.create_flags = (flags.disable_scatter_to_cqe ? disable_scatter_to_cqe : 0) |
                         (flags.out_of_order_placement ? out_of_order_placement : 0);
    return create_qp(context, attributes, &extra);
}

} // namespace rdmabuf::detail
