// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <infiniband/mlx5dv.h>

#include <memory>
#include <utility>

#include "objects/acknowledgements.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"
#include "objects/tag_matching.hpp"
#include "objects/xrc_domain.hpp"

namespace softverbs {

namespace {

constexpr unsigned known_comp_mask = IBV_SRQ_INIT_ATTR_RESERVED - 1;

ibv_srq_type type_of(const ibv_srq_init_attr_ex& attributes) {
    return (attributes.comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? attributes.srq_type
                                                                : IBV_SRQT_BASIC;
}

int check(Context& context, const ibv_srq_init_attr_ex& attributes) {
    const ibv_device_attr& device = context.device->attributes.orig_attr;
    if ((attributes.comp_mask & ~known_comp_mask) != 0) {
        return EINVAL;
    }
    if (device.max_srq == 0) {
        return EOPNOTSUPP; // the provider has no create_srq
    }
    const ibv_srq_type type = type_of(attributes);
    const bool has_xrc = (device.device_cap_flags & IBV_DEVICE_XRC) != 0;
    const bool has_tm = context.device->attributes.tm_caps.flags != 0;
    if (type != IBV_SRQT_BASIC && (type != IBV_SRQT_XRC || !has_xrc) &&
        (type != IBV_SRQT_TM || !has_tm)) {
        return EOPNOTSUPP;
    }
    if (type == IBV_SRQT_TM) {
        if (const int error = check_tag_matching(context, attributes); error != 0) {
            return error;
        }
    }
    constexpr unsigned for_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    if (type == IBV_SRQT_XRC &&
        ((attributes.comp_mask & for_xrc) != for_xrc || attributes.xrcd == nullptr ||
         attributes.xrcd->context != &context.context || attributes.cq == nullptr ||
         attributes.cq->context != &context.context)) {
        return EINVAL;
    }
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes.pd == nullptr ||
        attributes.pd->context != &context.context) {
        return EINVAL;
    }
    const ibv_srq_attr& wanted = attributes.attr;
    if (wanted.max_wr < 1 || wanted.max_wr > static_cast<std::uint32_t>(device.max_srq_wr) ||
        wanted.max_sge > max_sge ||
        wanted.max_sge > static_cast<std::uint32_t>(device.max_srq_sge)) {
        return EINVAL;
    }
    return may_create(SOFTVERBS_SRQ, device.max_srq) ? 0 : ENOMEM;
}

/// Changes the capacity of a shared receive queue. The posted requests stay in the queue.
void resize(Srq& srq, std::uint32_t max_wr) {
    Ring<RecvRequest> resized(max_wr);
    resized.occupy(srq.requests.occupied() - srq.requests.size());
    if (srq.requests.allocated()) {
        resized.allocate();
        for (; !srq.requests.empty(); srq.requests.pop()) {
            resized.push() = srq.requests.front();
        }
    }
    srq.requests = std::move(resized);
}

} // namespace

int obtain_memory(Context& context, const ibv_srq_init_attr_ex& attributes, QueueMemory& memory) {
    const auto most = static_cast<std::uint32_t>(context.device->attributes.orig_attr.max_srq_wr);
    if ((attributes.comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attributes.attr.max_wr > most) {
        return 0; // create_srq() will reject it
    }
    return memory.obtain(attributes.pd,
                         aligned_size(Ring<RecvRequest>(attributes.attr.max_wr).bytes()),
                         MLX5DV_RES_TYPE_SRQ);
}

Srq* create_srq(Context& context, const ibv_srq_init_attr_ex& attributes, QueueMemory& memory) {
    if (const int error = check(context, attributes); error != 0) {
        return fail(error);
    }
    auto srq = std::make_unique<Srq>();
    if (const ibv_srq_type type = type_of(attributes); type != IBV_SRQT_BASIC) {
        if (type == IBV_SRQT_XRC) {
            add(*static_cast<Xrcd*>(attributes.xrcd), *srq);
        } else {
            make_tag_list(*srq, attributes);
        }
        srq->queue = &Cq::of(attributes.cq);
        ++srq->queue->users;
    }
    static std::uint32_t handles = 0;
    srq->context = &context.context;
    srq->srq_context = attributes.srq_context;
    srq->pd = attributes.pd;
    srq->handle = ++handles;
    pthread_mutex_init(&srq->mutex, nullptr);
    pthread_cond_init(&srq->cond, nullptr);
    srq->requests = Ring<RecvRequest>(attributes.attr.max_wr);
    srq->max_sge = attributes.attr.max_sge;
    srq->memory = std::move(memory);
    ++static_cast<Pd*>(srq->pd)->users;
    count(context, SOFTVERBS_SRQ, 1);
    return srq.release();
}

int modify_srq(Srq& srq, const ibv_srq_attr& attributes, int mask) {
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) {
        return EINVAL;
    }
    auto max_wr = static_cast<std::uint32_t>(srq.requests.capacity());
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
        // Reject a new capacity if the device cannot resize a shared receive queue. The mlx5 driver
        // cannot (mlx5_ib_modify_srq()).
        if ((device_of(srq).attributes.orig_attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) == 0) {
            return EINVAL;
        }
        max_wr = attributes.max_wr;
        const auto max = device_of(srq).attributes.orig_attr.max_srq_wr;
        if (max_wr < 1 || max_wr > static_cast<std::uint32_t>(max) ||
            max_wr < srq.requests.occupied()) {
            return EINVAL;
        }
    }
    if ((mask & IBV_SRQ_LIMIT) != 0 && attributes.srq_limit > max_wr) {
        return EINVAL;
    }
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
        resize(srq, max_wr);
    }
    if ((mask & IBV_SRQ_LIMIT) != 0) {
        srq.limit = attributes.srq_limit;
    }
    return 0;
}

void query_srq(const Srq& srq, ibv_srq_attr& attributes) {
    attributes = {};
    attributes.max_wr = static_cast<std::uint32_t>(srq.requests.capacity());
    attributes.max_sge = srq.max_sge;
    attributes.srq_limit = srq.limit;
}

int destroy_srq(Srq& srq) {
    QueueMemory memory; // freed after the lock is released
    std::unique_lock lock(process().lock);
    if (srq.users != 0) {
        return busy();
    }
    // Remove the shared receive queue from its XRC domain before the wait for acknowledgements of
    // its events. Otherwise an XRC target queue pair could find it by its number, consume its
    // receive requests, and raise an event for it.
    if (srq.xrcd != nullptr) {
        remove(srq);
    }
    forget_events(context_of(srq), static_cast<ibv_srq*>(&srq));
    wait_for_acknowledgements(srq, lock);
    if (srq.queue != nullptr) {
        forget(*srq.queue, srq); // completions of ibv_post_srq_ops()
        --srq.queue->users;
    }
    --static_cast<Pd*>(srq.pd)->users;
    count(context_of(srq), SOFTVERBS_SRQ, -1);
    pthread_cond_destroy(&srq.cond);
    pthread_mutex_destroy(&srq.mutex);
    memory = std::move(srq.memory);
    delete &srq;
    return 0;
}

} // namespace softverbs
