// SPDX-License-Identifier: BSD-3-Clause
#include "objects/xrc_domain.hpp"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "objects/mapping.hpp"
#include "objects/process.hpp"

namespace softverbs {

struct XrcDomain {
    Device* device = nullptr;
    /// The file with which the domain was opened. Without a file, another ibv_open_xrcd() cannot
    /// open the same domain.
    std::optional<FileIdentity> file;
    /// Number of ibv_xrcd objects of this domain.
    unsigned users = 0;
    std::vector<Srq*> queues;
};

namespace {

std::vector<std::unique_ptr<XrcDomain>>& domains() {
    static auto* const all = new std::vector<std::unique_ptr<XrcDomain>>;
    return *all;
}

XrcDomain* find_domain(const Device& device, const FileIdentity& file) {
    const auto found = std::ranges::find_if(domains(), [&](const auto& domain) {
        return domain->device == &device && domain->file == file;
    });
    return found == domains().end() ? nullptr : found->get();
}

} // namespace

Xrcd* open_xrcd(Context& context, const ibv_xrcd_init_attr& attributes) {
    constexpr unsigned needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attributes.comp_mask != needed || (attributes.oflags & ~(O_CREAT | O_EXCL)) != 0) {
        return fail(EINVAL);
    }
    const bool has_file = attributes.fd != -1;
    const auto file = has_file ? identity_of(attributes.fd) : std::nullopt;
    if (has_file && !file) {
        return nullptr;
    }
    XrcDomain* domain = has_file ? find_domain(*context.device, *file) : nullptr;
    // If the program has passed no file descriptor, O_CREAT and O_EXCL have no effect, as in the
    // kernel.
    if (has_file && domain == nullptr && (attributes.oflags & O_CREAT) == 0) {
        return fail(EAGAIN);
    }
    if (domain != nullptr && (attributes.oflags & O_EXCL) != 0) {
        return fail(EINVAL);
    }
    auto made = std::make_unique<Xrcd>();
    if (domain == nullptr) {
        domains().push_back(std::make_unique<XrcDomain>());
        domain = domains().back().get();
        domain->device = context.device;
        domain->file = file;
    }
    ++domain->users;
    made->context = &context.context;
    made->domain = domain;
    count(context, SOFTVERBS_XRCD, 1);
    return made.release();
}

int close_xrcd(Xrcd& xrcd) {
    if (xrcd.users != 0) {
        return busy();
    }
    if (--xrcd.domain->users == 0) {
        std::erase_if(domains(), [&](const auto& one) { return one.get() == xrcd.domain; });
    }
    count(context_of(xrcd), SOFTVERBS_XRCD, -1);
    delete &xrcd;
    return 0;
}

void add(Xrcd& xrcd, Srq& srq) {
    static std::uint32_t numbers = 0;
    xrcd.domain->queues.push_back(&srq);
    srq.xrcd = &xrcd;
    srq.number = ++numbers & 0xffffff;
    ++xrcd.users;
}

void remove(Srq& srq) {
    std::erase(srq.xrcd->domain->queues, &srq);
    --srq.xrcd->users;
    for (Qp* const qp : process().qps.all()) {
        if (qp != nullptr && qp->type() == IBV_QPT_XRC_RECV && qp->shared_queue == &srq) {
            qp->shared_queue = nullptr;
            qp->recv_queue = nullptr;
            qp->qp_base.pd = nullptr;
            qp->responder.current_taken = false;
        }
    }
    forget(*srq.queue, srq);
}

void forget_completions(const Qp& target) {
    for (const Srq* const srq : target.domain->queues) {
        forget(*srq->queue, target.number());
    }
}

bool select_srq(Qp& target, std::uint32_t srq_number) {
    if (target.shared_queue != nullptr && target.shared_queue->number == srq_number) {
        return true;
    }
    const auto& queues = target.domain->queues;
    const auto found = std::ranges::find(queues, srq_number, &Srq::number);
    if (found == queues.end()) {
        return false;
    }
    target.shared_queue = *found;
    target.recv_queue = (*found)->queue;
    target.qp_base.pd = (*found)->pd;
    return true;
}

Qp* make_handle(Qp& target, Xrcd& xrcd, void* qp_context) {
    try {
        auto handle = std::make_unique<Qp>();
        target.handles.push_back(handle.get());
        ibv_qp& base = handle->qp_base;
        base.context = xrcd.context;
        base.qp_context = qp_context;
        base.handle = base.qp_num = target.number();
        base.qp_type = IBV_QPT_XRC_RECV;
        pthread_mutex_init(&base.mutex, nullptr);
        pthread_cond_init(&base.cond, nullptr);
        handle->target = &target;
        handle->domain = target.domain;
        handle->xrcd = &xrcd;
        ++xrcd.users;
        count(context_of(xrcd), SOFTVERBS_QP, 1);
        return handle.release();
    } catch (const std::bad_alloc&) {
        return fail(ENOMEM);
    }
}

Qp* open_qp(Context& context, const ibv_qp_open_attr& attributes) {
    constexpr unsigned needed =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    constexpr unsigned known = needed | IBV_QP_OPEN_ATTR_CONTEXT;
    if ((attributes.comp_mask & needed) != needed || (attributes.comp_mask & ~known) != 0 ||
        attributes.qp_type != IBV_QPT_XRC_RECV || attributes.xrcd == nullptr ||
        attributes.xrcd->context != &context.context) {
        return fail(EINVAL);
    }
    auto& xrcd = *static_cast<Xrcd*>(attributes.xrcd);
    Qp* const target = process().qps.find(attributes.qp_num);
    if (target == nullptr || target->type() != IBV_QPT_XRC_RECV || target->domain != xrcd.domain) {
        return fail(EINVAL);
    }
    const bool has_context = (attributes.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0;
    return make_handle(*target, xrcd, has_context ? attributes.qp_context : nullptr);
}

} // namespace softverbs
