// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <utility>

#include "abi/verbs.hpp"
#include "objects/acknowledgements.hpp"

namespace softverbs {

namespace {

bool take_event(Context& context, ibv_async_event& out) {
    // The event queue is empty if another thread has destroyed the object of the event (such as a
    // QP) after this thread was notified of the event by EventDescriptor::take().
    if (context.async_events.empty()) {
        return false;
    }
    out = context.async_events.front();
    context.async_events.pop_front();
    if (!with_object(out, [](auto* native) { event_taken(object_of(native)); })) {
        ++process().unacknowledged_device_events;
        ++process().unacknowledged_events;
    }
    return true;
}

int get_async_event(Context& context, ibv_async_event& out) {
    {
        const Guard guard;
        // Fail only because of an injected fault. Do not return EIO if the device has failed,
        // because the program must be able to read IBV_EVENT_DEVICE_FATAL.
        if (const int error = process().faults.enter("ibv_get_async_event"); error != 0) {
            return error;
        }
        process().engine.program_sleeps();
    }
    while (true) {
        if (const int error = context.async.take(); error != 0) {
            return error;
        }
        const Guard guard;
        if (take_event(context, out)) {
            return 0;
        }
    }
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int ibv_get_async_event(ibv_context* native, ibv_async_event* event) {
    Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_get_async_event>("ibv_get_async_event", native, event);
    }
    const int error = get_async_event(*context, *event);
    return error != 0 ? (errno = error, -1) : 0;
}

SOFTVERBS_ENTRY void ibv_ack_async_event(ibv_async_event* event) {
    bool is_ours = true;
    const bool has_object = with_object(*event, [&](auto* native) {
        is_ours = ours(native->context) != nullptr;
        if (is_ours) {
            const Guard guard;
            event_acknowledged(object_of(native));
        }
    });
    if (!is_ours) {
        forward<ibv_ack_async_event>("ibv_ack_async_event", event);
    }
    if (!has_object) {
        // An event of a port or a device does not contain its context, so softverbs does not know
        // whether the device is a real one. It never calls the real library for such an event,
        // because the real library ignores the acknowledgement.
        const Guard guard;
        if (process().unacknowledged_device_events != 0) {
            --process().unacknowledged_device_events;
            --process().unacknowledged_events;
        }
    }
}
