// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <memory>

#include "objects/acknowledgements.hpp"
#include "objects/completion_queue.hpp"
#include "objects/process.hpp"

namespace softverbs {

Channel* create_channel(Context& context) {
    auto channel = std::make_unique<Channel>();
    if (const int error = channel->events.open(); error != 0) {
        return fail(error);
    }
    channel->context = &context.context;
    channel->fd = channel->events.fd();
    channel->refcnt = 0;
    count(context, SOFTVERBS_CHANNEL, 1);
    return channel.release();
}

int destroy_channel(Channel& channel) {
    if (channel.refcnt != 0) {
        return busy();
    }
    count(context_of(channel), SOFTVERBS_CHANNEL, -1);
    delete &channel;
    return 0;
}

int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) {
    {
        const Guard guard;
        process().engine.program_sleeps();
    }
    while (true) {
        if (const int error = channel.events.take(); error != 0) {
            errno = error;
            return -1;
        }
        const Guard guard;
        // "channel.queue" contains the completion queues with an event. If it is empty, another
        // thread has destroyed the completion queue of this event before this thread took
        // Process::lock. In this case, wait for the next event.
        if (!channel.queue.empty()) {
            Cq& source = *channel.queue.front();
            channel.queue.pop_front();
            event_taken(source);
            *cq = source.native();
            *cq_context = source.cq_context;
            return 0;
        }
    }
}

void ack_cq_events(Cq& cq, unsigned count) {
    cq.comp_events_completed += count;
    event_acknowledged(cq, count);
}

namespace {

const void* element_of(const ibv_async_event& event) noexcept {
    const void* element = nullptr;
    with_object(event, [&element](const auto* object) { element = object; });
    return element;
}

} // namespace

void forget_events(Context& context, const void* native) {
    const auto gone = std::erase_if(context.async_events, [native](const ibv_async_event& event) {
        return element_of(event) == native;
    });
    for (std::size_t i = 0; i < gone; ++i) {
        context.async.retract();
    }
}

} // namespace softverbs
