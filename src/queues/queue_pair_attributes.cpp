// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>
#include <string_view>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/queue_pair.hpp>

// This file contains the attributes of queue pairs that have verbs functions of their own, beside
// ibv_modify_qp(3): rate limits, and the options for enhanced connection establishment (ECE).

namespace rdmabuf {

namespace {

constexpr std::string_view no_ece =
    "only mlx5 devices have ECE, with firmware and a kernel that support it";

std::string explain_rate_limit(const ibv_qp& qp, const RateLimit& limit, int error) {
    if (error == EOPNOTSUPP) {
        return "the provider of this device has no rate limits";
    }
    const ibv_packet_pacing_caps caps =
        Context::borrow(qp.context).attributes().native.packet_pacing_caps;
    constexpr int type_bits = 32;
    const bool has_type = qp.qp_type < type_bits && (caps.supported_qpts & (1U << qp.qp_type)) != 0;
    return std::to_string(limit.kilobits_per_second) + " kbit/s; the device has rates from " +
           std::to_string(caps.qp_rate_limit_min) + " to " +
           std::to_string(caps.qp_rate_limit_max) + " kbit/s" +
           (has_type ? "" : ", but not for queue pairs of this type");
}

ibv_ece query_ece(ibv_qp* qp) {
    constexpr const char* function = "ibv_query_ece";
    if (qp == nullptr) {
        detail::raise_closed(function, "queue pair");
    }
    ibv_ece ece{};
    detail::check_zero(ibv_query_ece(qp, &ece), function, no_ece);
    return ece;
}

} // namespace

void QueuePair::set_rate_limit(const RateLimit& limit) {
    constexpr const char* function = "ibv_modify_qp_rate_limit";
    ibv_qp* const qp = detail::native_of(*this, function, "queue pair");
    ibv_qp_rate_limit_attr attributes{};
    attributes.rate_limit = limit.kilobits_per_second;
    attributes.max_burst_sz = limit.max_burst_size;
    attributes.typical_pkt_sz = limit.typical_packet_size;
    detail::check_zero(ibv_modify_qp_rate_limit(qp, &attributes), function,
                       [&](int error) { return explain_rate_limit(*qp, limit, error); });
}

ibv_ece QueuePair::ece() const {
    return query_ece(native());
}

ibv_ece PreparedQueuePair::ece() const {
    return query_ece(native());
}

void PreparedQueuePair::set_ece(const ibv_ece& ece) {
    constexpr const char* function = "ibv_set_ece";
    ibv_qp* const qp = detail::native_of(*this, function, "queue pair");
    ibv_ece wanted = ece;
    detail::check_zero(ibv_set_ece(qp, &wanted), function, [&](int error) {
        return error == EINVAL ? "vendor " + std::to_string(ece.vendor_id) +
                                     " of the options is not the vendor of this device"
                               : std::string(no_ece);
    });
}

} // namespace rdmabuf
