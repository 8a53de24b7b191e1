// SPDX-License-Identifier: BSD-3-Clause
#include "queues/srd_queue_pair.hpp"

#include <cerrno>
#include <cstddef>

#include <rdmabuf/error.hpp>

#include "device/efadv.hpp"

#if __has_include(<infiniband/efadv.h>)
#include <infiniband/efadv.h>
#define RDMABUF_HAVE_EFADV_H 1
#else
#define RDMABUF_HAVE_EFADV_H 0
#endif

namespace rdmabuf::detail {
namespace {

#if RDMABUF_HAVE_EFADV_H
// New versions of rdma-core append members.
static_assert(sizeof(efadv::QpInitAttr) <= sizeof(::efadv_qp_init_attr));
static_assert(offsetof(efadv::QpInitAttr, driver_qp_type) ==
              offsetof(::efadv_qp_init_attr, driver_qp_type));
static_assert(efadv::driver_qp_type_srd == EFADV_QP_DRIVER_TYPE_SRD);
#endif

} // namespace

ibv_qp* create_srd_queue_pair(ibv_context* context, ibv_qp_init_attr_ex* attributes) noexcept {
    const auto create = efadv::find<efadv::CreateQpEx>(create_srd_function);
    if (create == nullptr) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    efadv::QpInitAttr extra{};
    extra.driver_qp_type = efadv::driver_qp_type_srd;
    return create(context, attributes, &extra, sizeof extra);
}

std::uint64_t srd_operations(const SrdAttributes& device) noexcept {
    std::uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (device.rdma_read) {
        operations |= IBV_QP_EX_WITH_RDMA_READ;
    }
    if (device.rdma_write) {
        operations |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    }
    return operations;
}

void check_srd_access(std::optional<Access> access) {
    if (!access) {
        return;
    }
    if (has(*access, Access::remote_atomic)) {
        throw Error(EOPNOTSUPP, create_srd_function,
                    "SRD queue pairs have no atomics: use messages, or RDMA reads and writes");
    }
    throw Error(EOPNOTSUPP, create_srd_function,
                "SRD queue pairs have no access flags: leave QueuePairOptions::access empty, and "
                "restrict peers by the access of the memory regions");
}

} // namespace rdmabuf::detail
