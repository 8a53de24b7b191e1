// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>

#include "engine/addressing.hpp"
#include "engine/requester.hpp"
#include "objects/multicast.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using State = SendRequest::State;

} // namespace

Step OutboundRequest::operator()() {
    // First execute the received RDMA writes that SOFTVERBS_DISORDER (a test setting) still delays.
    // With a NIC, these writes are visible when the NIC reads the data of a later send request.
    engine_.release_writes();
    if (is_local(request_.opcode)) {
        return local();
    }
    return qp_.type() == IBV_QPT_UD ? datagram() : connected();
}

std::uint64_t OutboundRequest::data_length() const {
    return is_atomic(request_.opcode) ? sizeof(std::uint64_t) : request_.length;
}

Step OutboundRequest::fail_in_turn(ibv_wc_status status) {
    if (qp_.sends.first() != position_) {
        // The earlier requests may not have requested an ACK. Retransmit them with the ACK request
        // flag, so that they complete.
        if (qp_.is_reliable() && requester_.resent_until < position_) {
            requester_.resent_until = position_;
            engine_.resend(qp_);
            return Step::again;
        }
        return Step::wait;
    }
    complete_send(qp_, status);
    if (qp_.is_reliable()) {
        enter_error(qp_);
    } else {
        enter_send_queue_error(qp_);
    }
    return Step::failed;
}

Step OutboundRequest::local() {
    if (qp_.sends.first() != position_) {
        return fail_in_turn(IBV_WC_SUCCESS);
    }
    const bool bind = request_.opcode == IBV_WR_BIND_MW;
    const bool done = bind ? bind_mw(qp_, *request_.window, request_.bind, request_.rkey,
                                     request_.invalidate_rkey)
                           : invalidate(qp_, request_.invalidate_rkey);
    if (!done) {
        // The InfiniBand specification has one error for a failed bind and a failed invalidation:
        // "memory management operation error".
        return fail_in_turn(IBV_WC_MW_BIND_ERR);
    }
    request_.state = State::done;
    return Step::sent;
}

ibv_wc_status OutboundRequest::check_request() const {
    if (data_length() > device_of(qp_.qp_base).port(1)->attributes.max_msg_sz ||
        (is_atomic(request_.opcode) && request_.length < sizeof(std::uint64_t))) {
        return IBV_WC_LOC_LEN_ERR;
    }
    return returns_data(request_.opcode) && qp_.attributes.max_rd_atomic == 0 ? IBV_WC_LOC_QP_OP_ERR
                                                                              : IBV_WC_SUCCESS;
}

ibv_wc_status OutboundRequest::open(EntryList& entries) const {
    // The local memory of a read or an atomic is checked later, when the response arrives. An error
    // that the responder reports must have priority over an error of this check.
    if (request_.is_inline || returns_data(request_.opcode)) {
        return IBV_WC_SUCCESS;
    }
    return entries.open(qp_.pd(), qp_.entries(position_), data_length(), false)
               ? IBV_WC_SUCCESS
               : IBV_WC_LOC_PROT_ERR;
}

