// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cm/message.hpp"
#include "cm/user_cm.hpp"

namespace softverbs::cm {

struct Id;
struct Multicast;

/// The types of rdma_cm events. The values are those of enum rdma_cm_event_type. <rdma/rdma_cma.h>,
/// which defines it, cannot be included together with <rdma/rdma_user_cm.h>.
enum class EventType : std::uint32_t {
    address_resolved = 0,
    address_error,
    route_resolved,
    route_error,
    connect_request,
    connect_response,
    connect_error,
    unreachable,
    rejected,
    established,
    disconnected,
    device_removal,
    multicast_join,
    multicast_error,
    address_change,
    timewait_exit,
};

/// An event that is queued until the program receives it with the command GET_EVENT.
struct Event {
    rdma_ucm_event_resp response{};
    /// The id whose Id::events_reported counts this event.
    Id* owner = nullptr;
    Multicast* multicast = nullptr;
    /// For a connection request: the id that was created for the request. Otherwise null.
    Id* request = nullptr;
};

[[nodiscard]] inline Event make_event(EventType type, int status = 0) {
    Event event;
    event.response.event = static_cast<std::uint32_t>(type);
    event.response.status = static_cast<std::uint32_t>(status);
    return event;
}

/// Copies the private data of a message to an event. As in the kernel, the length in the event is
/// @p size, the size of the private data field in this type of message.
template <class Parameters>
void get_private_data(Parameters& parameters, const Message& message, std::size_t size) noexcept {
    const std::size_t given = std::min<std::size_t>(message.private_data_size, size);
    std::memcpy(parameters.private_data, message.private_data.data(), given);
    parameters.private_data_len = static_cast<std::uint8_t>(size);
}

/// Returns the event RDMA_CM_EVENT_REJECTED.
/// @param message  the REJ that has arrived, whose private data is copied to the event; null: no
///     REJ has arrived
[[nodiscard]] inline Event rejected(std::uint8_t reason, const Message* message) {
    Event event = make_event(EventType::rejected, reason);
    event.response.param.conn.private_data_len = private_data::rej;
    if (message != nullptr) {
        get_private_data(event.response.param.conn, *message, private_data::rej);
    }
    return event;
}

} // namespace softverbs::cm
