// SPDX-License-Identifier: BSD-3-Clause
#include "engine/responder.hpp"

#include <algorithm>
#include <utility>

#include "objects/queue_pair.hpp"
#include "objects/xrc_domain.hpp"

namespace softverbs {

bool InboundRequest::operator()() {
    const ibv_qp_state state = qp_.state();
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) {
        return true;
    }
    if (qp_.type() == IBV_QPT_UD) {
        if (is_valid_datagram()) {
            send();
        }
        return true;
    }
    if (header_.source != qp_.attributes.dest_qp_num) {
        return true;
    }
    if (qp_.type() == IBV_QPT_XRC_RECV && !select_srq(qp_, header_.qkey)) {
        reject();
        return true;
    }
    if (in_sequence()) {
        if (state == IBV_QPS_RTR && !std::exchange(responder_.established, true)) {
            raise_event(qp_, IBV_EVENT_COMM_EST);
        }
        execute();
    }
    return !incomplete_;
}

bool InboundRequest::in_sequence() {
    const std::uint32_t ahead = (header_.psn - responder_.expected_psn) & psn_mask;
    if (!reliable()) {
        // On UC, the first packet of a message sets the expected packet sequence number. If a
        // packet is lost, the later packets of its message are dropped.
        if (header_.offset == 0) {
            // Ignore a duplicate of a packet that contains the address of its data. The data was
            // copied for the first packet, and the program of the sender may have changed the data
            // since.
            const bool twice = ahead == psn_mask && (header_.flags & PacketHeader::to_fetch) != 0;
            responder_.expected_psn = twice ? responder_.expected_psn : header_.psn;
            responder_.in_message = false;
            return !twice;
        }
        return ahead == 0 && responder_.in_message && responder_.received == header_.offset;
    }
    if (ahead > psn_mask / 2) {
        duplicate();
        return false;
    }
    const bool begins = header_.kind == Kind::read || header_.offset == 0;
    if (ahead == 0 && begins) {
        responder_.in_message = false;
    }
    if (ahead == 0 &&
        (begins || (responder_.in_message && responder_.received == header_.offset))) {
        responder_.gap_reported = false;
        return true;
    }
    // A packet is missing. Send a NAK, which makes the requester retransmit this message and all
    // later messages. Send only one NAK for each gap, because each NAK causes a retransmission.
    if (!std::exchange(responder_.gap_reported, true)) {
        Outgoing nak = make_response(Kind::nak);
        nak.header.psn = responder_.expected_psn;
        nak.header.nak_code = NakCode::sequence_error;
        send_response(nak);
    }
    return false;
}

void InboundRequest::duplicate() {
    switch (header_.kind) {
        case Kind::read:
            read();
            break;
        case Kind::compare_swap:
        case Kind::fetch_add:
            duplicate_atomic();
            break;
        default:
            if (is_last()) {
                send_ack();
            }
            break;
    }
}

void InboundRequest::duplicate_atomic() {
    // Results of several atomics can be stored with the same packet sequence number, because these
    // numbers wrap around. Therefore search from the newest result to the oldest.
    const std::size_t kept = std::min(responder_.atomics_done, responder_.atomics.size());
    for (std::size_t age = 1; age <= kept; ++age) {
        const Responder::Atomic& known =
            responder_.atomics[(responder_.atomics_done - age) % responder_.atomics.size()];
        if (known.psn == header_.psn) {
            Outgoing result = make_response(Kind::atomic_result);
            result.header.compare_add = known.value;
            send_response(result);
            return;
        }
    }
}

void InboundRequest::execute() {
    const bool returns_data = header_.kind != Kind::send && header_.kind != Kind::write;
    if (!reliable() && returns_data) {
        return;
    }
    if (returns_data
            ? header_.reads_outstanding > qp_.attributes.max_dest_rd_atomic
            : !same_packets(header_.mtu_or_rnr_timer, qp_.attributes.path_mtu, header_.length)) {
        reject();
        return;
    }
    switch (header_.kind) {
        case Kind::send:
            send();
            break;
        case Kind::write:
            write();
            break;
        case Kind::read:
            read();
            break;
        default:
            atomic();
            break;
    }
}

Outgoing InboundRequest::make_response(Kind kind) const {
    Outgoing packet;
    packet.header.kind = kind;
    packet.header.service = header_.service == IBV_QPT_XRC_RECV
                                ? static_cast<std::uint8_t>(IBV_QPT_XRC_SEND)
                                : header_.service;
    packet.header.destination = header_.source;
    packet.header.source = qp_.number();
    packet.header.psn = header_.psn;
    packet.header.device = static_cast<std::uint8_t>(qp_.requester.device);
    packet.header.mtu_or_rnr_timer = static_cast<std::uint8_t>(qp_.attributes.path_mtu);
    return packet;
}

void InboundRequest::send_response(Outgoing& answer) {
    static_cast<void>(engine_.transmit(from_, fabric::Lane::responses, answer));
}

