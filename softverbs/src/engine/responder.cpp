// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "responding.hpp"

namespace softverbs {

void Responding::operator()() {
    const ibv_qp_state state = qp_.state();
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) {
        return;
    }
    if (qp_.type() == IBV_QPT_UD) {
        datagram();
        return;
    }
    if (header_.source == qp_.attributes.dest_qp_num && in_sequence()) {
        execute();
    }
}

bool Responding::in_sequence() {
    const std::uint32_t ahead = (header_.psn - responder_.expected_psn) & psn_mask;
    if (!reliable()) {
        // A message begins anew wherever; one that lost a part is dropped.
        if (header_.offset == 0) {
            // What was to be fetched is not there any more when it comes again.
            const bool twice = ahead == psn_mask && (header_.flags & PacketHeader::to_fetch) != 0;
            responder_.expected_psn = twice ? responder_.expected_psn : header_.psn;
            responder_.in_message = false;
            return !twice;
        }
        return ahead == 0 && responder_.in_message && responder_.received == header_.offset;
    }
    if (ahead > psn_mask / 2) {
        again();
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
    // Something got lost: everything from there on comes again, whole messages only. Saying so once
    // is enough, as otherwise it would come again for each packet after the gap.
    if (!std::exchange(responder_.gap_reported, true)) {
        Outgoing refusal = answer(Kind::refuse);
        refusal.header.psn = responder_.expected_psn;
        refusal.header.refusal = Refusal::sequence;
        send_answer(refusal);
    }
    return false;
}

void Responding::again() {
    switch (header_.kind) {
        case Kind::read:
            read();
            break;
        case Kind::compare_swap:
        case Kind::fetch_add:
            again_atomic();
            break;
        default:
            if (is_last()) {
                acknowledge();
            }
            break;
    }
}

void Responding::again_atomic() {
    // The latest first: numbers wrap around.
    const std::size_t kept = std::min(responder_.atomics_done, responder_.atomics.size());
    for (std::size_t age = 1; age <= kept; ++age) {
        const Responder::Atomic& known =
            responder_.atomics[(responder_.atomics_done - age) % responder_.atomics.size()];
        if (known.psn == header_.psn) {
            Outgoing result = answer(Kind::atomic_result);
            result.header.compare_add = known.value;
            send_answer(result);
            return;
        }
    }
}

void Responding::execute() {
    if (!reliable() && header_.kind != Kind::send && header_.kind != Kind::write) {
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

Outgoing Responding::answer(Kind kind) const {
    Outgoing packet;
    packet.header.kind = kind;
    packet.header.service = header_.service;
    packet.header.destination = header_.source;
    packet.header.source = qp_.number();
    packet.header.psn = header_.psn;
    packet.header.device = static_cast<std::uint8_t>(qp_.requester.device);
    return packet;
}

void Responding::send_answer(Outgoing& answer) {
    static_cast<void>(engine_.transmit(from_, fabric::Lane::responses, answer));
}

void Responding::acknowledge() {
    if ((header_.flags & PacketHeader::wants_answer) != 0) {
        Outgoing packet = answer(Kind::acknowledge);
        send_answer(packet);
    }
}

void Responding::refuse(Refusal refusal) {
    // Unreliable queue pairs are told that nothing is going to be fetched, and no more.
    if (reliable() || (header_.flags & PacketHeader::wants_answer) != 0) {
        Outgoing packet = answer(Kind::refuse);
        packet.header.refusal = refusal;
        packet.header.rnr_timer = qp_.attributes.min_rnr_timer;
        send_answer(packet);
    }
}

void Responding::refuse(Refusal refusal, ibv_event_type event) {
    refuse(refusal);
    if (reliable()) {
        enter_error(qp_, event);
    }
}

bool Responding::permitted(unsigned access, Window& window) {
    if (header_.length == 0) {
        return true;
    }
    if ((qp_.attributes.qp_access_flags & access) != 0 &&
        open_remote(qp_, header_.rkey, header_.remote_address, header_.length, access, window) ==
            Denied::no) {
        return true;
    }
    refuse(Refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
    return false;
}

bool Responding::sums_up() const {
    if ((header_.flags & PacketHeader::to_fetch) == 0) {
        return true; // parse_packet() saw to it
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

bool Responding::store(const EntryList& entries) {
    const std::uint64_t before = qp_.type() == IBV_QPT_UD ? grh_length : 0;
    if ((header_.flags & PacketHeader::to_fetch) == 0) {
        if (!entries.put(before + header_.offset, packet_.bytes)) {
            refuse(Refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
            return false;
        }
        return true;
    }
    if (entries.fetch(before, from_, fabric::Lane::requests, packet_.segments) != 0) {
        refuse(Refusal::resend_as_records);
        return false;
    }
    return true;
}

bool Responding::have_receive() {
    if (!responder_.current_taken) {
        responder_.current_taken = take_receive(qp_, responder_.current);
    }
    if (!responder_.current_taken) {
        refuse(Refusal::receiver_not_ready);
    }
    return responder_.current_taken;
}

void Responding::complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length) {
    Completion completion;
    ibv_wc& wc = completion.wc;
    wc.wr_id = responder_.current.wr_id;
    wc.status = status;
    wc.opcode = opcode;
    wc.byte_len = static_cast<std::uint32_t>(length);
    wc.src_qp = header_.source;
    if ((header_.flags & PacketHeader::has_immediate) != 0) {
        wc.imm_data = header_.imm_or_key;
        wc.wc_flags |= IBV_WC_WITH_IMM;
    }
    if ((header_.flags & PacketHeader::has_invalidate) != 0) {
        wc.invalidated_rkey = header_.imm_or_key;
        wc.wc_flags |= IBV_WC_WITH_INV;
    }
    if ((header_.flags & PacketHeader::has_grh) != 0) {
        wc.wc_flags |= IBV_WC_GRH;
    }
    wc.slid = header_.source_lid;
    wc.sl = header_.service_level;
    completion.solicited = (header_.flags & PacketHeader::solicited) != 0;
    responder_.current_taken = false;
    complete_receive(qp_, completion);
}

void Responding::done() {
    responder_.in_message = false;
    responder_.expected_psn = (header_.psn + 1) & psn_mask;
    acknowledge();
}

void Engine::Implementation::respond(Qp& qp, fabric::Connection* from, const Packet& packet) {
    Responding(*this, qp, from, packet)();
}

} // namespace softverbs
