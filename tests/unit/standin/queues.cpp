// SPDX-License-Identifier: BSD-3-Clause
// Completion channels, completion queues, shared receive queues and address handles.
#include <unistd.h>

#include "state.hpp"

using standin::fail;
using standin::Kind;
using standin::state;

namespace {

int poll_cq(ibv_cq* native, int capacity, ibv_wc* completions) {
    const auto guard = standin::lock();
    auto& cq = static_cast<standin::Cq&>(*native);
    if (cq.broken) {
        return -1;
    }
    int count = 0;
    while (count < capacity && !cq.completions.empty()) {
        completions[count++] = cq.completions.front();
        cq.completions.pop_front();
    }
    return count;
}

int req_notify_cq(ibv_cq* native, int solicited_only) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_req_notify_cq"); error != 0) {
        return error;
    }
    auto& cq = static_cast<standin::Cq&>(*native);
    cq.completions.insert(cq.completions.end(), cq.before_request.begin(), cq.before_request.end());
    cq.before_request.clear();
    cq.armed = true;
    state().record.notifications.push_back(solicited_only != 0);
    return 0;
}

int post_srq_recv(ibv_srq* native, ibv_recv_wr* request, ibv_recv_wr** failed) {
    const auto guard = standin::lock();
    auto& srq = static_cast<standin::Srq&>(*native);
    int error = state().enter("ibv_post_srq_recv");
    ++state().posting_calls;
    for (; request != nullptr; request = request->next) {
        if (error == 0 && srq.posted == srq.capacity) {
            error = ENOMEM;
        }
        if (error != 0) {
            *failed = request;
            return error;
        }
        ++srq.posted;
        state().record.receives.push_back({*request,
                                           {request->sg_list, request->sg_list + request->num_sge},
                                           true,
                                           state().posting_calls});
    }
    return 0;
}

} // namespace

void standin::set_queue_operations(ibv_context_ops& ops) {
    ops.poll_cq = poll_cq;
    ops.req_notify_cq = req_notify_cq;
    ops.post_srq_recv = post_srq_recv;
}

void standin::complete(ibv_cq* cq, const ibv_wc& completion) {
    const auto guard = lock();
    static_cast<Cq*>(cq)->completions.push_back(completion);
    raise_cq_event(cq);
}

void standin::complete_before_request(ibv_cq* cq, const ibv_wc& completion) {
    const auto guard = lock();
    static_cast<Cq*>(cq)->before_request.push_back(completion);
}

bool standin::armed(ibv_cq* cq) {
    const auto guard = lock();
    return static_cast<Cq*>(cq)->armed;
}

void standin::raise_cq_event(ibv_cq* native) {
    const auto guard = lock();
    auto& cq = static_cast<Cq&>(*native);
    if (!cq.armed || cq.channel == nullptr) {
        return;
    }
    cq.armed = false;
    const int fd = static_cast<Channel*>(cq.channel)->events.write_end;
    if (::write(fd, static_cast<const void*>(&native), sizeof(native)) != sizeof(native)) {
        state().violation("raise_cq_event", "the event was not written");
    }
}

void standin::break_cq(ibv_cq* cq) {
    const auto guard = lock();
    static_cast<Cq*>(cq)->broken = true;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_comp_channel"); error != 0) {
        return fail(error);
    }
    auto* const channel = state().make<standin::Channel>(Kind::channel, {context});
    channel->context = context;
    channel->fd = channel->events.read_end;
    return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    const auto guard = standin::lock();
    return state().destroy(static_cast<standin::Channel*>(channel), Kind::channel,
                           "ibv_destroy_comp_channel");
}

ibv_cq* ibv_create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_cq"); error != 0) {
        return fail(error);
    }
    if (depth < 1 || depth > standin::device_of(context).attributes.orig_attr.max_cqe ||
        vector < 0 || vector >= context->num_comp_vectors) {
        return fail(EINVAL);
    }
    state().record.cqs.push_back({depth, channel, vector});
    std::vector<const void*> parents{context};
    if (channel != nullptr) {
        parents.push_back(static_cast<standin::Channel*>(channel));
    }
    auto* const cq = state().make<standin::Cq>(Kind::cq, std::move(parents));
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = cq_context;
    cq->cqe = depth;
    return cq;
}

int ibv_destroy_cq(ibv_cq* cq) {
    const auto guard = standin::lock();
    // The real one waits here, for ever.
    if (static_cast<standin::Cq*>(cq)->unacknowledged != 0) {
        state().violation("ibv_destroy_cq", "events are not acknowledged");
    }
    return state().destroy(static_cast<standin::Cq*>(cq), Kind::cq, "ibv_destroy_cq");
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    {
        const auto guard = standin::lock();
        if (const int error = state().enter("ibv_get_cq_event"); error != 0) {
            errno = error;
            return -1;
        }
    }
    if (::read(channel->fd, static_cast<void*>(cq), sizeof(*cq)) != sizeof(*cq)) {
        return -1;
    }
    const auto guard = standin::lock();
    *cq_context = (*cq)->cq_context;
    ++static_cast<standin::Cq*>(*cq)->unacknowledged;
    ++state().unacknowledged;
    return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
    const auto guard = standin::lock();
    static_cast<standin::Cq*>(cq)->unacknowledged -= static_cast<int>(count);
    state().unacknowledged -= static_cast<int>(count);
}

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_srq"); error != 0) {
        return fail(error);
    }
    const ibv_device_attr& limits = standin::device_of(pd->context).attributes.orig_attr;
    if (attributes->attr.max_wr > static_cast<std::uint32_t>(limits.max_srq_wr) ||
        attributes->attr.max_sge > static_cast<std::uint32_t>(limits.max_srq_sge)) {
        return fail(EINVAL);
    }
    state().record.srqs.push_back(*attributes);
    auto* const srq = state().make<standin::Srq>(Kind::srq, {pd});
    srq->context = pd->context;
    srq->pd = pd;
    srq->capacity = attributes->attr.max_wr;
    return srq;
}

int ibv_modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* attributes, int mask) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_modify_srq"); error != 0) {
        return error;
    }
    if (mask != IBV_SRQ_LIMIT) {
        return EINVAL;
    }
    state().record.srq_limits.push_back(attributes->srq_limit);
    return 0;
}

int ibv_destroy_srq(ibv_srq* srq) {
    const auto guard = standin::lock();
    return state().destroy(static_cast<standin::Srq*>(srq), Kind::srq, "ibv_destroy_srq");
}

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_create_ah"); error != 0) {
        return fail(error);
    }
    const auto& ports = standin::device_of(pd->context).ports;
    if (attributes->port_num == 0 || attributes->port_num > ports.size()) {
        return fail(EINVAL);
    }
    state().record.ahs.push_back(*attributes);
    auto* const ah = state().make<ibv_ah>(Kind::ah, {pd});
    ah->context = pd->context;
    ah->pd = pd;
    return ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
    const auto guard = standin::lock();
    return state().destroy(ah, Kind::ah, "ibv_destroy_ah");
}
