// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "abi/provider_library.hpp"
#include "objects/memory.hpp"
#include "objects/queue_pair.hpp"
#include "objects/scatter_to_cqe.hpp"

// The functions of libmlx5 that programs call to query features of a device and to configure
// scatter-to-CQE. For a softverbs device that does not imitate the mlx5 driver, these functions
// fail as libmlx5 does for a device of another driver. For a real device, they call libmlx5, or
// fail if libmlx5 is not loaded.

namespace softverbs {

namespace {

constexpr ProviderLibrary libmlx5{"libmlx5.so.1", "libmlx5-real.so.1", &Rules::is_mlx5};

/// The value of MLX5DV_QP_CREATE_OOO_DP, which older headers do not define. softverbs accepts the
/// flag, but places data in order, which the flag permits.
constexpr std::uint32_t out_of_order = 1U << 7U;
constexpr std::uint32_t scatter_flags =
    MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
/// Flags of libmlx5 for features that softverbs devices do not have. softverbs returns EOPNOTSUPP
/// for these flags, and EINVAL for flags that libmlx5 does not know.
constexpr std::uint32_t feature_flags =
    MLX5DV_QP_CREATE_TUNNEL_OFFLOADS | MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
    MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC | MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE |
    MLX5DV_QP_CREATE_SIG_PIPELINING;
constexpr std::uint64_t known_attributes =
    MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;

/// Checks the attributes of a new queue pair in the same order as libmlx5. Returns 0 or an errno.
/// @param max_requests  ibv_device_attr::max_qp_wr
int check(const ibv_qp_init_attr_ex& attributes, const mlx5dv_qp_init_attr& extra,
          std::uint32_t max_requests, ScatterRequest& scatter) {
    const auto has = [&extra](std::uint64_t bit) { return (extra.comp_mask & bit) != 0; };
    const bool is_driver = attributes.qp_type == IBV_QPT_DRIVER;
    if ((extra.comp_mask & ~known_attributes) != 0 ||
        (has(MLX5DV_QP_INIT_ATTR_MASK_DC) && !is_driver)) {
        return EINVAL;
    }
    const std::uint32_t flags =
        has(MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) ? extra.create_flags : 0;
    if ((flags & ~(scatter_flags | feature_flags | out_of_order)) != 0 ||
        (flags & scatter_flags) == scatter_flags) {
        return EINVAL;
    }
    if ((flags & feature_flags) != 0) {
        return EOPNOTSUPP;
    }
    if (is_driver) {
        return has(MLX5DV_QP_INIT_ATTR_MASK_DC) ? EOPNOTSUPP : EINVAL;
    }
    if (has(MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) && extra.send_ops_flags != 0) {
        return EOPNOTSUPP;
    }
    // As in libmlx5, the receive queue needs two entries for each request with out-of-order
    // placement.
    if ((flags & out_of_order) != 0 && attributes.srq == nullptr &&
        attributes.cap.max_recv_wr > max_requests / 2) {
        return EINVAL;
    }
    scatter = (flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) != 0 ? ScatterRequest::disabled
              : (flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE) != 0 ? ScatterRequest::allowed
                                                                     : ScatterRequest::none;
    return 0;
}

/// Returns the context of the first member of @p object that belongs to softverbs. Returns null if
/// all members belong to the real libibverbs.
ibv_context* context_in(const mlx5dv_obj& object, std::uint64_t types) {
    const auto ours_in = [types](std::uint64_t type, const auto& part) -> ibv_context* {
        return (types & type) != 0 && ours(part.in->context) != nullptr ? part.in->context
                                                                        : nullptr;
    };
    for (ibv_context* const found :
         {ours_in(MLX5DV_OBJ_QP, object.qp), ours_in(MLX5DV_OBJ_CQ, object.cq),
          ours_in(MLX5DV_OBJ_SRQ, object.srq), ours_in(MLX5DV_OBJ_RWQ, object.rwq),
          ours_in(MLX5DV_OBJ_DM, object.dm), ours_in(MLX5DV_OBJ_AH, object.ah),
          ours_in(MLX5DV_OBJ_PD, object.pd)}) {
        if (found != nullptr) {
            return found;
        }
    }
    return nullptr;
}

void describe(mlx5dv_context& out) noexcept {
    // Bits of comp_mask that libmlx5 returns for every device; newer versions return more bits.
    // Each bit selects members of mlx5dv_context. softverbs sets these members to 0, because
    // software devices do not have the features.
    constexpr std::uint64_t answered =
        MLX5DV_CONTEXT_MASK_CQE_COMPRESION | MLX5DV_CONTEXT_MASK_SWP |
        MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS |
        MLX5DV_CONTEXT_MASK_DYN_BFREGS | MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS |
        MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
    const std::uint64_t requested = out.comp_mask & answered;
    const auto clear = [requested](std::uint64_t bit, auto& member) {
        if ((requested & bit) != 0) {
            member = {};
        }
    };
    out.version = 0;
    out.flags = MLX5DV_CONTEXT_FLAGS_CQE_V1;
    clear(MLX5DV_CONTEXT_MASK_CQE_COMPRESION, out.cqe_comp_caps);
    clear(MLX5DV_CONTEXT_MASK_SWP, out.sw_parsing_caps);
    clear(MLX5DV_CONTEXT_MASK_STRIDING_RQ, out.striding_rq_caps);
    clear(MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS, out.tunnel_offloads_caps);
    clear(MLX5DV_CONTEXT_MASK_DYN_BFREGS, out.max_dynamic_bfregs);
    clear(MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS, out.flow_action_flags);
    clear(MLX5DV_CONTEXT_MASK_DC_ODP_CAPS, out.dc_odp_caps);
    out.comp_mask = requested;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY bool mlx5dv_is_supported(ibv_device* device) {
    const Device* const known = ours(device);
    return known != nullptr
               ? known->rules.is_mlx5
               : forward_to_provider(libmlx5, mlx5dv_is_supported, "mlx5dv_is_supported", device);
}

SOFTVERBS_ENTRY ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    const Device* const known = ours(device);
    if (known == nullptr) {
        return forward_to_provider(libmlx5, mlx5dv_open_device, "mlx5dv_open_device", device, attr);
    }
    // The only flag, MLX5DV_CONTEXT_FLAGS_DEVX, permits access to the firmware. Reject it, because
    // software devices have no firmware.
    if (!known->rules.is_mlx5 || (attr != nullptr && attr->flags != 0)) {
        return fail(EOPNOTSUPP);
    }
    if (attr != nullptr && attr->comp_mask != 0) {
        return fail(EINVAL);
    }
    return ibv_open_device(device);
}

SOFTVERBS_ENTRY int mlx5dv_query_device(ibv_context* native, mlx5dv_context* out) {
    if (const auto answer =
            answer_of_provider<mlx5dv_query_device>(libmlx5, "mlx5dv_query_device", native, out)) {
        return *answer;
    }
    describe(*out);
    return 0;
}

SOFTVERBS_ENTRY int mlx5dv_init_obj(mlx5dv_obj* object, std::uint64_t types) {
    // mlx5dv_init_obj() returns the addresses of the queues that a NIC reads. It fails for software
    // devices, because they have no such queues.
    return context_in(*object, types) != nullptr
               ? with_errno(EOPNOTSUPP)
               : forward_to_provider(libmlx5, mlx5dv_init_obj, "mlx5dv_init_obj", object, types);
}

SOFTVERBS_ENTRY ibv_qp* mlx5dv_create_qp(ibv_context* native, ibv_qp_init_attr_ex* attributes,
                                         mlx5dv_qp_init_attr* extra) {
    if (const auto answer = answer_of_provider<mlx5dv_create_qp>(libmlx5, "mlx5dv_create_qp",
                                                                 native, attributes, extra)) {
        return *answer;
    }
    Context& context = context_of(native);
    ScatterRequest scatter = ScatterRequest::none;
    if (extra != nullptr) {
        const auto max_requests =
            static_cast<std::uint32_t>(context.device->attributes.orig_attr.max_qp_wr);
        if (const int error = check(*attributes, *extra, max_requests, scatter); error != 0) {
            return fail(error);
        }
    }
    return call_with_memory("ibv_create_qp_ex", context, *attributes, [&](QueueMemory& memory) {
        return native_of<ibv_qp*>(create_qp(context, *attributes, memory, scatter));
    });
}

// The installed mlx5dv.h may be too old to declare these functions.
extern "C" {
ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                             std::uint64_t iova, int fd, int access, int mlx5_access);
int mlx5dv_get_data_direct_sysfs_path(ibv_context* native, char* buffer, std::size_t length);
}

SOFTVERBS_ENTRY ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                             std::uint64_t iova, int fd, int access,
                                             int mlx5_access) {
    if (const auto answer = answer_of_provider<mlx5dv_reg_dmabuf_mr>(
            libmlx5, "mlx5dv_reg_dmabuf_mr", pd, offset, length, iova, fd, access, mlx5_access)) {
        return *answer;
    }
    // The only flag in mlx5_access requests the feature "data direct". Reject it, because a
    // software device does not have the PCI function that this feature needs.
    if (mlx5_access != 0) {
        return fail(EINVAL);
    }
    return ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

SOFTVERBS_ENTRY int mlx5dv_get_data_direct_sysfs_path(ibv_context* native, char* buffer,
                                                      std::size_t length) {
    const auto answer = answer_of_provider<mlx5dv_get_data_direct_sysfs_path>(
        libmlx5, "mlx5dv_get_data_direct_sysfs_path", native, buffer, length);
    return answer ? *answer : with_errno(ENODEV);
}
