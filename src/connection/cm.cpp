// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "connection/cm_event.hpp"
#include "connection/host_address.hpp"

namespace rdmabuf::cm {

using rdmabuf::detail::check_pointer;
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

using detail::await_event;
using detail::Event;
using detail::EventChannel;
using detail::failure;
using detail::Id;
using detail::next_event;
using detail::Step;

// rdma_connect(3) and rdma_accept(3), and for rejections IB_CM_REJ_PRIVATE_DATA_SIZE in
// include/rdma/ib_cm.h.
constexpr std::size_t connect_data_limit = 56;
constexpr std::size_t accept_data_limit = 196;
constexpr std::size_t reject_data_limit = 148;

EventChannel make_channel() {
    errno = 0;
    rdma_event_channel* const raw = rdma_create_event_channel();
    if (raw == nullptr && (errno == ENOENT || errno == EPERM)) {
        throw Error(ENODEV, "rdma_create_event_channel",
                    "there is no usable /dev/infiniband/rdma_cm: load the kernel module rdma_ucm "
                    "(and give a container the device)");
    }
    check_pointer(raw, "rdma_create_event_channel", [](int error) {
        return error == ENODEV ? "this machine has no RDMA device" : "/dev/infiniband/rdma_cm";
    });
    EventChannel channel(EventChannel::unique(raw, {}));
    rdmabuf::detail::make_nonblocking(raw->fd);
    return channel;
}

Id make_id() {
    EventChannel channel = make_channel();
    rdma_cm_id* raw = nullptr;
    check_zero(rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP), "rdma_create_id");
    return Id(raw, Id::deleter_type::holding(std::move(channel)));
}

/// Gives an id of another channel a channel of its own.
Id migrate(Id id) {
    EventChannel channel = make_channel();
    check_zero(rdma_migrate_id(id.get(), channel.get()), "rdma_migrate_id");
    // From here on the new channel must not go before the id.
    return Id(id.release(), Id::deleter_type::holding(std::move(channel)));
}

int as_int(std::chrono::milliseconds time) noexcept {
    constexpr int longest = std::numeric_limits<int>::max();
    return time.count() < 0 || time.count() > longest ? longest : static_cast<int>(time.count());
}

std::vector<std::byte> copy_private_data(const rdma_conn_param& param) {
    const auto* const begin = static_cast<const std::byte*>(param.private_data);
    return begin == nullptr ? std::vector<std::byte>()
                            : std::vector<std::byte>(begin, begin + param.private_data_len);
}

void check_private_data(std::size_t size, std::size_t limit, const char* function) {
    if (size > limit) {
        throw Error(EMSGSIZE, function,
                    "private data have up to " + std::to_string(limit) + " bytes here, not " +
                        std::to_string(size));
    }
}

void check_prepared(const PreparedQueuePair& prepared, const Id& id, const char* function) {
    const ibv_qp* const qp = rdmabuf::detail::native_of(prepared, function, "PreparedQueuePair");
    if (qp->context != id->verbs) {
        throw Error(EINVAL, function,
                    "the queue pair was prepared on another context: make its protection domain on "
                    "the context() of this object, even where that is the same device");
    }
    if (prepared.address().type != QueuePairType::reliable_connected) {
        throw Error(EINVAL, function,
                    std::string("the queue pair is ") +
                        rdmabuf::to_string(prepared.address().type) +
                        "; librdmacm's TCP port space connects RC ones");
    }
}

struct QpChange {
    ibv_qp_attr attributes{};
    int mask = 0;
};

/// What the connection wants of a queue pair in @p state. rdma_init_qp_attr(3).
QpChange change_to(const Id& id, ibv_qp_state state) {
    QpChange change;
    change.attributes.qp_state = state;
    check_zero(rdma_init_qp_attr(id.get(), &change.attributes, &change.mask), "rdma_init_qp_attr");
    return change;
}

void apply(const PreparedQueuePair& prepared, QpChange change, const char* hint) {
    check_zero(ibv_modify_qp(prepared.native(), &change.attributes, change.mask), "ibv_modify_qp",
               std::string_view(hint));
}

