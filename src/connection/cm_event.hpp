// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <string>

#include <rdmabuf/error.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf::cm::detail {

struct AckEvent {
    // The result is not checked: rdma_ack_cm_event() fails only for a null event (librdmacm/cma.c).
    void operator()(rdma_cm_event* event) const noexcept { rdma_ack_cm_event(event); }
};
/// A unique_ptr that acknowledges its event. The event must be acknowledged before its id is
/// destroyed, because rdma_destroy_id(3) waits for the acknowledgement. The private data of the
/// event is valid only before the acknowledgement.
using Event = std::unique_ptr<rdma_cm_event, AckEvent>;

/// Waits for the next event of @p channel, which must be non-blocking.
/// @return null if @p timeout expired
/// @throws Error with the errno value of rdma_get_cm_event(3) or poll(2)
[[nodiscard]] Event next_event(rdma_event_channel* channel, std::chrono::milliseconds timeout);

/// A step of connecting or listening, for error messages.
struct Step {
    /// The name of the librdmacm function.
    const char* function;
    /// An IP address and a port, such as "192.0.2.1:4711": those of the peer, or the local ones
    /// while listening and if the local address was refused.
    std::string peer;
};

/// Returns the Error for a failed step.
/// @param error  a positive errno value
[[nodiscard]] Error failure(const Step& step, int error);
/// Returns the Error for an event that reports the failure of @p step.
[[nodiscard]] Error failure(const Step& step, const rdma_cm_event& event);

/// Waits for an event of one of the types @p wanted. Ignores RDMA_CM_EVENT_ADDR_CHANGE and
/// RDMA_CM_EVENT_TIMEWAIT_EXIT.
/// @throws Error ETIMEDOUT if no event arrives in time; the Error of failure() if the event has
///         another type or a status other than 0
[[nodiscard]] Event await_event(rdma_event_channel* channel, const Step& step,
                                std::initializer_list<rdma_cm_event_type> wanted,
                                const rdmabuf::detail::Deadline& deadline);

} // namespace rdmabuf::cm::detail
