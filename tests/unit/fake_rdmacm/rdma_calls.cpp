// SPDX-License-Identifier: BSD-3-Clause
// The rdma_* functions: ids, their event channels, and the events.
#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "state.hpp"

using fake_rdmacm::begin_step;
using fake_rdmacm::enter;
using fake_rdmacm::Event;
using fake_rdmacm::EventChannel;
using fake_rdmacm::fail_with;
using fake_rdmacm::find_device;
using fake_rdmacm::from;
using fake_rdmacm::Id;
using fake_rdmacm::make_id;
using fake_rdmacm::raise;
using fake_rdmacm::state;

namespace {

/// A step that ends with an event.
int begin(const char* function, rdma_cm_id* id, rdma_cm_event_type success) {
    if (enter(function) != 0) {
        return -1;
    }
    const auto guard = fake_rdmacm::lock();
    begin_step(function, id, success);
    return 0;
}

void copy_address(void* to, const sockaddr& address) {
    std::memcpy(to, &address,
                address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

/// Takes what has not been given out of @p id's events from @p channel.
std::deque<std::unique_ptr<Event>> take_waiting(EventChannel& channel, const rdma_cm_id* id) {
    std::deque<std::unique_ptr<Event>> taken;
    for (auto& event : channel.waiting) {
        char byte = 0;
        if (event->id == id && ::read(channel.pipe.read_end, &byte, 1) == 1) {
            taken.push_back(std::move(event));
        }
    }
    std::erase(channel.waiting, nullptr);
    return taken;
}

void set_parameters(Event& event) {
    rdma_conn_param& param = event.param.conn;
    const std::string& data = event.spec.private_data;
    param.private_data = data.empty() ? nullptr : data.data();
    param.private_data_len = static_cast<std::uint8_t>(data.size());
    param.responder_resources = 4;
    param.initiator_depth = 4;
}

/// Where the peer would be that there is not.
ibv_ah_attr address_of_nobody(std::uint8_t port) {
    ibv_ah_attr address{};
    address.is_global = 1;
    address.port_num = port;
    address.grh.hop_limit = 64;
    address.grh.sgid_index = 1;
    ::inet_pton(AF_INET6, "::ffff:192.0.2.9", address.grh.dgid.raw);
    return address;
}

void forget(const char* kind) {
    if (state().witness) {
        state().witness(kind);
    }
}

} // namespace

rdma_event_channel* rdma_create_event_channel() {
    if (enter("rdma_create_event_channel") != 0) {
        return nullptr;
    }
    const auto guard = fake_rdmacm::lock();
    auto channel = std::make_unique<EventChannel>();
    channel->fd = channel->pipe.read_end;
    state().channels.insert(channel.get());
    return channel.release();
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    const auto guard = fake_rdmacm::lock();
    EventChannel& whole = from(channel);
    if (!state().channels.contains(&whole)) {
        state().violation("rdma_destroy_event_channel", "not there, or destroyed before");
        return;
    }
    if (whole.ids != 0) {
        state().violation("rdma_destroy_event_channel",
                          "still used by " + std::to_string(whole.ids));
        return;
    }
    state().channels.erase(&whole);
    const std::unique_ptr<EventChannel> owner(&whole);
    forget("event_channel");
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space) {
    if (enter("rdma_create_id") != 0) {
        return -1;
    }
    const auto guard = fake_rdmacm::lock();
    *id = make_id(channel);
    (*id)->context = context;
    (*id)->ps = space;
    return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
    const auto guard = fake_rdmacm::lock();
    Id& whole = from(id);
    if (!state().ids.contains(&whole)) {
        state().violation("rdma_destroy_id", "not there, or destroyed before");
        return fail_with(EINVAL);
    }
    if (whole.unacknowledged != 0) {
        state().violation("rdma_destroy_id", "would wait for events to be acknowledged");
    }
    const auto discarded = take_waiting(from(id->channel), id);
    --from(id->channel).ids;
    state().ids.erase(&whole);
    const std::unique_ptr<Id> owner(&whole);
    forget("cm_id");
    return 0;
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
    if (enter("rdma_migrate_id") != 0) {
        return -1;
    }
    const auto guard = fake_rdmacm::lock();
    if (from(id).unacknowledged != 0) {
        state().violation("rdma_migrate_id", "would wait for events to be acknowledged");
    }
    const auto moving = take_waiting(from(id->channel), id);
    --from(id->channel).ids;
    ++from(channel).ids;
    id->channel = channel;
    for (const auto& event : moving) {
        raise(id, event->spec);
    }
    return 0;
}

int rdma_set_option(rdma_cm_id* /*id*/, int /*level*/, int /*option*/, void* /*value*/,
                    std::size_t /*size*/) {
    return enter("rdma_set_option");
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
    if (enter("rdma_bind_addr") != 0) {
        return -1;
    }
    copy_address(&id->route.addr.src_storage, *address);
    if (rdma_get_src_port(id) == 0) {
        // At the same place in both families.
        id->route.addr.src_sin.sin_port = htons(40000);
    }
    find_device(*id);
    return 0;
}

int rdma_listen(rdma_cm_id* /*id*/, int /*backlog*/) {
    return enter("rdma_listen");
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* /*source*/, sockaddr* destination,
                      int /*milliseconds*/) {
    copy_address(&id->route.addr.dst_storage, *destination);
    find_device(*id);
    return begin("rdma_resolve_addr", id, RDMA_CM_EVENT_ADDR_RESOLVED);
}

int rdma_resolve_route(rdma_cm_id* id, int /*milliseconds*/) {
    return begin("rdma_resolve_route", id, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* /*param*/) {
    return begin("rdma_connect", id, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* /*param*/) {
    return begin("rdma_accept", id, RDMA_CM_EVENT_ESTABLISHED);
}

int rdma_disconnect(rdma_cm_id* id) {
    return begin("rdma_disconnect", id, RDMA_CM_EVENT_DISCONNECTED);
}

int rdma_reject(rdma_cm_id* /*id*/, const void* /*private_data*/, std::uint8_t /*size*/) {
    return enter("rdma_reject");
}

int rdma_set_local_ece(rdma_cm_id* /*id*/, ibv_ece* /*ece*/) {
    return enter("rdma_set_local_ece");
}
/// The peer has no ECE.
int rdma_get_remote_ece(rdma_cm_id* /*id*/, ibv_ece* ece) {
    *ece = {};
    return enter("rdma_get_remote_ece");
}

int rdma_establish(rdma_cm_id* /*id*/) {
    return enter("rdma_establish");
}

// All that the state asks of a reliable queue pair, as the kernel's: cm_init_qp_init_attr() and its
// like.
int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
    if (enter("rdma_init_qp_attr") != 0) {
        return -1;
    }
    *mask = IBV_QP_STATE;
    switch (attributes->qp_state) {
        case IBV_QPS_INIT:
            attributes->port_num = id->port_num;
            attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
            *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            break;
        case IBV_QPS_RTR:
            attributes->ah_attr = address_of_nobody(id->port_num);
            attributes->path_mtu = IBV_MTU_1024;
            attributes->dest_qp_num = 9;
            attributes->rq_psn = 9;
            attributes->max_dest_rd_atomic = 4;
            attributes->min_rnr_timer = 0;
            *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            break;
        case IBV_QPS_RTS:
            attributes->sq_psn = 9;
            attributes->timeout = 14;
            attributes->retry_cnt = 7;
            attributes->rnr_retry = 7;
            attributes->max_rd_atomic = 4;
            *mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MAX_QP_RD_ATOMIC;
            break;
        default:
            return fail_with(EINVAL);
    }
    return 0;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** result) {
    if (enter("rdma_get_cm_event") != 0) {
        return -1;
    }
    char byte = 0;
    // Waits, or not, as the descriptor's flags say.
    if (::read(channel->fd, &byte, 1) != 1) {
        return -1;
    }
    const auto guard = fake_rdmacm::lock();
    std::unique_ptr<Event> event = std::move(from(channel).waiting.front());
    from(channel).waiting.pop_front();
    set_parameters(*event);
    event->holders = {&from(event->id)};
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        event->listen_id = event->id;
        event->id = make_id(channel);
        find_device(*event->id);
        event->id->route.addr = event->listen_id->route.addr;
        event->id->route.addr.dst_addr = event->listen_id->route.addr.src_addr;
        event->holders.push_back(&from(event->id));
    }
    for (Id* const holder : event->holders) {
        ++holder->unacknowledged;
    }
    *result = event.get();
    const int left_errno = event->spec.left_errno;
    state().taken[event.get()] = std::move(event);
    errno = left_errno;
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* native) {
    const auto guard = fake_rdmacm::lock();
    const auto event = state().taken.find(native);
    if (event == state().taken.end()) {
        state().violation("rdma_ack_cm_event", "not taken, or acknowledged before");
        return fail_with(EINVAL);
    }
    for (Id* const holder : event->second->holders) {
        --holder->unacknowledged;
    }
    state().taken.erase(event);
    return 0;
}