/// Takes a prepared queue pair to RTS on the path of @p id. What concerns only this side is what it
/// was prepared with; librdmacm would have peers wait 655 ms for a receive (rdma_connect(3)).
void make_ready(const Id& id, const PreparedQueuePair& prepared) {
    const PreparedQueuePair::Connection& own = prepared.connection();

    QpChange init = change_to(id, IBV_QPS_INIT);
    init.mask &= IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    apply(prepared, init, "to INIT, on the connection's port");

    QpChange receive = change_to(id, IBV_QPS_RTR);
    receive.attributes.min_rnr_timer = own.min_rnr_timer;
    receive.attributes.max_dest_rd_atomic =
        std::min(receive.attributes.max_dest_rd_atomic, prepared.address().max_dest_rd_atomic);
    apply(prepared, receive, "to RTR, on the connection's path");

    QpChange send = change_to(id, IBV_QPS_RTS);
    send.attributes.timeout = own.timeout;
    send.attributes.retry_cnt = own.retry_count;
    send.attributes.rnr_retry = own.rnr_retry;
    send.attributes.max_rd_atomic = std::min(send.attributes.max_rd_atomic, own.max_rd_atomic);
    apply(prepared, send, "to RTS");
}

rdma_conn_param conn_param(const PreparedQueuePair& prepared,
                           std::span<const std::byte> private_data) {
    rdma_conn_param param{};
    param.private_data = private_data.data();
    param.private_data_len = static_cast<std::uint8_t>(private_data.size());
    param.responder_resources = prepared.address().max_dest_rd_atomic;
    param.initiator_depth = prepared.connection().max_rd_atomic;
    param.retry_count = prepared.connection().retry_count;
    param.rnr_retry_count = prepared.connection().rnr_retry;
    param.srq = prepared.native()->srq != nullptr ? 1 : 0;
    param.qp_num = prepared.native()->qp_num;
    return param;
}

std::string peer_of(const Id& id) {
    return to_string(*rdma_get_peer_addr(id.get()));
}

Id listen_at(sockaddr& address, int backlog) {
    Id id = make_id();
    const auto check = [&](int result, const char* function) {
        if (result != 0) {
            throw failure(Step{function, to_string(address)}, errno);
        }
    };
    int this_family_only = 0;
    check(rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &this_family_only,
                          sizeof this_family_only),
          "rdma_set_option");
    check(rdma_bind_addr(id.get(), &address), "rdma_bind_addr");
    check(rdma_listen(id.get(), backlog), "rdma_listen");
    return id;
}

Id listen_at_all(std::uint16_t port, int backlog) {
    try {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_port = htons(port);
        return listen_at(reinterpret_cast<sockaddr&>(address), backlog);
    } catch (const Error& error) {
        // A kernel without IPv6.
        if (error.error() != EAFNOSUPPORT && error.error() != EADDRNOTAVAIL) {
            throw;
        }
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    return listen_at(reinterpret_cast<sockaddr&>(address), backlog);
}

Id resolve(sockaddr& address, const Deadline& deadline) {
    Id id = make_id();
    Step step{"rdma_resolve_addr", to_string(address)};
    if (rdma_resolve_addr(id.get(), nullptr, &address, as_int(deadline.left())) != 0) {
        throw failure(step, errno);
    }
    static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ADDR_RESOLVED}, deadline));
    step.function = "rdma_resolve_route";
    if (rdma_resolve_route(id.get(), as_int(deadline.left())) != 0) {
        throw failure(step, errno);
    }
    static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ROUTE_RESOLVED}, deadline));
    return id;
}

/// Whether the peer has withdrawn its request. No event says so before it is accepted
/// (drivers/infiniband/core/ucma.c, ucma_event_handler), but the kernel has no path to it any more.
bool has_given_up(const Id& id) noexcept {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    int mask = 0;
    return rdma_init_qp_attr(id.get(), &attributes, &mask) != 0 && errno == EINVAL;
}

