// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "abi/entry.hpp"
#include "abi/verbs.hpp"
#include "objects/completion_queue.hpp"

using namespace softverbs;

SOFTVERBS_ENTRY ibv_comp_channel* ibv_create_comp_channel(ibv_context* native) {
    return verb<ibv_create_comp_channel, "ibv_create_comp_channel", create_channel>(native);
}

SOFTVERBS_ENTRY int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    return destroying_verb<ibv_destroy_comp_channel, "ibv_destroy_comp_channel", destroy_channel>(
        channel);
}

SOFTVERBS_ENTRY ibv_cq* ibv_create_cq(ibv_context* native, int entries, void* cq_context,
                                      ibv_comp_channel* channel, int comp_vector) {
    Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_create_cq>("ibv_create_cq", native, entries, cq_context, channel,
                                      comp_vector);
    }
    return call("ibv_create_cq", *context, [&]() -> ibv_cq* {
        if (entries < 1 || comp_vector < 0) {
            return fail(EINVAL);
        }
        ibv_cq_init_attr_ex attributes{};
        attributes.cqe = static_cast<std::uint32_t>(entries);
        attributes.cq_context = cq_context;
        attributes.channel = channel;
        attributes.comp_vector = static_cast<std::uint32_t>(comp_vector);
        return native_of<ibv_cq*>(create_cq(*context, attributes));
    });
}

SOFTVERBS_ENTRY int ibv_resize_cq(ibv_cq* cq, int entries) {
    return verb<ibv_resize_cq, "ibv_resize_cq", resize_cq>(cq, entries);
}

SOFTVERBS_ENTRY int ibv_destroy_cq(ibv_cq* cq) {
    return unlocked_destroying_verb<ibv_destroy_cq, "ibv_destroy_cq", destroy_cq>(cq);
}

SOFTVERBS_ENTRY int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    if (ours(channel->context) == nullptr) {
        return forward<ibv_get_cq_event>("ibv_get_cq_event", channel, cq, cq_context);
    }
    {
        const Guard guard;
        // Fail only because of an injected fault. Do not return EIO if the device has failed,
        // because the program must still receive the completion events of flushed requests.
        if (const int error = process().faults.enter("ibv_get_cq_event"); error != 0) {
            errno = error;
            return -1;
        }
    }
    return get_cq_event(*static_cast<Channel*>(channel), cq, cq_context);
}

SOFTVERBS_ENTRY void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
    if (ours(cq->context) == nullptr) {
        forward<ibv_ack_cq_events>("ibv_ack_cq_events", cq, count);
        return;
    }
    const Guard guard;
    ack_cq_events(Cq::of(cq), count);
}
