// SPDX-License-Identifier: BSD-3-Clause
// Implements the rdma_cm commands that establish and end connections, as the kernel's ib_cm and
// rdma_cm do.
#include <algorithm>
#include <cerrno>
#include <memory>

#include "cm/manager.hpp"
#include "cm/multicast.hpp"

namespace softverbs::cm {

namespace {

constexpr std::uint8_t max_retries = 7;
constexpr std::uint32_t qp_num_mask = 0xffffff;
constexpr std::uint8_t vendor_option_not_supported = 35;

} // namespace

// Functions for communication IDs and messages

Id* Manager::find_connection(std::uint32_t communication_id) const {
    const auto found = ids_.find(communication_id - 1);
    return found != ids_.end() && found->second->communication_id == communication_id
               ? found->second.get()
               : nullptr;
}

void Manager::forget_communication_id(Id& id) {
    exchange_.cancel(id.communication_id);
    id.communication_id = 0;
}

Message Manager::message(const Id& id, MessageType type) const {
    Message made{};
    made.magic = Message::current_magic;
    made.type = type;
    made.sender_id = id.communication_id;
    made.recipient_id = id.peer_communication_id;
    return made;
}

void Manager::send(const Id& id, const Message& message) {
    // If the message cannot be sent, it is lost, as on a network. The id then waits until its timer
    // expires or the peer's process ends.
    static_cast<void>(exchange_.send(id.peer, message));
}

void Manager::reply(const Peer& to, const Message& cause, MessageType type, std::uint8_t status) {
    Message made{};
    made.magic = Message::current_magic;
    made.type = type;
    made.status = status;
    made.sender_id = cause.recipient_id;
    made.recipient_id = cause.sender_id;
    static_cast<void>(exchange_.send(to, made));
}

// Commands of the program

int Manager::connect(Id& id, const rdma_ucm_conn_param& parameters, const rdma_ucm_ece& ece) {
    if (id.state != State::route_resolved) {
        return EINVAL;
    }
    const std::size_t room =
        (id.datagram() ? private_data::sidr_req : private_data::req) - id.private_data_offset();
    if (parameters.private_data_len > room) {
        return EINVAL;
    }
    id.state = State::connecting;
    id.qp_num = parameters.qp_num & qp_num_mask;
    id.receive_psn = random_psn();
    id.responder_resources = parameters.responder_resources;
    id.initiator_depth = parameters.initiator_depth;
    id.retry_count = std::min(parameters.retry_count, max_retries);
    id.rnr_retry_count = std::min(parameters.rnr_retry_count, max_retries);
    id.assign_communication_id();

    Message request = message(id, id.datagram() ? MessageType::sidr_req : MessageType::req);
    request.qp_type = static_cast<std::uint8_t>(id.qp_type);
    request.port_space = id.service_space(id.destination);
    request.mtu = static_cast<std::uint8_t>(id.route.mtu);
    request.flow_control = parameters.flow_control & 1U;
    request.source = wire(id.source);
    request.destination = wire(id.destination);
    request.sgid = id.route.sgid;
    request.dgid = id.route.dgid;
    request.slid = id.route.slid;
    request.dlid = id.route.dlid;
    request.qp_num = id.qp_num;
    request.psn = id.receive_psn;
    request.responder_resources = parameters.responder_resources;
    request.initiator_depth = parameters.initiator_depth;
    request.retry_count = id.retry_count;
    request.rnr_retry_count = id.rnr_retry_count;
    request.srq = parameters.srq != 0 ? 1 : 0;
    request.ece_vendor = ece.vendor_id;
    request.ece_options = ece.attr_mod;
    set_private_data(request, parameters.private_data, parameters.private_data_len);

    send_request(id, request);
    return 0;
}

int Manager::accept(Id& id, std::uint64_t uid, const rdma_ucm_conn_param& parameters,
                    const rdma_ucm_ece& ece) {
    if (id.state != State::connecting) {
        return EINVAL;
    }
    if (id.datagram()) {
        if (id.exchanged != Exchanged::sidr_req_received ||
            parameters.private_data_len > private_data::sidr_rep) {
            return EINVAL;
        }
        Message made = message(id, MessageType::sidr_rep);
        made.status = sidr::success;
        made.qp_num = parameters.qp_num & qp_num_mask;
        const bool own_key = id.source.family() == family_ib && parameters.qkey != 0;
        made.qkey = own_key ? parameters.qkey : queue_key(id.port_space);
        set_private_data(made, parameters.private_data, parameters.private_data_len);
        id.uid = parameters.valid != 0 ? uid : id.uid;
        id.exchanged = Exchanged::sidr_rep_sent;
        send(id, made);
        return 0;
    }
    if (parameters.valid == 0) { // The active side has made its queue pair ready: send the RTU.
        if (id.exchanged != Exchanged::rep_received) {
            return EINVAL;
        }
        id.exchanged = Exchanged::established;
        send(id, message(id, MessageType::rtu));
        return 0;
    }
    if (id.exchanged != Exchanged::req_received ||
        parameters.private_data_len > private_data::rep) {
        return EINVAL;
    }
    id.uid = uid;
    id.qp_num = parameters.qp_num & qp_num_mask;
    id.responder_resources = parameters.responder_resources;
    id.initiator_depth = parameters.initiator_depth;
    Message made = message(id, MessageType::rep);
    made.qp_num = id.qp_num;
    made.psn = id.receive_psn;
    made.responder_resources = parameters.responder_resources;
    made.initiator_depth = parameters.initiator_depth;
    made.flow_control = parameters.flow_control & 1U;
    made.rnr_retry_count = std::min(parameters.rnr_retry_count, max_retries);
    made.srq = parameters.srq != 0 ? 1 : 0;
    made.ece_vendor = ece.vendor_id;
    made.ece_options = ece.attr_mod;
    set_private_data(made, parameters.private_data, parameters.private_data_len);
    id.exchanged = Exchanged::rep_sent;
    set_deadline(id, max_attempts * timeout_ns(response_timeout_));
    send(id, made);
    return 0;
}

int Manager::reject(Id& id, const rdma_ucm_reject& command) {
    const std::uint8_t reason = command.reason != 0 ? command.reason : reject::consumer_defined;
    if ((reason != reject::consumer_defined && reason != vendor_option_not_supported) ||
        command.private_data_len > private_data::rej) {
        return EINVAL;
    }
    if (id.datagram()) {
        if (id.exchanged != Exchanged::sidr_req_received ||
            command.private_data_len > private_data::sidr_rep) {
            return EINVAL;
        }
        Message made = message(id, MessageType::sidr_rep);
        made.status = sidr::rejected;
        set_private_data(made, command.private_data, command.private_data_len);
        id.exchanged = Exchanged::nothing;
        send(id, made);
        return 0;
    }
    if (!id.in_handshake()) {
        return EINVAL;
    }
    Message made = message(id, MessageType::rej);
    made.status = reason;
    set_private_data(made, command.private_data, command.private_data_len);
    clear_deadline(id);
    id.exchanged = Exchanged::nothing;
    send(id, made);
    return 0;
}

int Manager::disconnect(Id& id) {
    if (id.communication_id == 0) {
        return EINVAL;
    }
    if (id.exchanged == Exchanged::established) {
        id.exchanged = Exchanged::dreq_sent;
        set_deadline(id, max_attempts * timeout_ns(response_timeout_));
        send(id, message(id, MessageType::dreq));
    } else if (id.exchanged == Exchanged::dreq_received) {
        if (id.disconnect_waits_until != 0) {
            id.disconnect_waits_until = 0;
            id.state = State::disconnected;
            raise(id, EventType::disconnected);
        }
        id.exchanged = Exchanged::timewait;
        set_deadline(id, timeout_ns(timewait_timeout));
        send(id, message(id, MessageType::drep));
    }
    return 0;
}

int Manager::notify(Id& id, std::uint32_t event) {
    if (id.communication_id == 0 || event != IBV_EVENT_COMM_EST) {
        return EINVAL;
    }
    if (id.exchanged == Exchanged::established) {
        return EISCONN;
    }
    if (id.exchanged != Exchanged::rep_sent) {
        return EINVAL;
    }
    clear_deadline(id);
    id.exchanged = Exchanged::established;
    raise(id, EventType::established);
    return 0;
}

// Functions that find the listener for a connection request, on this host or on another host

namespace {

/// How many times softverbs searches, every 20 ms, for a process that listens at the destination of
/// a connection request. Then the request fails. Servers such as perftest need this time: they call
/// rdma_listen() again for each connection. With a NIC, they do so before the next request arrives;
/// with softverbs, the request may arrive earlier.
constexpr unsigned service_lookups = 10;
constexpr std::uint64_t service_lookup_interval_ns = 20'000'000;

} // namespace

Id* Manager::find_listener(const Message& message) {
    const Address destination = unwire(message.destination, message.port_space);
    Id* best = nullptr;
    for (const auto& [handle, id] : ids_) {
        if (id->state == State::listening && id->source.port() == destination.port() &&
            id->service_space(id->source) == message.port_space &&
            accepts(id->source, id->family_only.value_or(false), destination) &&
            (best == nullptr || best->source.is_unspecified())) {
            best = id.get();
        }
    }
    return best;
}

void Manager::send_request(Id& id, const Message& request) {
    if (id.route.remote) {
        send_request_to_host(id, request);
        return;
    }
    const auto peer = registry_.find(request.port_space, id.destination);
    if (peer && exchange_.send(*peer, request) == 0) {
        request_sent(request.sender_id, *peer);
    } else {
        look_up_again(id, request);
    }
}

void Manager::look_up_again(Id& id, const Message& request) {
    if (++id.lookups < service_lookups) {
        id.unsent_request = std::make_unique<Message>(request);
        set_deadline(id, service_lookup_interval_ns);
        return;
    }
    // No process listens at the destination of the request. Raise the same event as if another host
    // had rejected the request.
    forget_communication_id(id);
    raise(id, id.datagram() ? make_event(EventType::unreachable, sidr::unsupported)
                            : rejected(reject::invalid_service_id, nullptr));
}

void Manager::send_request_to_host(Id& id, const Message& request) {
    const fabric::Route route{{id.route.sgid}, {id.route.dgid}};
    set_deadline(id, max_attempts * timeout_ns(response_timeout_));
    if (exchange_.request(route, request) != 0) {
        look_up_again(id, request);
    }
    wake(); // the thread waits for a later timer than that of the query
}

std::optional<Peer> Manager::find_service(std::uint16_t port_space, const WireAddress& address) {
    return registry_.find(port_space, unwire(address, port_space));
}

void Manager::request_sent(std::uint32_t communication_id, const Peer& peer) {
    if (Id* const id = find_connection(communication_id); id != nullptr) {
        id->peer = peer;
        id->exchanged = id->datagram() ? Exchanged::sidr_req_sent : Exchanged::req_sent;
        set_deadline(*id, max_attempts * timeout_ns(response_timeout_));
    }
}

void Manager::no_service(const Message& request) {
    if (Id* const id = find_connection(request.sender_id); id != nullptr) {
        clear_deadline(*id);
        look_up_again(*id, request);
    }
}

void Manager::request_refused(std::uint32_t communication_id) {
    if (Id* const id = find_connection(communication_id); id != nullptr) {
        clear_deadline(*id);
        raise(*id, EventType::unreachable, -EACCES);
    }
}

} // namespace softverbs::cm
