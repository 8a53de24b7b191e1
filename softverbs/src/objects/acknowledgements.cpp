// SPDX-License-Identifier: BSD-3-Clause
#include "objects/acknowledgements.hpp"

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

void forget_events(Context& context, const void* native) {
    const auto gone = std::erase_if(context.async_events, [native](const ibv_async_event& event) {
        return element_of(event) == native;
    });
    for (std::size_t i = 0; i < gone; ++i) {
        context.async.retract();
    }
}

} // namespace softverbs
