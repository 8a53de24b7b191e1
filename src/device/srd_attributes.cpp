// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/check.hpp>

#include "device/efadv.hpp"

#if __has_include(<infiniband/efadv.h>)
#include <infiniband/efadv.h>
#define RDMABUF_HAVE_EFADV_H 1
#else
#define RDMABUF_HAVE_EFADV_H 0
#endif

namespace rdmabuf {
namespace {

using detail::efadv::DeviceAttr;

#if RDMABUF_HAVE_EFADV_H
static_assert(sizeof(DeviceAttr) <= sizeof(::efadv_device_attr));
static_assert(offsetof(DeviceAttr, max_sq_wr) == offsetof(::efadv_device_attr, max_sq_wr));
static_assert(offsetof(DeviceAttr, max_rq_wr) == offsetof(::efadv_device_attr, max_rq_wr));
static_assert(offsetof(DeviceAttr, max_sq_sge) == offsetof(::efadv_device_attr, max_sq_sge));
static_assert(offsetof(DeviceAttr, max_rq_sge) == offsetof(::efadv_device_attr, max_rq_sge));
static_assert(offsetof(DeviceAttr, inline_buf_size) ==
              offsetof(::efadv_device_attr, inline_buf_size));
static_assert(offsetof(DeviceAttr, device_caps) == offsetof(::efadv_device_attr, device_caps));
static_assert(offsetof(DeviceAttr, max_rdma_size) == offsetof(::efadv_device_attr, max_rdma_size));
static_assert(detail::efadv::caps_rdma_read == EFADV_DEVICE_ATTR_CAPS_RDMA_READ);
static_assert(detail::efadv::caps_rnr_retry == EFADV_DEVICE_ATTR_CAPS_RNR_RETRY);
static_assert(detail::efadv::caps_cq_with_sgid == EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID);
#endif

constexpr const char* query_function = "efadv_query_device";

/// Calls efadv_query_device(3) and returns its result: 0 or an errno value. Returns EOPNOTSUPP if
/// this function is not found.
int query(ibv_context* context, DeviceAttr& attributes) noexcept {
    const auto call = detail::efadv::find<detail::efadv::QueryDevice>(query_function);
    attributes = {};
    return call != nullptr ? call(context, &attributes, sizeof attributes) : EOPNOTSUPP;
}

SrdAttributes describe(const DeviceAttr& device) noexcept {
    const auto has = [&](std::uint32_t capability) {
        return (device.device_caps & capability) != 0;
    };
    return {.rdma_read = has(detail::efadv::caps_rdma_read),
            .rdma_write = has(detail::efadv::caps_rdma_write),
            .max_rdma_size = device.max_rdma_size,
            .rnr_retry = has(detail::efadv::caps_rnr_retry),
            .sender_gid = has(detail::efadv::caps_cq_with_sgid),
            .max_send_wr = device.max_sq_wr,
            .max_recv_wr = device.max_rq_wr,
            .max_send_sge = device.max_sq_sge,
            .max_recv_sge = device.max_rq_sge,
            .max_inline_data = device.inline_buf_size};
}

std::string summary(const SrdAttributes& attributes) {
    if (!attributes.rdma_read && !attributes.rdma_write) {
        return "messages only, no RDMA";
    }
    const char* const operations = !attributes.rdma_write  ? "RDMA reads"
                                   : !attributes.rdma_read ? "RDMA writes"
                                                           : "RDMA reads and writes";
    return std::string("messages, and ") + operations + " of at most " +
           std::to_string(attributes.max_rdma_size) + " bytes";
}

/// Returns Availability::no() with the reason why efadv_query_device(3) failed with @p error.
Availability explain(const std::string& device, int error) {
    if (detail::efadv::find<detail::efadv::QueryDevice>(query_function) == nullptr) {
        return Availability::no(
            "there is no efadv_query_device: libibverbs has not loaded libefa, or libefa is older "
            "than rdma-core 26",
            "use an EFA device with rdma-core 26 or newer, or QueuePairType::reliable_connected");
    }
    if (error == EOPNOTSUPP) {
        return Availability::no(device + " is not an EFA device",
                                "use QueuePairType::reliable_connected");
    }
    return Availability::no("efadv_query_device on " + device + " failed with " +
                            describe_errno(error));
}

} // namespace

Availability Context::srd() const {
    DeviceAttr attributes{};
    const int error = query(detail::native_of(*this, query_function, "Context"), attributes);
    return error == 0 ? Availability::yes(summary(describe(attributes)))
                      : explain(device_name(), error);
}

SrdAttributes Context::srd_attributes() const {
    DeviceAttr attributes{};
    const int error = query(detail::native_of(*this, query_function, "Context"), attributes);
    detail::check_zero(error, query_function, [&](int) {
        const Availability why = explain(device_name(), error);
        return why.remedy.empty() ? why.reason : why.reason + "; " + why.remedy;
    });
    return describe(attributes);
}

} // namespace rdmabuf
