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
    // It fails for nullptr only: librdmacm/cma.c, rdma_ack_cm_event.
    void operator()(rdma_cm_event* event) const noexcept { rdma_ack_cm_event(event); }
};
/// Must go before its id does: rdma_destroy_id waits for it. Private data live as long as it.
using Event = std::unique_ptr<rdma_cm_event, AckEvent>;

/// The next event of @p channel, which does not block; nothing when none came in time.
[[nodiscard]] Event next_event(rdma_event_channel* channel, std::chrono::milliseconds timeout);

/// A step of connecting, as errors speak of it.
struct Step {
    const char* function;
    /// "192.0.2.1:4711"
    std::string peer;
};

/// What went wrong at @p step.
/// @param error  a positive errno value
[[nodiscard]] Error failure(const Step& step, int error);
/// What an event means that says that @p step failed.
[[nodiscard]] Error failure(const Step& step, const rdma_cm_event& event);

/// Waits for one of @p wanted. @throws Error what another event means, or ETIMEDOUT
[[nodiscard]] Event await_event(rdma_event_channel* channel, const Step& step,
                                std::initializer_list<rdma_cm_event_type> wanted,
                                const rdmabuf::detail::Deadline& deadline);

} // namespace rdmabuf::cm::detail
