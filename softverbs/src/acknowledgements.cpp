// SPDX-License-Identifier: BSD-3-Clause
#include "acknowledgements.hpp"

#include <sys/uio.h>

#include <algorithm>

namespace softverbs {

namespace {

const void* element_of(const ibv_async_event& event) noexcept {
    switch (event.event_type) {
        case IBV_EVENT_CQ_ERR:
            return event.element.cq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return event.element.qp;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return event.element.srq;
        default:
            return nullptr;
    }
}

} // namespace

void EventDescriptor::retract() const noexcept {
    // A thread in take() may be about to read the same event, so a plain read(2) could wait for the
    // next one. Where there is no such flag the event stays, and whoever takes it finds nothing.
    std::uint64_t value = 0;
    const iovec buffer{&value, sizeof value};
    [[maybe_unused]] const ssize_t read = preadv2(fd_, &buffer, 1, -1, RWF_NOWAIT);
}

void forget_events(Context& context, const void* native) {
    const auto gone = std::erase_if(context.async_events, [native](const ibv_async_event& event) {
        return element_of(event) == native;
    });
    for (std::size_t i = 0; i < gone; ++i) {
        context.async.retract();
    }
}

} // namespace softverbs
