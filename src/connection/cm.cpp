// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <utility>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "connection/cm_event.hpp"
#include "connection/cm_steps.hpp"
#include "connection/host_address.hpp"

namespace rdmabuf::cm {

using rdmabuf::detail::check_zero;
using rdmabuf::detail::Deadline;
using rdmabuf::detail::resolve_host;
using rdmabuf::detail::to_string;
using rdmabuf::detail::try_each;

int detail::DestroyEventChannel::call(rdma_event_channel* channel) noexcept {
    rdma_destroy_event_channel(channel);
    return 0;
}

int detail::DestroyId::call(rdma_cm_id* id) noexcept {
    return rdma_destroy_id(id) == 0 ? 0 : errno;
}

namespace {

using detail::as_int;
using detail::await_event;
using detail::check_prepared;
using detail::check_private_data;
using detail::conn_param;
using detail::copy_private_data;
using detail::Event;
using detail::EventChannelHandle;
using detail::failure;
using detail::Id;
using detail::make_channel;
using detail::make_ready;
using detail::next_event;
using detail::peer_of;
using detail::Step;

Id make_id() {
    return detail::make_id(make_channel());
}

/// Moves an id from the event channel of its listener to a new event channel.
Id migrate(Id id) {
    EventChannelHandle channel = make_channel();
    check_zero(rdma_migrate_id(id.get(), channel.get()), "rdma_migrate_id");
    // From here on, the events of the id arrive on the new channel. The deleter of the id keeps
    // this channel alive.
    return Id(id.release(), Id::deleter_type::holding(std::move(channel)));
}

Id resolve(sockaddr& address, const addrinfo* source, const RouteOptions& options,
           const Deadline& deadline) {
    Id id = make_id();
    Step step{"rdma_resolve_addr", to_string(address)};
    detail::begin_to_resolve(id, source, address, options, deadline.left());
    static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ADDR_RESOLVED}, deadline));
    step.function = "rdma_resolve_route";
    if (rdma_resolve_route(id.get(), as_int(deadline.left())) != 0) {
        throw failure(step, errno);
    }
    static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ROUTE_RESOLVED}, deadline));
    return id;
}

void accept_and_wait(const Id& id, const PreparedQueuePair& prepared, rdma_conn_param& param,
                     const Deadline& deadline) {
    const Step step{"rdma_accept", peer_of(id)};
    detail::explain_withdrawal(id, step.peer, [&] {
        make_ready(id, prepared);
        detail::offer_ece(id, prepared);
        if (rdma_accept(id.get(), &param) != 0) {
            throw failure(step, errno);
        }
        static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ESTABLISHED}, deadline));
    });
}

} // namespace

bool Connection::disconnected() {
    while (!disconnected_) {
        const Event event = next_event(id_->channel, std::chrono::milliseconds(0));
        if (event == nullptr) {
            break;
        }
        if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
            disconnected_ = true;
            // This call also replies to a disconnection request of the peer. An error is ignored,
            // because the connection has ended in any case.
            static_cast<void>(rdma_disconnect(id_.get()));
            qp_->abort();
        } else if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            disconnected_ = true;
        }
    }
    return disconnected_;
}

void Connection::disconnect(std::chrono::milliseconds timeout) {
    if (disconnected()) {
        return;
    }
    const Deadline deadline(timeout);
    const Step step{"rdma_disconnect", peer_of(id_)};
    const int error = rdma_disconnect(id_.get()) == 0 ? 0 : errno;
    qp_->abort();
    check_zero(error, step.function);
    static_cast<void>(await_event(
        id_->channel, step, {RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_DEVICE_REMOVAL}, deadline));
    disconnected_ = true;
}

ConnectionRequest::ConnectionRequest(Id id, const rdma_conn_param& offer)
    : id_(std::move(id)),
      private_data_(copy_private_data(offer)),
      served_by_peer_(offer.initiator_depth),
      started_by_peer_(offer.responder_resources) {}