void accept_and_wait(const Id& id, const PreparedQueuePair& prepared, rdma_conn_param& param,
                     const Deadline& deadline) {
    const Step step{"rdma_accept", peer_of(id)};
    try {
        make_ready(id, prepared);
        if (rdma_accept(id.get(), &param) != 0) {
            throw failure(step, errno);
        }
        static_cast<void>(await_event(id->channel, step, {RDMA_CM_EVENT_ESTABLISHED}, deadline));
    } catch (const Error& error) {
        // An acceptance is not rejected by somebody who still wants it.
        if (error.error() == ECONNREFUSED || (error.error() == EINVAL && has_given_up(id))) {
            throw Error(ECONNRESET, step.function, step.peer + " gave up before it was accepted");
        }
        throw;
    }
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
            // Fails only when there is nobody left to answer.
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
    check_private_data(private_data.size(), accept_data_limit, "rdma_accept");
    check_prepared(prepared, id_, "rdma_accept");
    rdma_conn_param param = conn_param(prepared, private_data);
    param.responder_resources = std::min(param.responder_resources, started_by_peer_);
    param.initiator_depth = std::min(param.initiator_depth, served_by_peer_);

    Id id = std::move(id_);
    accept_and_wait(id, prepared, param, deadline);
    return {std::move(id), std::move(prepared).assume_connected(), std::move(private_data_)};
}

void ConnectionRequest::reject(std::string_view reason) && {
    check_private_data(reason.size(), reject_data_limit, "rdma_reject");
    const Id id = std::move(id_);
    check_zero(rdma_reject(id.get(), reason.data(), static_cast<std::uint8_t>(reason.size())),
               "rdma_reject");
}

Listener::Listener(const std::string& host, std::uint16_t port, int backlog)
    : id_(host.empty() ? listen_at_all(port, backlog)
                       : try_each(resolve_host(host, port), Deadline(std::chrono::milliseconds(0)),
                                  [&](const addrinfo& each, const Deadline&) {
                                      return listen_at(*each.ai_addr, backlog);
                                  })) {}

std::uint16_t Listener::port() const noexcept {
    return ntohs(rdma_get_src_port(id_.get()));
}

ConnectionRequest Listener::next(std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    const Step step{"rdma_get_cm_event", to_string(*rdma_get_local_addr(id_.get()))};
    while (Event event = next_event(id_->channel, deadline.left())) {
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            Id id(event->id, Id::deleter_type::holding(
                                 id_.get_deleter().parent<0>("Listener::next", "Listener")));
            ConnectionRequest request(std::move(id), event->param.conn);
            // rdma_migrate_id(3) waits for it.
            event.reset();
            request.id_ = migrate(std::move(request.id_));
            return request;
        }
        if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
            throw failure(step, *event);
        }
    }
    throw Error(ETIMEDOUT, step.function,
                "nobody connected to " + step.peer + " within " + deadline.describe());
}

Route::Route(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    id_ = try_each(
        resolve_host(host, port), deadline,
        [](const addrinfo& each, const Deadline& part) { return resolve(*each.ai_addr, part); });
}

Connection Route::connect(PreparedQueuePair prepared, std::span<const std::byte> private_data,
                          std::chrono::milliseconds timeout) && {
    const Deadline deadline(timeout);
    check_private_data(private_data.size(), connect_data_limit, "rdma_connect");
    check_prepared(prepared, id_, "rdma_connect");
    rdma_conn_param param = conn_param(prepared, private_data);

    Id id = std::move(id_);
    const Step step{"rdma_connect", peer_of(id)};
    if (rdma_connect(id.get(), &param) != 0) {
        throw failure(step, errno);
    }
    Event event = await_event(
        id->channel, step, {RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED}, deadline);
    std::vector<std::byte> reply = copy_private_data(event->param.conn);
    // On iWARP the kernel has done the rest already, and says so.
    const bool is_response = event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
    event.reset();
    if (is_response) {
        make_ready(id, prepared);
        check_zero(rdma_establish(id.get()), "rdma_establish");
    }
    return {std::move(id), std::move(prepared).assume_connected(), std::move(reply)};
}

} // namespace rdmabuf::cm
