// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

namespace rdmabuf {

int detail::DestroySrq::call(ibv_srq* srq) noexcept {
    return ibv_destroy_srq(srq);
}

namespace {

ibv_srq* create(const ProtectionDomain& pd, const SharedReceiveQueueOptions& options) {
    ibv_pd* const native = detail::native_of(pd, "ibv_create_srq", "ProtectionDomain");
    ibv_srq_init_attr attributes{};
    attributes.attr.max_wr = options.max_wr;
    attributes.attr.max_sge = options.max_sge;
    errno = 0;
    return detail::check_pointer(ibv_create_srq(native, &attributes), "ibv_create_srq", [&](int) {
        const ibv_device_attr limits = pd.context().attributes().native.orig_attr;
        return "max_wr " + std::to_string(options.max_wr) + " of at most " +
               std::to_string(limits.max_srq_wr) + ", max_sge " + std::to_string(options.max_sge) +
               " of at most " + std::to_string(limits.max_srq_sge);
    });
}

} // namespace

SharedReceiveQueue::SharedReceiveQueue(const ProtectionDomain& pd,
                                       const SharedReceiveQueueOptions& options)
    : handle_(detail::SharedReceiveQueueHandle::unique(
          create(pd, options),
          detail::SharedReceiveQueueHandle::unique::deleter_type::holding(pd))) {
    if (options.limit != 0) {
        arm_limit(options.limit);
    }
}

void SharedReceiveQueue::arm_limit(std::uint32_t limit) {
    constexpr const char* function = "ibv_modify_srq";
    ibv_srq* const srq = detail::native_of(*this, function, "SharedReceiveQueue");
    ibv_srq_attr attributes{};
    attributes.srq_limit = limit;
    detail::check_zero(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), function,
                       [&](int) { return "limit " + std::to_string(limit); });
}

ibv_srq_attr SharedReceiveQueue::attributes() const {
    constexpr const char* function = "ibv_query_srq";
    ibv_srq_attr attributes{};
    detail::check_zero(
        ibv_query_srq(detail::native_of(*this, function, "SharedReceiveQueue"), &attributes),
        function);
    return attributes;
}

} // namespace rdmabuf
