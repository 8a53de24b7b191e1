// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <infiniband/efadv.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "abi/provider_library.hpp"
#include "objects/completion_queue.hpp"
#include "objects/efa.hpp"
#include "objects/queue_pair.hpp"

// The functions of libefa. For a softverbs device that does not imitate the efa driver, they,
// except efadv_cq_from_ibv_cq_ex(), fail as libefa does for a device of another driver. For a real
// device, they call libefa, or fail in the same way if libefa is not loaded.

namespace softverbs {

namespace {

constexpr ProviderLibrary libefa{"libefa.so.1", "libefa-real.so.1", &Rules::is_efa};

/// The value of EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE, which older headers do not define.
constexpr std::uint32_t caps_rdma_write = 1U << 3U;

// New releases of efadv.h add members to its structures, and give names to reserved members. The
// structures below do not depend on the release of the installed header.

struct DeviceAttributes {
    std::uint64_t comp_mask = 0;
    std::uint32_t max_sq_wr = efa::max_send_requests;
    std::uint32_t max_rq_wr = efa::max_receive_requests;
    std::uint16_t max_sq_sge = efa::max_send_sge;
    std::uint16_t max_rq_sge = efa::max_receive_sge;
    std::uint16_t inline_buf_size = efa::max_inline;
    std::uint16_t inline_buf_size_ex = efa::max_inline; // a reserved member in older headers
    std::uint32_t device_caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ |
                                EFADV_DEVICE_ATTR_CAPS_RNR_RETRY |
                                EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID | caps_rdma_write;
    std::uint32_t max_rdma_size = efa::max_rdma_length;
};
static_assert(sizeof(DeviceAttributes) == sizeof(efadv_device_attr) &&
              offsetof(DeviceAttributes, device_caps) == offsetof(efadv_device_attr, device_caps));

struct QpAttributes {
    std::uint64_t comp_mask;
    std::uint32_t driver_qp_type;
    std::uint32_t reserved;
};

struct CqAttributes {
    std::uint64_t comp_mask;
    std::uint64_t wc_flags;
};

/// Returns the bytes that follow the first @p known bytes of a structure of @p length bytes.
std::span<const std::byte> rest_of(const void* structure, std::size_t length, std::size_t known) {
    const std::span bytes(static_cast<const std::byte*>(structure), length);
    return bytes.subspan(std::min(length, known));
}

bool is_zero(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
}

ibv_qp* create_srd(Context& context, ibv_qp_init_attr_ex& attributes,
                   std::uint32_t driver_qp_type) {
    if (driver_qp_type != EFADV_QP_DRIVER_TYPE_SRD) {
        return fail(EOPNOTSUPP);
    }
    return call_with_memory("ibv_create_qp_ex", context, attributes, [&](QueueMemory& memory) {
        return native_of<ibv_qp*>(create_qp(context, attributes, memory, {}, true));
    });
}

int read_sgid(efadv_cq* native, ibv_gid* gid) {
    const Completion& completion = static_cast<EfaCq*>(native)->owner->current;
    if (completion.wc.slid != efa::unknown_ah) {
        return -ENOENT; // as in libefa: the address handle number identifies the sender
    }
    *gid = completion.source_gid;
    return 0;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int efadv_query_device(ibv_context* native, efadv_device_attr* attributes,
                                       std::uint32_t length) {
    if (const auto answer = answer_of_provider<efadv_query_device>(libefa, "efadv_query_device",
                                                                   native, attributes, length)) {
        return *answer;
    }
    // In the first release of efadv.h, this structure ended before device_caps. Reject a structure
    // of the program that is even shorter.
    if (length < offsetof(DeviceAttributes, device_caps)) {
        return EINVAL;
    }
    copy_out(attributes, DeviceAttributes(), length);
    return 0;
}

SOFTVERBS_ENTRY ibv_qp* efadv_create_driver_qp(ibv_pd* pd, ibv_qp_init_attr* init,
                                               std::uint32_t driver_qp_type) {
    if (const auto answer = answer_of_provider<efadv_create_driver_qp>(
            libefa, "efadv_create_driver_qp", pd, init, driver_qp_type)) {
        return *answer;
    }
    Context& context = context_of(pd->context);
    if (init->qp_type != IBV_QPT_DRIVER) {
        return fail(EINVAL);
    }
    ibv_qp_init_attr_ex extended{};
    std::memcpy(static_cast<void*>(&extended), init, sizeof *init);
    extended.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended.pd = pd;
    ibv_qp* const made = create_srd(context, extended, driver_qp_type);
    if (made != nullptr) {
        init->cap = extended.cap;
    }
    return made;
}

SOFTVERBS_ENTRY ibv_qp* efadv_create_qp_ex(ibv_context* native, ibv_qp_init_attr_ex* attributes,
                                           efadv_qp_init_attr* extra, std::uint32_t length) {
    if (const auto answer = answer_of_provider<efadv_create_qp_ex>(
            libefa, "efadv_create_qp_ex", native, attributes, extra, length)) {
        return *answer;
    }
    Context& context = context_of(native);
    QpAttributes known{};
    if (attributes->qp_type != IBV_QPT_DRIVER || length < offsetof(QpAttributes, reserved)) {
        return fail(EINVAL);
    }
    std::memcpy(&known, extra, std::min<std::size_t>(length, sizeof known));
    if (known.comp_mask != 0 || known.reserved != 0 ||
        !is_zero(rest_of(extra, length, sizeof known))) {
        return fail(EINVAL);
    }
    return create_srd(context, *attributes, known.driver_qp_type);
}

SOFTVERBS_ENTRY int efadv_query_ah(ibv_ah* ah, efadv_ah_attr* attributes, std::uint32_t length) {
    if (const auto answer =
            answer_of_provider<efadv_query_ah>(libefa, "efadv_query_ah", ah, attributes, length)) {
        return *answer;
    }
    if (length < offsetof(efadv_ah_attr, ahn) + sizeof attributes->ahn) {
        return EINVAL;
    }
    std::memset(static_cast<void*>(attributes), 0, length);
    attributes->ahn = static_cast<Ah*>(ah)->number;
    return 0;
}

SOFTVERBS_ENTRY ibv_cq_ex* efadv_create_cq(ibv_context* native, ibv_cq_init_attr_ex* attributes,
                                           efadv_cq_init_attr* extra, std::uint32_t length) {
    if (const auto answer = answer_of_provider<efadv_create_cq>(libefa, "efadv_create_cq", native,
                                                                attributes, extra, length)) {
        return *answer;
    }
    Context& context = context_of(native);
    CqAttributes known{};
    if (length < sizeof known) {
        return fail(EINVAL);
    }
    std::memcpy(&known, extra, sizeof known);
    if (known.comp_mask != 0 || !is_zero(rest_of(extra, length, sizeof known))) {
        return fail(EINVAL);
    }
    if ((known.wc_flags & ~std::uint64_t{EFADV_WC_EX_WITH_SGID}) != 0) {
        return fail(EOPNOTSUPP);
    }
    return call("ibv_create_cq_ex", context, [&]() -> ibv_cq_ex* {
        Cq* const made = create_cq(context, *attributes);
        if (made != nullptr && (known.wc_flags & EFADV_WC_EX_WITH_SGID) != 0) {
            made->efa.wc_read_sgid = read_sgid;
        }
        return made;
    });
}

SOFTVERBS_ENTRY efadv_cq* efadv_cq_from_ibv_cq_ex(ibv_cq_ex* cq) {
    return ours(cq->context) != nullptr ? &Cq::of(cq).efa
                                        : forward_to_provider(libefa, efadv_cq_from_ibv_cq_ex,
                                                              "efadv_cq_from_ibv_cq_ex", cq);
}