Connection ConnectionRequest::accept(PreparedQueuePair prepared,
                                     std::span<const std::byte> private_data,
                                     std::chrono::milliseconds timeout) && {
    const Deadline deadline(timeout);
    check_private_data(private_data.size(), detail::accept_data_limit, "rdma_accept");
    check_prepared(prepared, id_, "rdma_accept");
    rdma_conn_param param = conn_param(prepared, private_data);
    param.responder_resources = std::min(param.responder_resources, started_by_peer_);
    param.initiator_depth = std::min(param.initiator_depth, served_by_peer_);

    Id id = std::move(id_);
    accept_and_wait(id, prepared, param, deadline);
    return {std::move(id), std::move(prepared).assume_connected(), std::move(private_data_)};
}

void ConnectionRequest::reject(std::string_view reason) && {
    check_private_data(reason.size(), detail::reject_data_limit, "rdma_reject");
    const Id id = std::move(id_);
    check_zero(rdma_reject(id.get(), reason.data(), static_cast<std::uint8_t>(reason.size())),
               "rdma_reject");
}

Listener::Listener(const std::string& host, std::uint16_t port, int backlog)
    : id_(detail::listen(host, port, backlog, make_id)) {}

std::uint16_t Listener::port() const {
    return ntohs(
        rdma_get_src_port(rdmabuf::detail::native_of(*this, "Listener::port", "Listener")));
}

ConnectionRequest Listener::next(std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    rdma_cm_id* const listening = rdmabuf::detail::native_of(*this, "Listener::next", "Listener");
    const Step step{"rdma_get_cm_event", to_string(*rdma_get_local_addr(listening))};
    while (Event event = next_event(listening->channel, deadline.left())) {
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            Id id(event->id, Id::deleter_type::holding(
                                 id_.get_deleter().parent<0>("Listener::next", "Listener")));
            ConnectionRequest request(std::move(id), event->param.conn);
            // The event is acknowledged now, because rdma_migrate_id(3) blocks until all events of
            // the id are acknowledged.
            event.reset();
            request.id_ = migrate(std::move(request.id_));
            return request;
        }
        if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            throw failure(step, *event);
        }
    }
    throw Error(ETIMEDOUT, step.function,
                "no peer connected to " + step.peer + " within " + deadline.describe());
}

Route::Route(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout,
             const RouteOptions& options) {
    const auto source = detail::local_addresses(options);
    const Deadline deadline(timeout);
    id_ = try_each(resolve_host(host, port), deadline,
                   [&](const addrinfo& each, const Deadline& part) {
                       return resolve(*each.ai_addr, source.get(), options, part);
                   });
}

Connection Route::connect(PreparedQueuePair prepared, std::span<const std::byte> private_data,
                          std::chrono::milliseconds timeout) && {
    const Deadline deadline(timeout);
    check_private_data(private_data.size(), detail::connect_data_limit, "rdma_connect");
    check_prepared(prepared, id_, "rdma_connect");
    rdma_conn_param param = conn_param(prepared, private_data);

    Id id = std::move(id_);
    const Step step{"rdma_connect", peer_of(id)};
    detail::offer_ece(id, prepared);
    if (rdma_connect(id.get(), &param) != 0) {
        throw failure(step, errno);
    }
    Event event = await_event(
        id->channel, step, {RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED}, deadline);
    std::vector<std::byte> reply = copy_private_data(event->param.conn);
    // On iWARP, the event is RDMA_CM_EVENT_ESTABLISHED: the kernel has already moved the queue pair
    // to RTS.
    const bool is_response = event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
    event.reset();
    if (is_response) {
        make_ready(id, prepared);
        check_zero(rdma_establish(id.get()), "rdma_establish");
    }
    return {std::move(id), std::move(prepared).assume_connected(), std::move(reply)};
}

} // namespace rdmabuf::cm
