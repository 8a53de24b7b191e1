// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "../process.hpp"
#include "implementation.hpp"

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using Refusal = PacketHeader::Refusal;

constexpr std::size_t grh_length = 40;

std::uint64_t capacity(const RecvRequest& request) noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < request.entries; ++i) {
        sum += request.entry[i].length;
    }
    return sum;
}

/// What is written before a datagram that came by GID: the beginning of an IPv6 header.
std::array<std::byte, grh_length> make_grh(const PacketHeader& header) noexcept {
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6U << 28U);
    grh.paylen = htobe16(static_cast<std::uint16_t>(header.length));
    grh.next_hdr = 0x1b; // an InfiniBand header follows
    grh.hop_limit = 1;
    grh.sgid = header.source_gid;
    grh.dgid = header.destination_gid;
    std::array<std::byte, grh_length> bytes{};
    static_assert(sizeof grh == grh_length);
    std::memcpy(bytes.data(), &grh, sizeof grh);
    return bytes;
}

/// One packet for a queue pair, being answered.
class Responding {
  public:
    Responding(Engine::Implementation& engine, Qp& qp, fabric::Connection* from,
               const Packet& packet)
        : engine_(engine),
          qp_(qp),
          responder_(qp.responder),
          from_(from),
          packet_(packet),
          header_(packet.header) {}

    void operator()();

  private:
    [[nodiscard]] bool reliable() const { return qp_.type() == IBV_QPT_RC; }
    void datagram();
    /// Whether the packet is the next one; what is not is seen to.
    bool in_sequence();
    void again();
    void again_atomic();
    void execute();
    void send();
    void write();
    void read();
    void atomic();
    /// What the memory had before it was changed; none: it was revoked.
    [[nodiscard]] std::optional<std::uint64_t> change(const Window& window) const;

    /// The data of a message, to where it goes. False: it was not to be had, and that was said.
    bool store(const EntryList& entries);
    [[nodiscard]] bool sums_up() const;
    [[nodiscard]] bool is_last() const {
        return (header_.flags & PacketHeader::to_fetch) != 0 ||
               header_.offset + header_.payload == header_.length;
    }
    /// A receive request for the message; false: there is none, and that was said.
    bool have_receive();
    void complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length);
    /// The packet was the last of its message, and is done.
    void done();

    [[nodiscard]] Outgoing answer(Kind kind) const;
    void send_answer(Outgoing& answer);
    void acknowledge();
    void refuse(Refusal refusal);
    /// And the queue pair fails.
    void refuse(Refusal refusal, ibv_event_type event);
    bool permitted(unsigned access, Window& window);

    Engine::Implementation& engine_;
    Qp& qp_;
    Responder& responder_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
};

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

