// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

namespace rdmabuf {

int detail::DestroySrq::call(ibv_srq* srq) noexcept {
    return ibv_destroy_srq(srq);
}

namespace {

ibv_srq* create_native(ibv_pd* pd, const SharedReceiveQueueOptions& options, const char* function) {
    const bool has_tags = options.max_tags != 0 || options.max_tag_operations != 0;
    const bool is_xrc = options.xrc_domain != nullptr;
    if ((is_xrc && has_tags) || (is_xrc || has_tags) != (options.cq != nullptr)) {
        throw Error(EINVAL, function,
                    "set cq if, and only if, the shared receive queue has either an XRC domain or "
                    "tags");
    }
    ibv_srq_init_attr_ex attributes{};
    attributes.attr.max_wr = options.max_wr;
    attributes.attr.max_sge = options.max_sge;
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attributes.srq_type = IBV_SRQT_BASIC;
    attributes.pd = pd;
    if (options.cq != nullptr) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        attributes.cq = detail::native_of(*options.cq, function, "CompletionQueue");
    }
    if (is_xrc) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        attributes.srq_type = IBV_SRQT_XRC;
        attributes.xrcd = detail::native_of(*options.xrc_domain, function, "XrcDomain");
    }
    if (has_tags) {
        attributes.comp_mask |= IBV_SRQ_INIT_ATTR_TM;
        attributes.srq_type = IBV_SRQT_TM;
        attributes.tm_cap = {options.max_tags, options.max_tag_operations};
    }
    errno = 0;
    return ibv_create_srq_ex(pd->context, &attributes);
}

ibv_srq* create(const ProtectionDomain& pd, const SharedReceiveQueueOptions& options) {
    const char* const function = options.cq != nullptr ? "ibv_create_srq_ex" : "ibv_create_srq";
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    return detail::check_pointer(create_native(native, options, function), function, [&](int) {
        const ibv_device_attr_ex limits = pd.context().attributes().native;
        const auto of = [](std::string name, std::uint32_t value, auto limit) {
            return std::move(name) + " " + std::to_string(value) + " of at most " +
                   std::to_string(limit);
        };
        std::string text = of("max_wr", options.max_wr, limits.orig_attr.max_srq_wr) + ", " +
                           of("max_sge", options.max_sge, limits.orig_attr.max_srq_sge);
        if (options.xrc_domain == nullptr && options.cq != nullptr) {
            text += ", " + of("max_tags", options.max_tags, limits.tm_caps.max_num_tags) + ", " +
                    of("max_tag_operations", options.max_tag_operations, limits.tm_caps.max_ops);
        }
        return text;
    });
}

/// Returns the XRC domain and the completion queue, which the shared receive queue must keep alive.
/// Returns null if the options have neither.
std::shared_ptr<const void> kept_objects(const SharedReceiveQueueOptions& options) {
    if (options.cq == nullptr) {
        return nullptr;
    }
    return std::make_shared<const std::pair<std::optional<XrcDomain>, CompletionQueue>>(
        options.xrc_domain != nullptr ? std::optional(*options.xrc_domain) : std::nullopt,
        *options.cq);
}

} // namespace

SharedReceiveQueue::SharedReceiveQueue(const ProtectionDomain& pd,
                                       const SharedReceiveQueueOptions& options)
    : handle_([&] {
          // The deleter is created first: if its creation throws an exception, no shared receive
          // queue leaks.
          auto deleter = detail::SharedReceiveQueueHandle::unique::deleter_type::holding(
              pd, kept_objects(options));
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
