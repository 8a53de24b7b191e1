// SPDX-License-Identifier: BSD-3-Clause
// Connections: ids, their event channels, and the events.
#include "connections.hpp"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "state.hpp"

using standin::CmEvent;
using standin::Kind;
using standin::state;

namespace {

struct Id;

struct Event : rdma_cm_event {
    CmEvent spec;
    /// Ids that cannot go, or move, before it is acknowledged: rdma_destroy_id(3),
    /// rdma_migrate_id(3).
    std::vector<Id*> holders;
};

struct EventChannel : rdma_event_channel {
    standin::Pipe pipe;
    std::deque<std::unique_ptr<Event>> waiting;
};

struct Id : rdma_cm_id {
    unsigned unacknowledged = 0;
};

struct Connections {
    ibv_context* device = nullptr;
    std::map<std::string, std::optional<CmEvent>, std::less<>> answers;
    std::map<rdma_cm_event*, std::unique_ptr<Event>> taken;
};

Connections& connections() {
    static Connections the_connections;
    return the_connections;
}

EventChannel& from(rdma_event_channel* native) {
    return static_cast<EventChannel&>(*native);
}
Id& from(rdma_cm_id* native) {
    return static_cast<Id&>(*native);
}

int fail_with(int error) {
    errno = error;
    return -1;
}

/// What most calls do: nothing, unless told to fail.
int enter(const char* function) {
    const auto guard = standin::lock();
    const int error = state().enter(function);
    return error == 0 ? 0 : fail_with(error);
}

void raise(rdma_cm_id* id, const CmEvent& spec) {
    auto event = std::make_unique<Event>();
    event->spec = spec;
    event->id = id;
    event->event = spec.type;
    event->status = spec.status;
    from(id->channel).waiting.push_back(std::move(event));
    // One byte for each event makes the descriptor readable.
    if (::write(from(id->channel).pipe.write_end, "", 1) != 1) {
        state().violation("raise_cm_event", "the event was not written");
    }
}

/// A step that ends with an event.
int begin(const char* function, rdma_cm_id* id, rdma_cm_event_type success) {
    if (enter(function) != 0) {
        return -1;
    }
    const auto guard = standin::lock();
    const auto answer = connections().answers.find(function);
    if (answer == connections().answers.end()) {
        raise(id, {.type = success});
    } else if (answer->second) {
        raise(id, *answer->second);
    }
    return 0;
}

Id* make_id(rdma_event_channel* channel) {
    Id* const id = state().make<Id>(Kind::cm_id, {&from(channel)});
    id->channel = channel;
    return id;
}

void find_device(rdma_cm_id& id) {
    id.verbs = connections().device;
    id.port_num = 1;
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

} // namespace

void standin::reset_connections(ibv_context* device) {
    const auto guard = lock();
    connections() = {};
    connections().device = device;
}

void standin::answer(std::string_view function, const CmEvent& event) {
    const auto guard = lock();
    connections().answers[std::string(function)] = event;
}

void standin::answer_nothing(std::string_view function) {
    const auto guard = lock();
    connections().answers[std::string(function)] = std::nullopt;
}

void standin::raise_cm_event(rdma_cm_id* id, const CmEvent& event) {
    const auto guard = lock();
    raise(id, event);
}

void standin::request_connection(rdma_cm_id* listener, std::string_view private_data) {
    raise_cm_event(listener, {.type = RDMA_CM_EVENT_CONNECT_REQUEST,
                              .private_data = std::string(private_data)});
}

rdma_event_channel* rdma_create_event_channel() {
    const auto guard = standin::lock();
    if (const int error = state().enter("rdma_create_event_channel"); error != 0) {
        return standin::fail(error);
    }
    auto* const channel = state().make<EventChannel>(Kind::event_channel, {});
    channel->fd = channel->pipe.read_end;
    return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    const auto guard = standin::lock();
    state().destroy(&from(channel), Kind::event_channel, "rdma_destroy_event_channel");
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space) {
    if (enter("rdma_create_id") != 0) {
        return -1;
    }
    const auto guard = standin::lock();
    *id = make_id(channel);
    (*id)->context = context;
    (*id)->ps = space;
    return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
    const auto guard = standin::lock();
    if (from(id).unacknowledged != 0) {
        state().violation("rdma_destroy_id", "would wait for events to be acknowledged");
    }
    const auto discarded = take_waiting(from(id->channel), id);
    const int error = state().destroy(&from(id), Kind::cm_id, "rdma_destroy_id");
    return error == 0 ? 0 : fail_with(error);
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
    if (enter("rdma_migrate_id") != 0) {
        return -1;
    }
    const auto guard = standin::lock();
    if (from(id).unacknowledged != 0) {
        state().violation("rdma_migrate_id", "would wait for events to be acknowledged");
    }
    const auto moving = take_waiting(from(id->channel), id);
    state().objects.at(&from(id)).parents = {&from(channel)};
    --state().objects.at(&from(id->channel)).users;
    ++state().objects.at(&from(channel)).users;
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

int rdma_establish(rdma_cm_id* /*id*/) {
    return enter("rdma_establish");
}

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask) {
    if (enter("rdma_init_qp_attr") != 0) {
        return -1;
    }
    attributes->port_num = id->port_num;
    attributes->max_dest_rd_atomic = 4;
    attributes->max_rd_atomic = 4;
    *mask = IBV_QP_STATE;
    if (attributes->qp_state == IBV_QPS_INIT) {
        *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
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
    const auto guard = standin::lock();
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
    ++state().unacknowledged;
    *result = event.get();
    errno = event->spec.left_errno;
    connections().taken[event.get()] = std::move(event);
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* native) {
    const auto guard = standin::lock();
    const auto event = connections().taken.find(native);
    if (event == connections().taken.end()) {
        state().violation("rdma_ack_cm_event", "not taken, or acknowledged before");
        return fail_with(EINVAL);
    }
    for (Id* const holder : event->second->holders) {
        --holder->unacknowledged;
    }
    --state().unacknowledged;
    connections().taken.erase(event);
    return 0;
}
