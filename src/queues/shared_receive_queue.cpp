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
        ibv_srq_attr attributes{};
        attributes.srq_limit = options.limit;
        detail::check_zero(ibv_modify_srq(native(), &attributes, IBV_SRQ_LIMIT), "ibv_modify_srq");
    }
}

} // namespace rdmabuf
