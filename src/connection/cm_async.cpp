// SPDX-License-Identifier: BSD-3-Clause
#include "connection/cm_async.hpp"

#include <cerrno>

#include <rdmabuf/detail/check.hpp>

#include "connection/cm_steps.hpp"

namespace rdmabuf::cm::detail {

AsyncId& AsyncId::of(const rdma_cm_event& event) noexcept {
    const rdma_cm_id* const id = event.listen_id != nullptr ? event.listen_id : event.id;
    return *static_cast<AsyncId*>(id->context);
}

Id AsyncId::make_id(const EventChannel& channel, rdma_port_space space) {
    static_cast<void>(rdmabuf::detail::native_of(channel, "rdma_create_id", "EventChannel"));
    return detail::make_id(channel.handle_, space, this);
}

void AsyncId::resolve_address(const EventChannel& channel, rdma_port_space space,
                              const std::string& host, std::uint16_t port,
                              const RouteOptions& options, std::chrono::milliseconds timeout) {
    const auto address = rdmabuf::detail::resolve_host(host, port);
    const auto source = local_addresses(options);
    id_ = make_id(channel, space);
    begin_to_resolve(id_, source.get(), *address->ai_addr, options, timeout);
}

ChannelEvent AsyncId::make_event(EventType type) const {
    return {.type = type, .id = id_.get(), .user_data = user_data_};
}

ChannelEvent AsyncId::make_failure(const Error& error) const {
    ChannelEvent event = make_event(EventType::failed);
    event.error = error;
    return event;
}

Step AsyncId::step(const char* function) const {
    return {function, peer_of(id_)};
}

void AsyncId::check_status(const Step& step, const rdma_cm_event& event) {
    // A step was successful if the status of its event is 0; see rdma_get_cm_event(3).
    if (event.status != 0) {
        throw failure(step, event.status < 0 ? -event.status : EIO);
    }
}

} // namespace rdmabuf::cm::detail