void OutboundRequest::fill_header(Outgoing& packet) const {
    PacketHeader& header = packet.header;
    if (!set_operation(request_, header)) {
        switch (request_.opcode) {
            case IBV_WR_RDMA_READ:
                header.kind = Kind::read;
                break;
            case IBV_WR_ATOMIC_CMP_AND_SWP:
                header.kind = Kind::compare_swap;
                break;
            case IBV_WR_ATOMIC_FETCH_AND_ADD:
                header.kind = Kind::fetch_add;
                break;
            default: // IBV_WR_ATOMIC_WRITE
                header.kind = Kind::write;
                header.flags = PacketHeader::atomic_write;
                break;
        }
    }
    header.service = static_cast<std::uint8_t>(qp_.type());
    header.source = qp_.number();
    header.psn = request_.psn;
    header.length = data_length();
    header.remote_address = request_.remote_address;
    header.rkey = request_.rkey;
    header.compare_add = request_.compare_add;
    header.swap = request_.swap;
    if (returns_data(request_.opcode)) {
        header.reads_outstanding = static_cast<std::uint8_t>(
            requester_.reads_in_flight + requester_.finished_early + (begins_ ? 1 : 0));
    }
    if (qp_.type() == IBV_QPT_UD) {
        const ibv_ah_attr& address = request_.destination;
        Device& device = device_of(qp_.qp_base);
        header.destination = request_.remote_qpn;
        header.qkey = request_.remote_qkey;
        header.device = static_cast<std::uint8_t>(destination_of(device, address).device);
        header.service_level = address.sl;
        const Port& port = *device.port(qp_.attributes.port_num);
        header.source_lid = port.attributes.lid;
        header.destination_lid = address.dlid;
        if (address.is_global != 0) {
            header.flags |= PacketHeader::has_grh;
            const ibv_gid_entry& source = port.gids[address.grh.sgid_index];
            header.source_gid = source.gid;
            header.destination_gid = address.grh.dgid;
            header.compare_add = std::bit_cast<std::uint64_t>(
                GlobalRoute{.flow_label = address.grh.flow_label,
                            .traffic_class = address.grh.traffic_class,
                            .hop_limit = address.grh.hop_limit,
                            .is_roce_v2 = source.gid_type == IBV_GID_TYPE_ROCE_V2});
        }
    } else {
        header.destination = qp_.attributes.dest_qp_num;
        header.mtu_or_rnr_timer = static_cast<std::uint8_t>(qp_.attributes.path_mtu);
        header.device = static_cast<std::uint8_t>(requester_.device);
        if (qp_.type() == IBV_QPT_XRC_SEND) {
            header.service = IBV_QPT_XRC_RECV;
            header.qkey = request_.remote_qkey; // the number of the shared receive queue
        }
    }
}

Step OutboundRequest::datagram() {
    EntryList entries;
    Device& device = device_of(qp_.qp_base);
    const Port* const found = device.port(qp_.attributes.port_num);
    if (found == nullptr) {
        // The port of the queue pair no longer exists, because a test has reduced the number of
        // ports.
        return fail_in_turn(IBV_WC_LOC_QP_OP_ERR);
    }
    const Port& port = *found;
    // The maximum length of a datagram is the MTU of the port. The MTU of an EFA device is
    // max_msg_sz, because it is not a power of two and enum ibv_mtu does not contain it.
    const std::uint64_t most = device.rules.is_efa
                                   ? port.attributes.max_msg_sz
                                   : std::uint64_t{128} << port.attributes.active_mtu;
    if (request_.length > most) {
        return fail_in_turn(IBV_WC_LOC_LEN_ERR);
    }
    if (const ibv_wc_status status = open(entries); status != IBV_WC_SUCCESS) {
        return fail_in_turn(status);
    }
    const ibv_ah_attr& address = request_.destination;
    if (address.is_global != 0 && address.grh.sgid_index >= port.gids.size()) {
        return fail_in_turn(IBV_WC_LOC_QP_OP_ERR);
    }
    requester_.connection = nullptr;
    if (request_.remote_qpn == multicast_qp_number) {
        if (address.is_global != 0 && is_multicast(address.grh.dgid) &&
            port.attributes.state == IBV_PORT_ACTIVE && !multicast(entries)) {
            return fail_in_turn(IBV_WC_LOC_PROT_ERR);
        }
        request_.state = State::done;
        return Step::sent;
    }
    const Destination destination = destination_of(device, address);
    if (destination.device >= 0 && engine_.reach(request_.remote_qpn, destination.route, to_) &&
        port.attributes.state == IBV_PORT_ACTIVE) {
        requester_.connection = to_;
        const auto sent = send_fragment(entries, request_.length, true);
        if (!sent) {
            return fail_in_turn(IBV_WC_LOC_PROT_ERR);
        }
        if (*sent == fabric::Sent::full && engine_.worth_waiting(qp_)) {
            return after(fabric::Sent::full);
        }
    }
    // The datagram was sent, or it is lost: for example, because no process has the destination
    // queue pair, or because the ring to its process stays full. A lost datagram is not an error of
    // the request.
    request_.state = State::done;
    return Step::sent;
}

