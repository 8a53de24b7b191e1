// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device/verbs_extensions.hpp"

/// Declares the part of <infiniband/efadv.h> that this library uses. The library is not linked with
/// libefa, but looks up its functions at run time. If efadv.h is present at build time,
/// static_asserts in the files that use these declarations compare most of them with efadv.h.
namespace rdmabuf::detail::efadv {

/// This struct has the first members of efadv_device_attr in libefa.
struct DeviceAttr {
    std::uint64_t comp_mask;
    std::uint32_t max_sq_wr;
    std::uint32_t max_rq_wr;
    std::uint16_t max_sq_sge;
    std::uint16_t max_rq_sge;
    std::uint16_t inline_buf_size;
    std::uint16_t reserved;
    std::uint32_t device_caps;
    std::uint32_t max_rdma_size;
};
inline constexpr std::uint32_t caps_rdma_read = 1U << 0U;
inline constexpr std::uint32_t caps_rnr_retry = 1U << 1U;
inline constexpr std::uint32_t caps_cq_with_sgid = 1U << 2U;
/// This flag for RDMA writes was added in rdma-core 46. libefa sets the flag only if libefa itself
/// can post RDMA writes.
inline constexpr std::uint32_t caps_rdma_write = 1U << 3U;

/// This struct has the first members of efadv_qp_init_attr in libefa.
struct QpInitAttr {
    std::uint64_t comp_mask;
    std::uint32_t driver_qp_type;
    std::uint32_t reserved;
};
inline constexpr std::uint32_t driver_qp_type_srd = 0;

/// This struct has the layout of efadv_ah_attr in libefa.
struct AhAttr {
    std::uint64_t comp_mask;
    std::uint16_t ahn;
    std::uint8_t reserved[6];
};

/// This struct has the first members of efadv_cq_init_attr in libefa.
struct CqInitAttr {
    std::uint64_t comp_mask;
    std::uint64_t wc_flags;
};
inline constexpr std::uint64_t wc_ex_with_sgid = 1U << 0U;

/// This struct has the first members of efadv_cq in libefa.
struct Cq {
    std::uint64_t comp_mask;
    int (*wc_read_sgid)(Cq* cq, ibv_gid* gid);
};

using QueryDevice = int (*)(ibv_context*, DeviceAttr*, std::uint32_t);
using CreateQpEx = ibv_qp* (*)(ibv_context*, ibv_qp_init_attr_ex*, QpInitAttr*, std::uint32_t);

using QueryAh = int (*)(ibv_ah*, AhAttr*, std::uint32_t);

/// Looks up the function with the name @p name in the program and in the libraries whose symbols
/// are global (RTLD_DEFAULT of dlsym(3)). If these do not define the function, looks up the
/// function in libefa, if the process has loaded libefa. The result is not stored, because
/// libibverbs may load libefa later.
/// @return null if the function is not found
template <class Function>
[[nodiscard]] Function find(const char* name) noexcept {
    return reinterpret_cast<Function>(find_provider_function("libefa.so.1", name));
}

} // namespace rdmabuf::detail::efadv
