// SPDX-License-Identifier: BSD-3-Clause
// Handles the messages of the connection manager that arrive, as the kernel's ib_cm and rdma_cm do.
#include <algorithm>

#include "cm/manager.hpp"
#include "cm/queries.hpp"
#include "cm/routes.hpp"

namespace softverbs::cm {

namespace {

/// Timeout exponent in an MRA message: 4.096 µs * 2^24, about 69 seconds. The value is that of
/// CMA_CM_MRA_SETTING in the kernel.
constexpr unsigned mra_timeout = 24;

/// Returns whether the source GID and the source IP address in a connection request belong to the
/// host of the process @p from, which has sent the request.
bool has_own_source(const Peer& from, const Message& request, const Address& source) {
    if (from.host != Gid{}) {
        return request.sgid == from.host && request.source.address == from.host;
    }
    int error = 0;
    return has_device_gid(request.sgid) &&
           (request.sgid == request.source.address || find_device(source, error) != nullptr);
}

/// Copies the parameters of a REQ or REP message to the event that reports the message.
/// @param id                 has the responder resources and the initiator depth of the connection
/// @param private_data_size  in bytes
void get_connection_parameters(Event& event, const Id& id, const Message& message,
                               std::size_t private_data_size) noexcept {
    auto& parameters = event.response.param.conn;
    get_private_data(parameters, message, private_data_size);
    parameters.responder_resources = id.responder_resources;
    parameters.initiator_depth = id.initiator_depth;
    parameters.flow_control = message.flow_control;
    parameters.rnr_retry_count = message.rnr_retry_count;
    parameters.srq = message.srq;
    parameters.qp_num = message.qp_num;
    event.response.ece = {message.ece_vendor, message.ece_options};
}

} // namespace

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
    id.assign_communication_id();
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
    // Swap the two values of the peer: its initiator depth limits the RDMA reads and atomics to
    // which this id must respond, and its responder resources limit those that this id may send.
    id.responder_resources = message.initiator_depth;
    id.initiator_depth = message.responder_resources;

    Event event = make_event(EventType::connect_request);
    event.request = &id;
    if (datagram) {
        get_private_data(event.response.param.ud, message,
                         private_data::sidr_req - id.private_data_offset());
    } else {
        get_connection_parameters(event, id, message, private_data::req - id.private_data_offset());
        event.response.param.conn.retry_count = message.retry_count;
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
    get_connection_parameters(event, id, message, private_data::rep);
    raise(id, event);
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
    Id* const found = find_connection(message.recipient_id);
    if (found == nullptr || found->peer != from) {
        if (message.type == MessageType::dreq) {
            reply(from, message, MessageType::drep, 0);
        } else if (message.type == MessageType::rep) {
            reply(from, message, MessageType::rej, reject::invalid_communication_id);
        }
        return;
    }
    Id& id = *found;
    const Exchanged state = id.exchanged;
    switch (message.type) {
        case MessageType::mra:
            if (state == Exchanged::req_sent) {
                set_deadline(
                    id, timeout_ns(mra_timeout) + max_attempts * timeout_ns(response_timeout_));
            }
            break;
        case MessageType::rej:
            if (id.in_handshake()) {
                clear_deadline(id);
                id.exchanged = Exchanged::nothing;
                raise(id, rejected(message.status, &message));
            } else if (state == Exchanged::established) {
                // The peer destroyed its id before it received the RTU of this id. Therefore it
                // sent a REJ instead of a DREQ. Handle the REJ as a DREQ.
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

} // namespace softverbs::cm
