// SPDX-License-Identifier: BSD-3-Clause
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/srd_completion_queue.hpp>

#include "device/efadv.hpp"

#if __has_include(<infiniband/efadv.h>)
#include <infiniband/efadv.h>
#define RDMABUF_HAVE_EFADV_H 1
#else
#define RDMABUF_HAVE_EFADV_H 0
#endif

namespace rdmabuf {
namespace {

using detail::efadv::Cq;
using detail::efadv::CqInitAttr;

#if RDMABUF_HAVE_EFADV_H
// Compares the members that this library uses. The structs of efadv.h may be longer, because newer
// versions have added members at the end.
static_assert(offsetof(CqInitAttr, wc_flags) == offsetof(::efadv_cq_init_attr, wc_flags));
static_assert(sizeof(CqInitAttr) <= sizeof(::efadv_cq_init_attr));
static_assert(offsetof(Cq, wc_read_sgid) == offsetof(::efadv_cq, wc_read_sgid));
static_assert(detail::efadv::wc_ex_with_sgid == EFADV_WC_EX_WITH_SGID);
#endif

constexpr const char* create_function = "efadv_create_cq";

using CqFromCqEx = Cq* (*)(ibv_cq_ex*);

CqFromCqEx find_cq_from_cq_ex() noexcept {
    return detail::efadv::find<CqFromCqEx>("efadv_cq_from_ibv_cq_ex");
}

std::string explain(const Context& context, const CompletionQueueOptions& options) {
    if (const Availability srd = context.srd(); !srd) {
        return srd.reason + "; " + srd.remedy;
    }
    if (!context.srd_attributes().sender_gid) {
        return context.device_name() +
               " does not report the GIDs of senders: use a CompletionQueue";
    }
    return "depth " + std::to_string(options.depth) + ", vector " + std::to_string(options.vector) +
           " on " + context.device_name();
}

ExtendedCompletionQueue create(const Context& context, const CompletionQueueOptions& options) {
    ibv_context* const native = detail::native_of(context, create_function, "Context");
    const auto create_cq =
        detail::efadv::find<ibv_cq_ex* (*)(ibv_context*, ibv_cq_init_attr_ex*, CqInitAttr*,
                                           std::uint32_t)>(create_function);
    if (create_cq == nullptr || find_cq_from_cq_ex() == nullptr) {
        throw Error(EOPNOTSUPP, create_function,
                    "there is no efadv_create_cq: libibverbs has not loaded libefa, or libefa is "
                    "older than rdma-core 43");
    }
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = options.depth;
    attributes.cq_context = options.cq_context;
    attributes.channel =
        options.channel != nullptr
            ? detail::native_of(*options.channel, create_function, "CompletionChannel")
            : nullptr;
    attributes.comp_vector = static_cast<std::uint32_t>(options.vector);
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    CqInitAttr extra{};
    extra.wc_flags = detail::efadv::wc_ex_with_sgid;
    errno = 0;
    ibv_cq_ex* const cq =
        detail::check_pointer(create_cq(native, &attributes, &extra, sizeof extra), create_function,
                              [&](int) { return explain(context, options); });
    return ExtendedCompletionQueue::adopt(context, cq, options.channel);
}

} // namespace

SrdCompletionQueue::SrdCompletionQueue(const Context& context,
                                       const CompletionQueueOptions& options)
    : queue_(create(context, options)), efa_(find_cq_from_cq_ex()(queue_.native_ex())) {}

int SrdCompletionQueue::poll(WorkCompletion& completion, Gid& sender) const noexcept {
    assert(queue_.native() != nullptr && "the SrdCompletionQueue was moved from");
    const CompletionBatch batch = queue_.start_poll();
    if (!batch) {
        return -batch.error().error();
    }
    completion = batch.work_completion();
    sender = {};
    const bool is_unknown = completion.status == IBV_WC_SUCCESS &&
                            (completion.opcode & IBV_WC_RECV) != 0 &&
                            completion.slid == unknown_address;
    union ibv_gid gid {};
    if (is_unknown && efa_->wc_read_sgid(efa_, &gid) == 0) {
        sender = Gid::from_native(gid);
    }
    return 1;
}

} // namespace rdmabuf