bool OutboundRequest::has_to_wait() const {
    const unsigned reads = requester_.reads_in_flight;
    if ((request_.flags & IBV_SEND_FENCE) != 0 && reads > 0) {
        return true;
    }
    // The requester still copies the data of an earlier read directly from memory of the responder.
    // Let this request wait if it could change that memory.
    if (request_.opcode != IBV_WR_RDMA_READ && requester_.fetches_in_flight > 0) {
        return true;
    }
    return returns_data(request_.opcode) &&
           reads + requester_.finished_early >= qp_.attributes.max_rd_atomic;
}

Step OutboundRequest::connected() {
    if (const ibv_wc_status status = check_request(); status != IBV_WC_SUCCESS) {
        return fail_in_turn(status);
    }
    begins_ = request_.state == State::waiting;
    if (begins_ && has_to_wait()) {
        return Step::wait;
    }
    EntryList entries;
    if (const ibv_wc_status status = open(entries); status != IBV_WC_SUCCESS) {
        return fail_in_turn(status);
    }
    if (begins_) {
        request_.psn = requester_.next_psn;
        request_.state = State::sending;
        request_.offset = 0;
        request_.requested = 0;
    }
    fabric::Connection* connection = requester_.connection;
    const Port* const port = device_of(qp_.qp_base).port(qp_.attributes.port_num);
    const bool reachable = requester_.device >= 0 && port != nullptr &&
                           port->attributes.state == IBV_PORT_ACTIVE &&
                           engine_.reach(qp_.attributes.dest_qp_num, requester_.route, connection);
    if (!reachable) {
        // The local port is not active, or the destination process cannot be reached. The packet is
        // lost, and its data counts as sent.
        request_.offset = data_length();
        return after(fabric::Sent::closed);
    }
    requester_.connection = to_ = connection;
    return request_.opcode == IBV_WR_RDMA_READ ? send_read() : send_data(entries);
}

std::optional<fabric::Sent> OutboundRequest::send_fragment(const EntryList& entries,
                                                           std::uint64_t length, bool last) {
    Outgoing packet;
    fill_header(packet);
    packet.header.offset = request_.offset;
    packet.header.payload = static_cast<std::uint32_t>(length);
    if (qp_.is_reliable() && last && needs_ack_request(qp_, position_, request_)) {
        packet.header.flags |= PacketHeader::ack_request;
        requester_.ack_requested_until = position_ + 1;
    }
    if (is_atomic(request_.opcode)) {
        packet.header.payload = 0;
    } else if (request_.is_inline) {
        packet.parts[1] =
            request_.opcode == IBV_WR_ATOMIC_WRITE
                ? std::as_bytes(std::span(&request_.swap, 1))
                : std::span<const std::byte>(qp_.inline_data(position_) + request_.offset,
                                             static_cast<std::size_t>(length));
        packet.count = 2;
    } else {
        const auto parts =
            entries.parts(request_.offset, length, std::span(packet.parts).subspan(1));
        if (!parts) {
            return std::nullopt;
        }
        packet.count = 1 + *parts;
    }
    return engine_.transmit(to_, fabric::Lane::requests, packet);
}

bool OutboundRequest::send_segments(const EntryList& entries, fabric::Sent& sent) {
    // With SOFTVERBS_DISORDER (a test setting), a packet may be sent after its request has
    // completed. The program may then change the memory. Therefore the packet must contain the
    // data, not its address.
    if (process().disorder.qps() || request_.is_inline || position_ < requester_.records_until ||
        request_.length <= small_message || request_.offset != 0) {
        return false;
    }
    Outgoing packet;
    const std::size_t segments =
        engine_.describe(to_, fabric::Lane::requests, entries.windows(), packet.segments);
    if (segments == 0) {
        return false;
    }
    fill_header(packet);
    packet.set_segments(segments);
    // This packet contains the address of its data. On UC too, request an ACK for it, because the
    // request must not complete before the responder has copied the data.
    if (qp_.type() == IBV_QPT_UC || needs_ack_request(qp_, position_, request_)) {
        packet.header.flags |= PacketHeader::ack_request;
        requester_.ack_requested_until = position_ + 1;
    }
    sent = engine_.transmit(to_, fabric::Lane::requests, packet);
    if (sent == fabric::Sent::sent) {
        request_.offset = request_.length;
        requester_.offered = to_ == nullptr ? 0 : to_->sent();
    }
    return true;
}

