// SPDX-License-Identifier: BSD-3-Clause
// Implements the establishment and the end of connections, with the messages of the InfiniBand
// connection manager, as the kernel's ib_cm and rdma_cm do.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "cm/manager.hpp"
#include "cm/multicast.hpp"
#include "cm/queue_pair_attributes.hpp"
#include "cm/routes.hpp"
#include "fabric/clock.hpp"
#include "fabric/random.hpp"
#include "objects/process.hpp"
#include "objects/unpolled_completions.hpp"

namespace softverbs::cm {

namespace {

constexpr unsigned attempts = 16; // the first one and the kernel's CMA_MAX_CM_RETRIES
/// Timeout exponent in an MRA message: 4.096 µs * 2^24, about 69 seconds. The value is that of
/// CMA_CM_MRA_SETTING in the kernel.
constexpr unsigned mra_timeout = 24;
/// Timeout exponent of the timewait state: after a connection has ended, its packets may arrive for
/// 4.096 µs * 2^17, about 0.5 seconds.
constexpr unsigned timewait_timeout = 17;
constexpr std::uint8_t max_retries = 7;
/// If no process listens for a request, the service is looked up again every 20 ms, up to 0.2
/// seconds in total. Only then is the request rejected. Servers such as perftest need this: they
/// call rdma_listen() again for each connection, shortly before the next request arrives from a
/// network.
constexpr unsigned service_lookups = 10;
constexpr std::uint64_t service_lookup_interval_ns = 20'000'000;
constexpr std::uint32_t psn_mask = 0xffffff;
constexpr std::uint32_t qp_num_mask = 0xffffff;
constexpr std::uint8_t vendor_option_not_supported = 35;
/// Maximum duration and interval of the checks for unpolled completions in
/// Manager::report_disconnect().
constexpr std::uint64_t longest_disconnect_wait_ns = 200'000'000;
constexpr std::uint64_t disconnect_check_interval_ns = 500'000;

/// Converts a timeout exponent to nanoseconds: 4.096 µs * 2^exponent.
constexpr std::uint64_t timeout_ns(unsigned exponent) noexcept {
    return std::uint64_t{4096} << exponent;
}

std::uint32_t random_psn() noexcept {
    return fabric::random_number(std::uint32_t{1}) & psn_mask;
}

WireAddress wire(const Address& address) noexcept {
    return {address.gid(), address.family(), address.port()};
}

Address unwire(const WireAddress& wire, std::uint16_t port_space) {
    Address address = Address::from_gid(wire.address, wire.family);
    address.set_service_port_space(port_space);
    address.set_port(wire.port);
    return address;
}

void set_private_data(Message& message, const std::uint8_t* data, std::size_t size) noexcept {
    message.private_data_size = static_cast<std::uint8_t>(size);
    std::memcpy(message.private_data.data(), data, size);
}

/// Copies the private data of a message to an event. As in the kernel, the length in the event is
/// @p size, the size of the private data field in this type of message.
template <class Parameters>
void get_private_data(Parameters& parameters, const Message& message, std::size_t size) noexcept {
    const std::size_t given = std::min<std::size_t>(message.private_data_size, size);
    std::memcpy(parameters.private_data, message.private_data.data(), given);
    parameters.private_data_len = static_cast<std::uint8_t>(size);
}

/// Returns the port space of a service. For an InfiniBand address, the service ID contains the port
/// space. For other addresses, it is the port space of the id.
std::uint16_t service_space(const Id& id, const Address& address) noexcept {
    const std::uint16_t named = address.service_port_space();
    return named != 0 ? named : id.port_space;
}

/// Returns whether the source addresses in a request are those of the host of the sender. For a
/// sender on this host, they must be addresses of this host.
bool has_own_source(const Peer& from, const Message& request, const Address& source) {
    if (from.host != Gid{}) {
        return request.sgid == from.host && request.source.address == from.host;
    }
    int error = 0;
    return has_device_gid(request.sgid) &&
           (request.sgid == request.source.address || find_device(source, error) != nullptr);
}

Event make_event(EventType type, int status = 0) {
    Event event;
    event.response.event = static_cast<std::uint32_t>(type);
    event.response.status = static_cast<std::uint32_t>(status);
    return event;
}

Event rejected(std::uint8_t reason, const Message* message) {
    Event event = make_event(EventType::rejected, reason);
    event.response.param.conn.private_data_len = private_data::rej;
    if (message != nullptr) {
        get_private_data(event.response.param.conn, *message, private_data::rej);
    }
    return event;
}

} // namespace

// Communication IDs, and sending of messages

void Manager::assign_communication_id(Id& id) {
    while (next_communication_id_ == 0 || by_communication_id_.contains(next_communication_id_)) {
        ++next_communication_id_;
    }
    id.communication_id = next_communication_id_++;
    by_communication_id_[id.communication_id] = &id;
}

void Manager::forget_communication_id(Id& id) {
    if (id.communication_id != 0) {
        if (id.searching) {
            network_->cancel(id.communication_id);
            id.searching = false;
        }
        by_communication_id_.erase(id.communication_id);
        id.communication_id = 0;
    }
}

Message Manager::message(const Id& id, MessageType type) const {
    Message made{};
    made.magic = Message::current_magic;
    made.type = type;
    made.sender_id = id.communication_id;
    made.recipient_id = id.peer_communication_id;
    return made;
}

Exchange& Manager::exchange_with(const Peer& peer) noexcept {
    return peer.host != Gid{} && network_ != nullptr ? static_cast<Exchange&>(*network_)
                                                     : *exchange_;
}

void Manager::send(const Id& id, const Message& message) {
    // If the message cannot be sent, it is lost, as on a network. The id then waits until its timer
    // expires or the peer's process ends.
    static_cast<void>(exchange_with(id.peer).send(id.peer, message));
}

void Manager::reply(const Peer& to, const Message& cause, MessageType type, std::uint8_t status) {
    Message made{};
    made.magic = Message::current_magic;
    made.type = type;
    made.status = status;
    made.sender_id = cause.recipient_id;
    made.recipient_id = cause.sender_id;
    static_cast<void>(exchange_with(to).send(to, made));
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
    assign_communication_id(id);

    Message request = message(id, id.datagram() ? MessageType::sidr_req : MessageType::req);
    request.qp_type = static_cast<std::uint8_t>(id.qp_type);
    request.port_space = service_space(id, id.destination);
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

void Manager::send_request(Id& id, const Message& request) {
    if (id.route.remote) {
        send_request_to_host(id, request);
        return;
    }
    const auto peer = registry_->find(request.port_space, id.destination);
    if (peer) {
        id.peer = *peer;
    }
    if (peer && exchange_->send(*peer, request) == 0) {
        id.exchanged = id.datagram() ? Exchanged::sidr_req_sent : Exchanged::req_sent;
        set_deadline(id, attempts * timeout_ns(response_timeout_));
        return;
    }
    look_up_again(id, request);
}

void Manager::look_up_again(Id& id, const Message& request) {
    if (++id.lookups < service_lookups) {
        id.unsent_request = std::make_unique<Message>(request);
        set_deadline(id, service_lookup_interval_ns);
        return;
    }
    // No process listens for the request. Raise the event that a rejection by a remote host would
    // raise.
    forget_communication_id(id);
    raise(id, id.datagram() ? make_event(EventType::unreachable, sidr::unsupported)
                            : rejected(reject::invalid_service_id, nullptr));
}

void Manager::send_request_to_host(Id& id, const Message& request) {
    const fabric::Route route{host_of(id.route.sgid), host_of(id.route.dgid)};
    id.searching = true;
    set_deadline(id, attempts * timeout_ns(response_timeout_));
    if (network_->request(route, request) != 0) {
        id.searching = false;
        look_up_again(id, request);
    }
}

// Searches for services of other hosts

std::optional<Peer> Manager::find_service(std::uint16_t port_space, const WireAddress& address) {
    return registry_->find(port_space, unwire(address, port_space));
}

void Manager::request_sent(std::uint32_t communication_id, const Peer& peer) {
    if (const auto found = by_communication_id_.find(communication_id);
        found != by_communication_id_.end()) {
        Id& id = *found->second;
        id.searching = false;
        id.peer = peer;
        id.exchanged = id.datagram() ? Exchanged::sidr_req_sent : Exchanged::req_sent;
        set_deadline(id, attempts * timeout_ns(response_timeout_));
    }
}

void Manager::no_service(const Message& request) {
    if (const auto found = by_communication_id_.find(request.sender_id);
        found != by_communication_id_.end()) {
        Id& id = *found->second;
        id.searching = false;
        clear_deadline(id);
        look_up_again(id, request);
    }
}

void Manager::request_refused(std::uint32_t communication_id) {
    if (const auto found = by_communication_id_.find(communication_id);
        found != by_communication_id_.end()) {
        Id& id = *found->second;
        id.searching = false;
        clear_deadline(id);
        raise(id, EventType::unreachable, -EACCES);
    }
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
    if (parameters.valid == 0) { // The active side has made its queue pair ready.
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
    set_deadline(id, attempts * timeout_ns(response_timeout_));
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
    if (id.exchanged != Exchanged::req_sent && id.exchanged != Exchanged::req_received &&
        id.exchanged != Exchanged::rep_sent && id.exchanged != Exchanged::rep_received) {
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
        set_deadline(id, attempts * timeout_ns(response_timeout_));
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

/// Called when an id is destroyed. Sends a message such as DREQ or REJ, so that the peer does not
/// wait for this id.
void Manager::withdraw(Id& id) {
    Message made = message(id, MessageType::rej);
    made.status = reject::consumer_defined;
    switch (id.exchanged) {
        case Exchanged::req_sent:
            made.status = reject::timeout;
            break;
        case Exchanged::req_received:
        case Exchanged::rep_sent:
        case Exchanged::rep_received:
            break;
        case Exchanged::established:
            made.type = MessageType::dreq;
            break;
        case Exchanged::dreq_received:
            made.type = MessageType::drep;
            break;
        case Exchanged::sidr_req_received:
            made.type = MessageType::sidr_rep;
            made.status = sidr::rejected;
            break;
        default:
            return;
    }
    id.exchanged = Exchanged::nothing;
    send(id, made);
}

// Received messages

Id* Manager::find_listener(const Message& message) {
    const Address destination = unwire(message.destination, message.port_space);
    Id* best = nullptr;
    for (const auto& [handle, id] : ids_) {
        if (id->state == State::listening && id->source.port() == destination.port() &&
            service_space(*id, id->source) == message.port_space &&
            accepts(id->source, id->family_only.value_or(false), destination) &&
            (best == nullptr || best->source.is_unspecified())) {
            best = id.get();
        }
    }
    return best;
}

void Manager::received_request(const Peer& from, const Message& message) {
    const bool datagram = message.type == MessageType::sidr_req;
    const auto refuse = [&](std::uint8_t reason, std::uint8_t status) {
        reply(from, message, datagram ? MessageType::sidr_rep : MessageType::rej,
              datagram ? status : reason);
    };
    Id* const listener = find_listener(message);
    if (listener == nullptr) {
        refuse(reject::invalid_service_id, sidr::unsupported);
        return;
    }
    int error = 0;
    const Address destination = unwire(message.destination, message.port_space);
    Device* const device = destination.is_unspecified() && destination.family() == family_ib
                               ? nullptr
                               : find_device(destination, error);
    if (device == nullptr || listener->backlog == 0 ||
        message.qp_type != static_cast<std::uint8_t>(listener->qp_type)) {
        refuse(reject::consumer_defined, sidr::rejected);
        return;
    }
    const Address source = unwire(message.source, message.port_space);
    if (!has_own_source(from, message, source)) {
        refuse(reject::invalid_gid, sidr::rejected);
        return;
    }
    if (message.mtu < IBV_MTU_256 || message.mtu > IBV_MTU_4096) {
        refuse(reject::invalid_mtu, sidr::rejected);
        return;
    }
    Id& id = *add_id(*listener->file, listener->port_space, listener->qp_type);
    id.listener = listener;
    --listener->backlog;
    id.state = State::connecting;
    id.exchanged = datagram ? Exchanged::sidr_req_received : Exchanged::req_received;
    id.source = destination;
    id.destination = source;
    id.peer = from;
    id.peer_communication_id = message.sender_id;
    assign_communication_id(id);
    set_device(id.route, *device, destination);
    id.route.dgid = message.sgid;
    id.route.dlid = message.slid;
    id.route.mtu = std::min(id.route.mtu, static_cast<ibv_mtu>(message.mtu));
    id.route.paths = 1;
    id.receive_psn = random_psn();
    id.send_psn = message.psn;
    id.peer_qp_num = message.qp_num;
    id.retry_count = message.retry_count;
    id.rnr_retry_count = message.rnr_retry_count;
    // Exchange the values: the peer's initiator depth limits the requests that this id must respond
    // to, and the peer's responder resources limit the requests that this id may send.
    id.responder_resources = message.initiator_depth;
    id.initiator_depth = message.responder_resources;

    Event event = make_event(EventType::connect_request);
    event.request = &id;
    if (datagram) {
        get_private_data(event.response.param.ud, message,
                         private_data::sidr_req - id.private_data_offset());
    } else {
        auto& parameters = event.response.param.conn;
        get_private_data(parameters, message, private_data::req - id.private_data_offset());
        parameters.responder_resources = id.responder_resources;
        parameters.initiator_depth = id.initiator_depth;
        parameters.flow_control = message.flow_control;
        parameters.retry_count = message.retry_count;
        parameters.rnr_retry_count = message.rnr_retry_count;
        parameters.srq = message.srq;
        parameters.qp_num = message.qp_num;
        event.response.ece = {message.ece_vendor, message.ece_options};
        send(id, this->message(id, MessageType::mra));
    }
    raise(*listener, event);
}

void Manager::received_reply(Id& id, const Message& message) {
    clear_deadline(id);
    id.exchanged = Exchanged::rep_received;
    id.peer_communication_id = message.sender_id;
    id.send_psn = message.psn;
    id.peer_qp_num = message.qp_num;
    id.responder_resources = message.initiator_depth;
    id.initiator_depth = message.responder_resources;
    id.rnr_retry_count = message.rnr_retry_count;
    Event event = make_event(EventType::connect_response);
    auto& parameters = event.response.param.conn;
    get_private_data(parameters, message, private_data::rep);
    parameters.responder_resources = id.responder_resources;
    parameters.initiator_depth = id.initiator_depth;
    parameters.flow_control = message.flow_control;
    parameters.rnr_retry_count = message.rnr_retry_count;
    parameters.srq = message.srq;
    parameters.qp_num = message.qp_num;
    event.response.ece = {message.ece_vendor, message.ece_options};
    raise(id, event);
}

void Manager::received_reject(Id& id, const Message& message) {
    clear_deadline(id);
    id.exchanged = Exchanged::nothing;
    raise(id, rejected(message.status, &message));
}

void Manager::end_connection(Id& id, int status) {
    id.exchanged = Exchanged::timewait;
    id.disconnect_waits_until = 0;
    set_deadline(id, timeout_ns(timewait_timeout));
    if (id.state == State::connecting) {
        id.state = State::disconnected;
        raise(id, EventType::disconnected, status);
    }
}

void Manager::received_disconnect(Id& id) {
    if (id.exchanged == Exchanged::dreq_sent) { // Both sides disconnect at once.
        send(id, message(id, MessageType::drep));
        end_connection(id, 0);
        return;
    }
    clear_deadline(id);
    id.exchanged = Exchanged::dreq_received;
    id.disconnect_waits_until = fabric::now_ns() + longest_disconnect_wait_ns;
    report_disconnect(id);
}

/// Raises RDMA_CM_EVENT_DISCONNECTED after a DREQ has arrived. With a NIC, the completions of
/// earlier messages are in the completion queue long before the event, so a thread that polls gets
/// them first. Here, that thread may not have run between the messages and the DREQ. Therefore the
/// event is delayed until the program has polled these completions. The delay is limited, because a
/// program may wait for the event before it polls.
void Manager::report_disconnect(Id& id) {
    bool has_completions = false;
    {
        const Guard guard;
        process().engine.handle_arrived();
        has_completions = has_unpolled_completions(id.qp_num);
    }
    if (has_completions && fabric::now_ns() < id.disconnect_waits_until) {
        set_deadline(id, disconnect_check_interval_ns);
        return;
    }
    id.disconnect_waits_until = 0;
    id.state = State::disconnected;
    raise(id, EventType::disconnected);
}

void Manager::received_sidr_reply(Id& id, const Message& message) {
    clear_deadline(id);
    id.exchanged = Exchanged::nothing;
    if (message.status != sidr::success) {
        raise(id, make_event(EventType::unreachable, message.status));
        return;
    }
    Event event = make_event(EventType::established);
    auto& parameters = event.response.param.ud;
    get_private_data(parameters, message, private_data::sidr_rep);
    parameters.qp_num = message.qp_num;
    parameters.qkey = message.qkey;
    fill_address_vector(parameters.ah_attr, id.route);
    raise(id, event);
}

void Manager::received(const Peer& from, const Message& message) {
    if (message.type == MessageType::req || message.type == MessageType::sidr_req) {
        received_request(from, message);
        return;
    }
    const auto found = by_communication_id_.find(message.recipient_id);
    if (found == by_communication_id_.end() || found->second->peer != from) {
        if (message.type == MessageType::dreq) {
            reply(from, message, MessageType::drep, 0);
        } else if (message.type == MessageType::rep) {
            reply(from, message, MessageType::rej, reject::invalid_communication_id);
        }
        return;
    }
    Id& id = *found->second;
    const Exchanged state = id.exchanged;
    switch (message.type) {
        case MessageType::mra:
            if (state == Exchanged::req_sent) {
                set_deadline(id,
                             timeout_ns(mra_timeout) + attempts * timeout_ns(response_timeout_));
            }
            break;
        case MessageType::rej:
            if (state == Exchanged::req_sent || state == Exchanged::req_received ||
                state == Exchanged::rep_sent || state == Exchanged::rep_received) {
                received_reject(id, message);
            } else if (state == Exchanged::established) {
                // The peer has destroyed its id before the RTU message arrived.
                received_disconnect(id);
            }
            break;
        case MessageType::rep:
            if (state == Exchanged::req_sent) {
                received_reply(id, message);
            }
            break;
        case MessageType::rtu:
            if (state == Exchanged::rep_sent) {
                clear_deadline(id);
                id.exchanged = Exchanged::established;
                raise(id, EventType::established);
            }
            break;
        case MessageType::dreq:
            if (state == Exchanged::established || state == Exchanged::rep_sent ||
                state == Exchanged::rep_received || state == Exchanged::dreq_sent) {
                received_disconnect(id);
            } else if (state == Exchanged::timewait) {
                send(id, this->message(id, MessageType::drep));
            }
            break;
        case MessageType::drep:
            if (state == Exchanged::dreq_sent) {
                end_connection(id, 0);
            }
            break;
        case MessageType::sidr_rep:
            if (state == Exchanged::sidr_req_sent) {
                received_sidr_reply(id, message);
            }
            break;
        default:
            break;
    }
}

/// Called when the process of a peer has ended. Ends the connections to it: raises the same events
/// as if the peer had destroyed its ids.
void Manager::lost(const Peer& peer) {
    for (const auto& [handle, each] : ids_) {
        Id& id = *each;
        if (id.communication_id == 0 || id.peer != peer) {
            continue;
        }
        switch (id.exchanged) {
            case Exchanged::req_sent:
            case Exchanged::req_received:
            case Exchanged::rep_sent:
            case Exchanged::rep_received: {
                clear_deadline(id);
                id.exchanged = Exchanged::nothing;
                raise(id, rejected(reject::consumer_defined, nullptr));
                break;
            }
            case Exchanged::established:
                // With a NIC, the kernel sends a DREQ for each connection of a process that ends.
                received_disconnect(id);
                break;
            case Exchanged::dreq_sent:
                end_connection(id, 0);
                break;
            case Exchanged::sidr_req_sent:
                clear_deadline(id);
                id.exchanged = Exchanged::nothing;
                raise(id, make_event(EventType::unreachable, sidr::rejected));
                break;
            default:
                break;
        }
    }
}

void Manager::expired(Id& id) {
    if (const auto request = std::move(id.unsent_request); request != nullptr) {
        send_request(id, *request);
        return;
    }
    if (id.searching) {
        network_->cancel(id.communication_id);
        id.searching = false;
        raise(id, EventType::unreachable, -ETIMEDOUT);
        return;
    }
    switch (id.exchanged) {
        case Exchanged::req_sent:
        case Exchanged::rep_sent:
        case Exchanged::sidr_req_sent:
            id.exchanged = Exchanged::nothing;
            raise(id, EventType::unreachable, -ETIMEDOUT);
            break;
        case Exchanged::dreq_sent:
            end_connection(id, -ETIMEDOUT);
            break;
        case Exchanged::dreq_received:
            report_disconnect(id);
            break;
        case Exchanged::timewait:
            id.exchanged = Exchanged::nothing;
            raise(id, EventType::timewait_exit);
            break;
        default:
            break;
    }
}

} // namespace softverbs::cm