void InboundRequest::send_ack() {
    if ((header_.flags & PacketHeader::ack_request) != 0) {
        engine_.send_ack(qp_, from_, header_.psn);
    }
}

void InboundRequest::send_nak(NakCode nak_code) {
    // UC has no acknowledgements, with one exception in softverbs: if a UC packet contains the
    // address of its data in place of the data, it has the flag ack_request. The requester of such
    // a packet waits for a response before it releases the data, so send the NAK to it, too.
    if (reliable() || (header_.flags & PacketHeader::ack_request) != 0) {
        Outgoing packet = make_response(Kind::nak);
        packet.header.nak_code = nak_code;
        packet.header.mtu_or_rnr_timer = qp_.attributes.min_rnr_timer;
        send_response(packet);
    }
}

void InboundRequest::send_nak(NakCode nak_code, ibv_event_type event) {
    send_nak(nak_code);
    if (reliable()) {
        enter_error(qp_, event);
    }
}

bool InboundRequest::enabled(unsigned access) {
    if ((qp_.attributes.qp_access_flags & access) != 0) {
        return true;
    }
    reject();
    return false;
}

bool InboundRequest::permitted(unsigned access, Window& window) {
    if (!enabled(access)) {
        return false;
    }
    if (header_.length == 0) {
        return true;
    }
    if (open_remote(qp_, header_.rkey, header_.remote_address, header_.length, access, window)) {
        return true;
    }
    send_nak(NakCode::remote_access);
    if (reliable()) {
        if (responder_.current_taken) { // by a write with immediate data
            complete(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_LOC_ACCESS_ERR, 0);
        }
        enter_error(qp_, IBV_EVENT_QP_ACCESS_ERR);
    }
    return false;
}

bool InboundRequest::sums_up() const {
    if ((header_.flags & PacketHeader::to_fetch) == 0) {
        return true; // parse_packet() has checked the length of the data
    }
    std::uint64_t left = header_.length;
    for (const fabric::Segment& segment : packet_.segments) {
        const std::uint64_t length = segment.length;
        if (length > left) {
            return false;
        }
        left -= length;
    }
    return left == 0 && header_.offset == 0;
}

bool InboundRequest::store(const EntryList& entries, std::uint64_t skipped) {
    if ((header_.flags & PacketHeader::to_fetch) == 0) {
        const std::uint64_t skipped_here = header_.offset == 0 ? skipped : 0;
        if (!entries.put(space_before_data() + header_.offset + skipped_here - skipped,
                         packet_.bytes.subspan(skipped_here))) {
            send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
            return false;
        }
        return true;
    }
    // The data of this packet is in memory of the sender. Start the copy at offset 0, unless an
    // earlier call of this function has already copied a part of the data.
    if (responder_.copied_from != from_ || responder_.copied_psn != header_.psn) {
        responder_.copied = 0;
        responder_.copied_from = from_;
        responder_.copied_psn = header_.psn;
    }
    switch (engine_.copy_step(entries, from_, fabric::Lane::requests, packet_, responder_.copied)) {
        case Engine::Implementation::Copy::complete:
            responder_.copied = 0;
            return true;
        case Engine::Implementation::Copy::incomplete:
            incomplete_ = true;
            return false;
        default:
            responder_.copied = 0;
            send_nak(NakCode::resend_as_records);
            return false;
    }
}

bool InboundRequest::have_receive() {
    if (!responder_.current_taken) {
        responder_.current_taken = take_receive(qp_, responder_.current);
    }
    if (!responder_.current_taken) {
        send_nak(NakCode::rnr);
        // The requester retransmits this packet and all later packets. Send no NAK for the later
        // packets that are already in flight: each NAK would count as a retry at the requester.
        responder_.gap_reported = true;
    }
    return responder_.current_taken;
}

void InboundRequest::complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length,
                              const Scatter* data) {
    engine_.release_writes(); // a receive completion orders the writes before it
    Completion completion = completion_of(qp_, header_);
    completion.wc.wr_id = responder_.current.wr_id;
    completion.wc.status = status;
    completion.wc.opcode = opcode;
    completion.wc.byte_len = static_cast<std::uint32_t>(length);
    if (tag_data_valid_) {
        completion.wc.wc_flags |= IBV_WC_TM_DATA_VALID;
    }
    responder_.current_taken = false;
    complete_receive(qp_, completion, data);
}

void InboundRequest::done() {
    responder_.in_message = false;
    responder_.expected_psn = (header_.psn + 1) & psn_mask;
    if (reliable() && (header_.flags & PacketHeader::ack_request) == 0) {
        engine_.defer_ack(qp_, from_);
        return;
    }
    responder_.ack_pending = false;
    send_ack();
}

bool Engine::Implementation::handle_request(Qp& qp, fabric::Connection* from,
                                            const Packet& packet) {
    if (qp.srd != nullptr) [[unlikely]] {
        handle_srd_request(qp, from, packet);
        return true;
    }
    return InboundRequest(*this, qp, from, packet)();
}

} // namespace softverbs