void Responding::send() {
    if (!sums_up() || !have_receive()) {
        return;
    }
    const RecvRequest& request = responder_.current;
    if (header_.length > capacity(request)) {
        if (reliable()) {
            complete(IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 0);
        }
        refuse(Refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    {
        EntryList entries;
        if (entries.open(qp_.pd(), {request.entry.data(), request.entries}, header_.length, true) !=
            Denied::no) {
            complete(IBV_WC_RECV, IBV_WC_LOC_PROT_ERR, 0);
            refuse(Refusal::remote_operation);
            enter_error(qp_);
            return;
        }
        if (!store(entries)) {
            return;
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (!is_last()) {
        return;
    }
    if ((header_.flags & PacketHeader::has_invalidate) != 0 &&
        !invalidate(qp_, header_.imm_or_key)) {
        refuse(Refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    complete(IBV_WC_RECV, IBV_WC_SUCCESS, header_.length);
    done();
}

void Responding::write() {
    Window window{};
    if (!sums_up() || !permitted(IBV_ACCESS_REMOTE_WRITE, window)) {
        return;
    }
    const bool with_immediate = (header_.flags & PacketHeader::has_immediate) != 0;
    if (with_immediate && is_last() && !have_receive()) {
        return;
    }
    {
        EntryList target;
        target.open(window, true);
        if (!store(target)) {
            return;
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (!is_last()) {
        return;
    }
    if (with_immediate) {
        complete(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, header_.length);
    }
    done();
}

void Responding::read() {
    Window window{};
    if (!permitted(IBV_ACCESS_REMOTE_READ, window)) {
        return;
    }
    Outgoing data = answer(Kind::read_data);
    data.header.length = header_.length;
    data.header.offset = header_.offset;
    data.header.rkey = header_.rkey;
    data.header.remote_address = header_.remote_address;
    EntryList source;
    if ((header_.flags & PacketHeader::to_fetch) != 0) {
        if (header_.offset != 0 || engine_.describe(from_, fabric::Lane::responses,
                                                    std::span(&window, 1), data.segments) == 0) {
            refuse(Refusal::resend_as_records);
            return;
        }
        data.set_segments(1);
        if (from_ != nullptr) {
            engine_.peers[from_].may_fetch_answers = true;
        }
    } else {
        if (header_.payload > record_payload) {
            refuse(Refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
            return;
        }
        source.open(window, false);
        data.header.payload = header_.payload;
        const auto parts =
            source.parts(header_.offset, header_.payload, std::span(data.parts).subspan(1));
        if (!parts) {
            refuse(Refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
            return;
        }
        data.count = 1 + *parts;
    }
    if (header_.psn == responder_.expected_psn &&
        header_.offset + header_.payload == header_.length) {
        responder_.expected_psn = (header_.psn + 1) & psn_mask;
    }
    send_answer(data);
}

void Responding::atomic() {
    Window window{};
    if (header_.length != sizeof(std::uint64_t) || header_.offset != 0 ||
        header_.remote_address % sizeof(std::uint64_t) != 0) {
        refuse(Refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    if (!permitted(IBV_ACCESS_REMOTE_ATOMIC, window)) {
        return;
    }
    if (reinterpret_cast<std::uintptr_t>(window.data) % sizeof(std::uint64_t) != 0) {
        refuse(Refusal::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    const auto before = change(window);
    if (!before) {
        refuse(Refusal::remote_access, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    responder_.atomics[responder_.atomics_done++ % responder_.atomics.size()] = {header_.psn,
                                                                                 *before};
    responder_.expected_psn = (header_.psn + 1) & psn_mask;
    Outgoing result = answer(Kind::atomic_result);
    result.header.compare_add = *before;
    send_answer(result);
}

std::optional<std::uint64_t> Responding::change(const Window& window) const {
    if (window.data == nullptr) {
        return 0;
    }
    const bool adds = header_.kind == Kind::fetch_add;
    std::uint64_t before = header_.compare_add;
    if (is_unmapped(window)) {
        // Atomic for devices of this process, which share its lock.
        if (!copy_from(window, 0, std::as_writable_bytes(std::span(&before, 1)))) {
            return std::nullopt;
        }
        const std::uint64_t after = adds                            ? before + header_.compare_add
                                    : before == header_.compare_add ? header_.swap
                                                                    : before;
        return copy_to(window, 0, std::as_bytes(std::span(&after, 1))) ? std::optional(before)
                                                                       : std::nullopt;
    }
    EntryList target;
    target.open(window, true);
    const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(window.data));
    if (adds) {
        return value.fetch_add(header_.compare_add);
    }
    value.compare_exchange_strong(before, header_.swap);
    return before;
}

void Responding::datagram() {
    if (header_.kind != Kind::send || (header_.flags & PacketHeader::to_fetch) != 0 || !is_last() ||
        header_.offset != 0 || header_.qkey != qp_.attributes.qkey) {
        return;
    }
    if (!responder_.current_taken) {
        responder_.current_taken = take_receive(qp_, responder_.current);
    }
    const RecvRequest& request = responder_.current;
    const std::uint64_t length = header_.length + grh_length;
    if (!responder_.current_taken || length > capacity(request)) {
        return;
    }
    {
        EntryList entries;
        if (entries.open(qp_.pd(), {request.entry.data(), request.entries}, length, true) !=
            Denied::no) {
            complete(IBV_WC_RECV, IBV_WC_LOC_PROT_ERR, 0);
            enter_error(qp_);
            return;
        }
        if ((header_.flags & PacketHeader::has_grh) != 0) {
            static_cast<void>(entries.put(0, make_grh(header_))); // if it fails, the data does
        }
        if (!store(entries)) {
            return;
        }
    }
    complete(IBV_WC_RECV, IBV_WC_SUCCESS, length);
}

} // namespace

void Engine::Implementation::respond(Qp& qp, fabric::Connection* from, const Packet& packet) {
    Responding(*this, qp, from, packet)();
}

} // namespace softverbs
