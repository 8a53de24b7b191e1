// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

namespace rdmabuf {

int detail::DestroySrq::call(ibv_srq* srq) noexcept {
    return ibv_destroy_srq(srq);
}

namespace {

ibv_srq* create_native(ibv_pd* pd, const SharedReceiveQueueOptions& options) {
    constexpr const char* function = "ibv_create_srq_ex";
    if ((options.xrc_domain == nullptr) != (options.xrc_cq == nullptr)) {
        throw Error(EINVAL, function,
                    "a shared receive queue has both an XRC domain and a completion queue, or "
                    "neither of them");
    }
    if (options.xrc_domain == nullptr) {
        ibv_srq_init_attr attributes{};
        attributes.attr.max_wr = options.max_wr;
        attributes.attr.max_sge = options.max_sge;
        errno = 0;
        return ibv_create_srq(pd, &attributes);
    }
    ibv_srq_init_attr_ex attributes{};
    attributes.attr.max_wr = options.max_wr;
    attributes.attr.max_sge = options.max_sge;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                           IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.pd = pd;
    attributes.xrcd = detail::native_of(*options.xrc_domain, function, "XrcDomain");
    attributes.cq = detail::native_of(*options.xrc_cq, function, "CompletionQueue");
    errno = 0;
    return ibv_create_srq_ex(pd->context, &attributes);
}

ibv_srq* create(const ProtectionDomain& pd, const SharedReceiveQueueOptions& options) {
    ibv_pd* const native = detail::native_of(pd, "ibv_create_srq", "ProtectionDomain");
    return detail::check_pointer(create_native(native, options), "ibv_create_srq", [&](int) {
        const ibv_device_attr limits = pd.context().attributes().native.orig_attr;
        return "max_wr " + std::to_string(options.max_wr) + " of at most " +
               std::to_string(limits.max_srq_wr) + ", max_sge " + std::to_string(options.max_sge) +
               " of at most " + std::to_string(limits.max_srq_sge);
    });
}

/// Returns the XRC domain and the completion queue, which the shared receive queue must keep alive.
/// Returns null if the options have no XRC domain.
std::shared_ptr<const void> xrc_objects(const SharedReceiveQueueOptions& options) {
    if (options.xrc_domain == nullptr || options.xrc_cq == nullptr) {
        return nullptr;
    }
    return std::make_shared<const std::pair<XrcDomain, CompletionQueue>>(*options.xrc_domain,
                                                                         *options.xrc_cq);
}

} // namespace

SharedReceiveQueue::SharedReceiveQueue(const ProtectionDomain& pd,
                                       const SharedReceiveQueueOptions& options)
    : handle_([&] {
          // The deleter is created first: if its creation throws an exception, no shared receive
          // queue leaks.
          auto deleter = detail::SharedReceiveQueueHandle::unique::deleter_type::holding(
              pd, xrc_objects(options));
          return detail::SharedReceiveQueueHandle::unique(create(pd, options), std::move(deleter));
      }()) {
    if (options.limit != 0) {
        arm_limit(options.limit);
    }
}

SharedReceiveQueue SharedReceiveQueue::adopt(const ProtectionDomain& pd, ibv_srq* srq) {
    using Owner = detail::SharedReceiveQueueHandle::unique;
    return SharedReceiveQueue(Owner(srq, Owner::deleter_type::holding(pd, nullptr)));
}

SharedReceiveQueue SharedReceiveQueue::borrow(ibv_srq* srq) {
    using Borrowed = detail::SharedReceiveQueueHandle;
    return SharedReceiveQueue(
        srq != nullptr ? Borrowed::borrow(srq, ProtectionDomain::borrow(srq->pd), nullptr)
                       : Borrowed());
}

void SharedReceiveQueue::arm_limit(std::uint32_t limit) {
    constexpr const char* function = "ibv_modify_srq";
    ibv_srq* const srq = detail::native_of(*this, function, "SharedReceiveQueue");
    ibv_srq_attr attributes{};
    attributes.srq_limit = limit;
    detail::check_zero(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), function,
                       [&](int) { return "limit " + std::to_string(limit); });
}

std::uint32_t SharedReceiveQueue::number() const {
    constexpr const char* function = "ibv_get_srq_num";
    std::uint32_t number = 0;
    detail::check_zero(
        ibv_get_srq_num(detail::native_of(*this, function, "SharedReceiveQueue"), &number),
        function);
    return number;
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
