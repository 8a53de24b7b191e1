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
// In newer versions of efadv.h, the structs have more members than the declarations of this
// library. The library does not use these members.
static_assert(offsetof(CqInitAttr, wc_flags) == offsetof(::efadv_cq_init_attr, wc_flags));
static_assert(sizeof(CqInitAttr) <= sizeof(::efadv_cq_init_attr));
static_assert(offsetof(Cq, wc_read_sgid) == offsetof(::efadv_cq, wc_read_sgid));
static_assert(detail::efadv::wc_ex_with_sgid == EFADV_WC_EX_WITH_SGID);
#endif

constexpr const char* function = "efadv_create_cq";

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

CompletionQueue create(const Context& context, const CompletionQueueOptions& options) {
    ibv_context* const native = detail::native_of(context, function, "Context");
    const auto create_cq =
        detail::efadv::find<ibv_cq_ex* (*)(ibv_context*, ibv_cq_init_attr_ex*, CqInitAttr*,
                                           std::uint32_t)>(function);
    if (create_cq == nullptr || find_cq_from_cq_ex() == nullptr) {
        throw Error(EOPNOTSUPP, function,
                    "there is no efadv_create_cq: libibverbs has not loaded libefa, or libefa is "
                    "older than rdma-core 43");
    }
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = options.depth;
    attributes.cq_context = options.cq_context;
    attributes.channel = options.channel != nullptr
                             ? detail::native_of(*options.channel, function, "CompletionChannel")
                             : nullptr;
    attributes.comp_vector = static_cast<std::uint32_t>(options.vector);
    attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
    CqInitAttr extra{};
    extra.wc_flags = detail::efadv::wc_ex_with_sgid;
    errno = 0;
    ibv_cq_ex* const cq =
        detail::check_pointer(create_cq(native, &attributes, &extra, sizeof extra), function,
                              [&](int) { return explain(context, options); });
    return CompletionQueue::adopt(context, ibv_cq_ex_to_cq(cq), options.channel);
}

/// Returns @p queue as the ibv_cq_ex that efadv_create_cq(3) returned to create().
ibv_cq_ex* extended(const CompletionQueue& queue) noexcept {
    return reinterpret_cast<ibv_cq_ex*>(queue.native());
}

/// Reads the current completion of @p cq. Must be called after ibv_start_poll(3) or
/// ibv_next_poll(3).
void read(ibv_cq_ex* cq, Cq* efa, WorkCompletion& completion, Gid& sender) noexcept {
    completion = {};
    sender = {};
    completion.wr_id = cq->wr_id;
    completion.status = cq->status;
    completion.qp_num = ibv_wc_read_qp_num(cq);
    if (cq->status != IBV_WC_SUCCESS) {
        completion.vendor_err = ibv_wc_read_vendor_err(cq);
        return;
    }
    completion.opcode = ibv_wc_read_opcode(cq);
    completion.wc_flags = ibv_wc_read_wc_flags(cq);
    completion.byte_len = ibv_wc_read_byte_len(cq);
    if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
        completion.imm_data = ibv_wc_read_imm_data(cq);
    }
    if ((completion.opcode & IBV_WC_RECV) == 0) {
        return;
    }
    completion.src_qp = ibv_wc_read_src_qp(cq);
    completion.slid = static_cast<std::uint16_t>(ibv_wc_read_slid(cq));
    union ibv_gid gid {};
    if (completion.slid == unknown_address && efa->wc_read_sgid(efa, &gid) == 0) {
        sender = Gid::from_native(gid);
    }
}

} // namespace

SrdCompletionQueue::SrdCompletionQueue(const Context& context,
                                       const CompletionQueueOptions& options)
    : queue_(create(context, options)), efa_(find_cq_from_cq_ex()(extended(queue_))) {}

int SrdCompletionQueue::poll(WorkCompletion& completion, Gid& sender) const noexcept {
    assert(queue_.native() != nullptr && "the SrdCompletionQueue was moved from");
    ibv_cq_ex* const cq = extended(queue_);
    ibv_poll_cq_attr none{};
    const int error = ibv_start_poll(cq, &none);
    if (error == ENOENT) {
        return 0;
    }
    if (error != 0) {
        return -error;
    }
    read(cq, efa_, completion, sender);
    ibv_end_poll(cq);
    return 1;
}

} // namespace rdmabuf