Step OutboundRequest::send_data(const EntryList& entries) {
    fabric::Sent sent = fabric::Sent::sent;
    if (send_segments(entries, sent)) {
        return after(sent);
    }
    const std::uint64_t total = is_atomic(request_.opcode) ? 0 : request_.length;
    do {
        const std::uint64_t length =
            std::min<std::uint64_t>(total - request_.offset, record_payload);
        const bool last = request_.offset + length == total;
        const auto part = send_fragment(entries, length, last);
        if (!part) {
            return fail_in_turn(IBV_WC_LOC_PROT_ERR);
        }
        sent = *part;
        if (sent != fabric::Sent::sent) {
            break;
        }
        request_.offset += length;
    } while (request_.offset < total);
    // A UC request completes when all its packets were sent, because UC has no acknowledgements.
    if (sent == fabric::Sent::sent && qp_.type() == IBV_QPT_UC) {
        request_.state = State::done;
    }
    return after(sent);
}

Step OutboundRequest::send_read() {
    const bool can_fetch = to_ == nullptr || !to_->between_hosts();
    const bool fetches =
        can_fetch && request_.length > small_message && position_ >= requester_.records_until;
    // Responses to an earlier transmission of this read can arrive while the read is retransmitted.
    // Do not request their data again.
    request_.requested = std::max(request_.requested, request_.offset);
    do {
        if (request_.requested - request_.offset >= read_window) {
            // The number of requested bytes that have not arrived has reached its limit,
            // read_window. Request the rest of this read when some of these bytes have arrived.
            // Until then, later requests of the queue pair wait.
            request_.record = to_ == nullptr ? 0 : to_->sent();
            return Step::wait;
        }
        Outgoing packet;
        fill_header(packet);
        PacketHeader& header = packet.header;
        header.flags |= PacketHeader::ack_request;
        header.offset = request_.requested;
        std::uint64_t length = request_.length - request_.requested;
        if (fetches) {
            header.flags |= PacketHeader::to_fetch;
        } else {
            length = std::min<std::uint64_t>(length, record_payload);
        }
        header.payload = static_cast<std::uint32_t>(length);
        const fabric::Sent sent = engine_.transmit(to_, fabric::Lane::requests, packet);
        if (sent != fabric::Sent::sent) {
            return after(sent);
        }
        request_.requested += length;
        requester_.ack_requested_until = position_ + 1;
    } while (request_.requested < request_.length);
    if (fetches) {
        request_.fetches = true;
        ++requester_.fetches_in_flight;
    }
    return after(fabric::Sent::sent);
}

Step OutboundRequest::after(fabric::Sent sent) {
    switch (sent) {
        case fabric::Sent::full:
            if (!requester_.stalled) {
                engine_.stalled.push_back(&qp_);
                requester_.stalled = true;
            }
            return Step::wait;
        case fabric::Sent::closed:
            // The packet is lost: the connection to the other process is closed, or the request
            // could not be sent at all (see connected()). Let the timeout apply to the request, as
            // if it had requested an ACK.
            requester_.ack_requested_until = position_ + 1;
            Engine::Implementation::disconnect(qp_);
            to_ = nullptr;
            // A UC request completes although its packet is lost, because UC has no
            // acknowledgements.
            if (qp_.type() == IBV_QPT_UC) {
                request_.state = State::done;
            }
            break;
        case fabric::Sent::sent:
            break;
    }
    if (request_.state != State::done) {
        request_.state = State::sent;
        request_.record = to_ == nullptr ? 0 : to_->sent();
    }
    return Step::sent;
}

} // namespace softverbs
