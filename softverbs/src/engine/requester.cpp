// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <utility>

#include "../process.hpp"
#include "implementation.hpp"

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using Refusal = PacketHeader::Refusal;
using State = SendRequest::State;

/// Requests without a signal are acknowledged with one that comes after them. When none comes the
/// timer asks.
constexpr std::uint64_t answer_every = 16;

bool is_atomic(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
/// Answered with data, one by one.
bool returns_data(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
/// Done by this side alone.
bool is_local(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

Kind kind_of(ibv_wr_opcode opcode) noexcept {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return Kind::write;
        case IBV_WR_RDMA_READ:
            return Kind::read;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return Kind::compare_swap;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return Kind::fetch_add;
        default:
            return Kind::send;
    }
}

/// Index of the device that an address leads to; -1: none.
int device_at(const ibv_ah_attr& address) {
    for (const auto& device : process().devices) {
        for (const Port& port : device->ports) {
            const auto has_gid = [&](const ibv_gid_entry& entry) {
                return std::memcmp(&entry.gid, &address.grh.dgid, sizeof(ibv_gid)) == 0;
            };
            if (address.is_global != 0 ? std::ranges::any_of(port.gids, has_gid)
                                       : port.attributes.lid == address.dlid) {
                return static_cast<int>(device->index);
            }
        }
    }
    return -1;
}

/// What a request becomes when its turn has come.
enum class Step : std::uint8_t { sent, wait, again, failed };

/// One request of a queue pair, being sent.
class Sending {
  public:
    Sending(Engine::Implementation& engine, Qp& qp, std::uint64_t position)
        : engine_(engine),
          qp_(qp),
          requester_(qp.requester),
          position_(position),
          request_(qp.sends[position]) {}

    Step operator()();

  private:
    Step local();
    Step datagram();
    Step connected();
    /// For requests before this one.
    [[nodiscard]] bool has_to_wait() const;
    /// Not before those that came earlier are done.
    Step fail_in_turn(ibv_wc_status status);
    [[nodiscard]] bool wants_answer() const;
    [[nodiscard]] ibv_wc_status open(EntryList& entries, bool write);
    void fill_header(Outgoing& packet) const;
    [[nodiscard]] std::uint64_t data_length() const {
        return is_atomic(request_.opcode) ? sizeof(std::uint64_t) : request_.length;
    }
    /// Sends the whole request, or as much of it as there is room for.
    Step send_data(const EntryList& entries);
    Step send_read();
    fabric::Sent send_part(const EntryList& entries, std::uint64_t length, bool last);
    bool send_segments(const EntryList& entries, fabric::Sent& sent);
    Step after(fabric::Sent sent);

    Engine::Implementation& engine_;
    Qp& qp_;
    Requester& requester_;
    std::uint64_t position_;
    SendRequest& request_;
    fabric::Connection* to_ = nullptr;
};

Step Sending::operator()() {
    if (is_local(request_.opcode)) {
        return local();
    }
    return qp_.type() == IBV_QPT_UD ? datagram() : connected();
}

Step Sending::fail_in_turn(ibv_wc_status status) {
    if (qp_.sends.first() != position_) {
        // Those before are asked about, in case that none of them wanted an answer.
        if (qp_.type() == IBV_QPT_RC && requester_.resent_until < position_) {
            requester_.resent_until = position_;
            engine_.resend(qp_);
            return Step::again;
        }
        return Step::wait;
    }
    complete_send(qp_, status);
    if (qp_.type() == IBV_QPT_RC) {
        enter_error(qp_);
    } else {
        enter_send_queue_error(qp_);
    }
    return Step::failed;
}

Step Sending::local() {
    if (qp_.sends.first() != position_) {
        return fail_in_turn(IBV_WC_SUCCESS);
    }
    const bool bind = request_.opcode == IBV_WR_BIND_MW;
    const bool done = bind ? bind_mw(qp_, *request_.window, request_.bind, request_.rkey)
                           : invalidate(qp_, request_.invalidate_rkey);
    if (!done) {
        return fail_in_turn(bind ? IBV_WC_MW_BIND_ERR : IBV_WC_LOC_PROT_ERR);
    }
    request_.state = State::done;
    return Step::sent;
}

ibv_wc_status Sending::open(EntryList& entries, bool write) {
    if (data_length() > device_of(qp_.qp_base).port(1)->attributes.max_msg_sz) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (is_atomic(request_.opcode) && request_.length < sizeof(std::uint64_t)) {
        return IBV_WC_LOC_LEN_ERR;
    }
    if (request_.is_inline) {
        return IBV_WC_SUCCESS;
    }
    return entries.open(qp_.pd(), qp_.entries(position_), data_length(), write) == Denied::no
               ? IBV_WC_SUCCESS
               : IBV_WC_LOC_PROT_ERR;
}

void Sending::fill_header(Outgoing& packet) const {
    PacketHeader& header = packet.header;
    header.kind = kind_of(request_.opcode);
    header.service = static_cast<std::uint8_t>(qp_.type());
    header.source = qp_.number();
    header.psn = request_.psn;
    header.length = data_length();
    switch (request_.opcode) {
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            header.flags |= PacketHeader::has_immediate;
            header.imm_or_key = request_.imm_data;
            break;
        case IBV_WR_SEND_WITH_INV:
            header.flags |= PacketHeader::has_invalidate;
            header.imm_or_key = request_.invalidate_rkey;
            break;
        default:
            break;
    }
    if ((request_.flags & IBV_SEND_SOLICITED) != 0) {
        header.flags |= PacketHeader::solicited;
    }
    header.remote_address = request_.remote_address;
    header.rkey = request_.rkey;
    header.compare_add = request_.compare_add;
    header.swap = request_.swap;
    if (qp_.type() == IBV_QPT_UD) {
        const ibv_ah_attr& address = request_.destination;
        Device& device = device_of(qp_.qp_base);
        header.destination = request_.remote_qpn;
        header.qkey = request_.remote_qkey;
        header.device = static_cast<std::uint8_t>(device_at(address));
        header.service_level = address.sl;
        const Port& port = *device.port(qp_.attributes.port_num);
        header.source_lid = port.attributes.lid;
        header.destination_lid = address.dlid;
        if (address.is_global != 0) {
            header.flags |= PacketHeader::has_grh;
            header.source_gid = port.gids[address.grh.sgid_index].gid;
            header.destination_gid = address.grh.dgid;
        }
    } else {
        header.destination = qp_.attributes.dest_qp_num;
        header.device = static_cast<std::uint8_t>(requester_.device);
    }
}

Step Sending::datagram() {
    EntryList entries;
    Device& device = device_of(qp_.qp_base);
    const Port* const found = device.port(qp_.attributes.port_num);
    if (found == nullptr) {
        return fail_in_turn(IBV_WC_LOC_QP_OP_ERR); // the device had more ports before
    }
    const Port& port = *found;
    if (request_.length > std::uint64_t{128} << port.attributes.active_mtu) {
        return fail_in_turn(IBV_WC_LOC_LEN_ERR);
    }
    if (const ibv_wc_status status = open(entries, false); status != IBV_WC_SUCCESS) {
        return fail_in_turn(status);
    }
    const ibv_ah_attr& address = request_.destination;
    if (address.is_global != 0 && address.grh.sgid_index >= port.gids.size()) {
        return fail_in_turn(IBV_WC_LOC_QP_OP_ERR);
    }
    // Nobody there, or no room there: datagrams may get lost.
    requester_.connection = nullptr;
    if (device_at(address) >= 0 && engine_.reach(request_.remote_qpn, to_) &&
        port.attributes.state == IBV_PORT_ACTIVE) {
        requester_.connection = to_;
        if (send_part(entries, request_.length, true) == fabric::Sent::full) {
            return after(fabric::Sent::full);
        }
    }
    request_.state = State::done;
    return Step::sent;
}

bool Sending::has_to_wait() const {
    const unsigned reads = requester_.reads_in_flight;
    if ((request_.flags & IBV_SEND_FENCE) != 0 && reads > 0) {
        return true;
    }
    // A read sees what was there before later requests, so they wait until it has fetched that.
    if (request_.opcode != IBV_WR_RDMA_READ && requester_.fetches_in_flight > 0) {
        return true;
    }
    return returns_data(request_.opcode) &&
           reads >= std::max<unsigned>(1, qp_.attributes.max_rd_atomic);
}

Step Sending::connected() {
    const bool data_comes_back = returns_data(request_.opcode);
    if (request_.state == State::waiting && has_to_wait()) {
        return Step::wait;
    }
    EntryList entries;
    if (const ibv_wc_status status = open(entries, data_comes_back); status != IBV_WC_SUCCESS) {
        return fail_in_turn(status);
    }
    if (request_.state == State::waiting) {
        request_.psn = requester_.next_psn;
        request_.state = State::sending;
        request_.offset = 0;
    } else if (request_.awaiting) {
        return Step::wait;
    }
    fabric::Connection* connection = requester_.connection;
    const Port* const port = device_of(qp_.qp_base).port(qp_.attributes.port_num);
    const bool reachable = requester_.device >= 0 && port != nullptr &&
                           port->attributes.state == IBV_PORT_ACTIVE &&
                           engine_.reach(qp_.attributes.dest_qp_num, connection);
    if (!reachable) {
        // It goes out, and nobody answers.
        request_.offset = data_length();
        return after(fabric::Sent::gone);
    }
    requester_.connection = to_ = connection;
    return request_.opcode == IBV_WR_RDMA_READ ? send_read() : send_data(entries);
}

bool Sending::wants_answer() const {
    if (qp_.signal_all || (request_.flags & IBV_SEND_SIGNALED) != 0 ||
        returns_data(request_.opcode) || position_ < requester_.resent_until ||
        position_ % answer_every == 0) {
        return true;
    }
    if (position_ + 1 == qp_.sends.end()) {
        return false;
    }
    const SendRequest& following = qp_.sends[position_ + 1];
    return is_local(following.opcode) || (following.flags & IBV_SEND_FENCE) != 0;
}

fabric::Sent Sending::send_part(const EntryList& entries, std::uint64_t length, bool last) {
    Outgoing packet;
    fill_header(packet);
    packet.header.offset = request_.offset;
    packet.header.payload = static_cast<std::uint32_t>(length);
    if (qp_.type() == IBV_QPT_RC && last && wants_answer()) {
        packet.header.flags |= PacketHeader::wants_answer;
        requester_.asked_until = position_ + 1;
    }
    if (is_atomic(request_.opcode)) {
        packet.header.payload = 0;
    } else if (request_.is_inline) {
        packet.parts[1] = {qp_.inline_data(position_) + request_.offset,
                           static_cast<std::size_t>(length)};
        packet.count = 2;
    } else {
        packet.count =
            1 + entries.parts(request_.offset, length, std::span(packet.parts).subspan(1));
    }
    return engine_.transmit(to_, fabric::Lane::requests, packet);
}

bool Sending::send_segments(const EntryList& entries, fabric::Sent& sent) {
    if (request_.is_inline || requester_.records_only || request_.length <= small_message ||
        request_.offset != 0) {
        return false;
    }
    Outgoing packet;
    const std::size_t segments = engine_.describe(to_, entries.windows(), packet.segments);
    if (segments == 0) {
        return false;
    }
    fill_header(packet);
    packet.set_segments(segments);
    // What is fetched must not change before it was.
    if (qp_.type() == IBV_QPT_UC || wants_answer()) {
        packet.header.flags |= PacketHeader::wants_answer;
        requester_.asked_until = position_ + 1;
    }
    sent = engine_.transmit(to_, fabric::Lane::requests, packet);
    if (sent == fabric::Sent::sent) {
        request_.offset = request_.length;
    }
    return true;
}

Step Sending::send_data(const EntryList& entries) {
    fabric::Sent sent = fabric::Sent::sent;
    if (send_segments(entries, sent)) {
        return after(sent);
    }
    const std::uint64_t total = is_atomic(request_.opcode) ? 0 : request_.length;
    do {
        const std::uint64_t length =
            std::min<std::uint64_t>(total - request_.offset, record_payload);
        const bool last = request_.offset + length == total;
        sent = send_part(entries, length, last);
        if (sent != fabric::Sent::sent) {
            break;
        }
        request_.offset += length;
    } while (request_.offset < total);
    // Data that was copied into records has left: what becomes of it there, unreliable queue pairs
    // do not know.
    if (sent == fabric::Sent::sent && qp_.type() == IBV_QPT_UC) {
        request_.state = State::done;
    }
    return after(sent);
}

Step Sending::send_read() {
    Outgoing packet;
    fill_header(packet);
    PacketHeader& header = packet.header;
    header.flags |= PacketHeader::wants_answer;
    header.offset = request_.offset;
    std::uint64_t length = request_.length - request_.offset;
    if (length > small_message && !requester_.records_only) {
        header.flags |= PacketHeader::to_fetch;
    } else {
        length = std::min<std::uint64_t>(length, record_payload);
    }
    header.payload = static_cast<std::uint32_t>(length);
    const fabric::Sent sent = engine_.transmit(to_, fabric::Lane::requests, packet);
    if (sent == fabric::Sent::sent) {
        requester_.asked_until = position_ + 1;
        if ((header.flags & PacketHeader::to_fetch) != 0) {
            request_.fetches = true;
            ++requester_.fetches_in_flight;
        }
    }
    if (sent == fabric::Sent::sent && request_.offset + length < request_.length) {
        // The rest is asked for when this has come; nothing overtakes it.
        request_.record = to_ == nullptr ? 0 : to_->sent();
        request_.awaiting = true;
        return Step::wait;
    }
    return after(sent);
}

Step Sending::after(fabric::Sent sent) {
    switch (sent) {
        case fabric::Sent::full:
            if (!requester_.stalled) {
                requester_.stalled = true;
                engine_.stalled.push_back(&qp_);
            }
            return Step::wait;
        case fabric::Sent::gone:
            // As if the packet were lost, of which unreliable queue pairs know nothing.
            requester_.asked_until = position_ + 1;
            Engine::Implementation::disconnect(qp_);
            to_ = nullptr;
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

/// Completes what is done, in order.
void retire(Qp& qp) {
    while (!qp.sends.empty() && qp.sends.first() < qp.requester.next &&
           qp.sends.front().state == State::done) {
        const SendRequest& request = qp.sends.front();
        const bool has_length = returns_data(request.opcode);
        complete_send(qp, IBV_WC_SUCCESS,
                      has_length
                          ? static_cast<std::uint32_t>(
                                is_atomic(request.opcode) ? sizeof(std::uint64_t) : request.length)
                          : 0);
    }
}

bool in_flight(const SendRequest& request) noexcept {
    return request.state == State::sent || request.state == State::sending;
}

/// The request in flight with a sequence number, or the ring's end.
std::uint64_t find(Qp& qp, std::uint32_t psn) {
    const std::uint64_t limit = std::min(qp.requester.next + 1, qp.sends.end());
    for (std::uint64_t i = qp.sends.first(); i < limit; ++i) {
        const SendRequest& request = qp.sends[i];
        if (request.psn == psn && request.state != State::waiting && !is_local(request.opcode)) {
            return i;
        }
    }
    return qp.sends.end();
}

/// What was counted of a request when it was sent.
void discount(Qp& qp, SendRequest& request) noexcept {
    if (returns_data(request.opcode)) {
        --qp.requester.reads_in_flight;
    }
    if (std::exchange(request.fetches, false)) {
        --qp.requester.fetches_in_flight;
    }
}

void finish(Qp& qp, SendRequest& request) {
    if (in_flight(request)) {
        discount(qp, request);
        request.state = State::done;
    }
}

/// An answer to a later request says that those before were received, unless they have answers of
/// their own. False: one of these is missing.
bool finish_before(Qp& qp, std::uint64_t position) {
    for (std::uint64_t i = qp.sends.first(); i < position; ++i) {
        SendRequest& request = qp.sends[i];
        if (in_flight(request) && returns_data(request.opcode)) {
            return false;
        }
        finish(qp, request);
    }
    return true;
}

/// What a refusal is in a completion.
ibv_wc_status status_of(Refusal refusal) noexcept {
    switch (refusal) {
        case Refusal::remote_access:
            return IBV_WC_REM_ACCESS_ERR;
        case Refusal::remote_operation:
            return IBV_WC_REM_OP_ERR;
        default:
            return IBV_WC_REM_INV_REQ_ERR;
    }
}

/// How long a receiver that is not ready asks to be left alone, in units of 10 us: the Infiniband
/// specification's table for the RNR NAK timer.
constexpr std::array<std::uint32_t, 32> rnr_delays{
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

/// Data that an answer to a read brings, or says where to fetch: whether it was what was asked for.
bool take_data(Qp& qp, std::uint64_t position, fabric::Connection* from, const Packet& packet,
               bool& could_not_fetch) {
    SendRequest& request = qp.sends[position];
    const PacketHeader& header = packet.header;
    if (header.length != request.length || header.offset != request.offset) {
        return false;
    }
    EntryList entries;
    if (entries.open(qp.pd(), qp.entries(position), request.length, true) != Denied::no) {
        return false;
    }
    if ((header.flags & PacketHeader::to_fetch) == 0) {
        // More than was asked for is what parse_packet() refuses; less is taken as a part.
        if (packet.bytes.empty() && request.length != 0) {
            return false;
        }
        entries.put(request.offset, packet.bytes);
        request.offset += packet.bytes.size();
        request.awaiting = false;
        return true;
    }
    if (header.payload != 1 || header.offset != 0 ||
        packet.segments.front().length != request.length) {
        return false;
    }
    could_not_fetch = entries.fetch(0, from, packet.segments) != 0;
    request.offset = request.length;
    return true;
}

} // namespace

int Engine::Implementation::device_of_peer(const Qp& qp) {
    return device_at(qp.attributes.ah_attr);
}

void Engine::Implementation::run(Qp& qp) {
    Requester& requester = qp.requester;
    const auto may_send = [&] {
        if (requester.stalled || requester.waiting_for_receiver ||
            requester.next >= qp.sends.end()) {
            return false;
        }
        // While it drains, what was sent is sent again, and what was sent in part is completed.
        return qp.state() == IBV_QPS_RTS ||
               (qp.state() == IBV_QPS_SQD &&
                (requester.next < requester.resent_until || in_flight(qp.sends[requester.next])));
    };
    while (may_send()) {
        SendRequest& request = qp.sends[requester.next];
        if (request.state != State::done) {
            const bool begins = request.state == State::waiting;
            const Step step = Sending(*this, qp, requester.next)();
            if (step == Step::again) {
                continue;
            }
            if (step == Step::failed) {
                break;
            }
            if (begins && returns_data(request.opcode) && in_flight(request)) {
                ++requester.reads_in_flight;
            }
            if (step == Step::wait) {
                break;
            }
        }
        if (qp.type() != IBV_QPT_UD && !is_local(request.opcode)) {
            requester.next_psn = (request.psn + 1) & psn_mask;
        }
        ++requester.next;
        retire(qp);
    }
    const bool outstanding =
        qp.sends.first() < requester.next ||
        (requester.next < qp.sends.end() && qp.sends[requester.next].state == State::sending);
    if (outstanding && !requester.timed &&
        (qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD)) {
        start_timer(qp);
    }
    drain();
}

void Engine::Implementation::disconnect(Qp& qp) noexcept {
    if (std::exchange(qp.requester.connection, nullptr) == nullptr) {
        return;
    }
    for (std::uint64_t i = qp.sends.first(); i < qp.sends.end(); ++i) {
        qp.sends[i].record = 0;
    }
}

bool Engine::Implementation::awaits(Qp& qp, std::uint32_t psn) {
    const std::uint64_t position = find(qp, psn);
    return position != qp.sends.end() && in_flight(qp.sends[position]);
}

void Engine::Implementation::resend(Qp& qp) {
    Requester& requester = qp.requester;
    const std::uint64_t next = requester.next;
    const bool in_part = next < qp.sends.end() && in_flight(qp.sends[next]);
    const std::uint64_t limit = in_part ? next + 1 : next;
    requester.resent_until = std::max(requester.resent_until, limit);
    std::uint64_t oldest = requester.next;
    for (std::uint64_t i = limit; i-- > qp.sends.first();) {
        SendRequest& request = qp.sends[i];
        if (in_flight(request)) {
            discount(qp, request);
            request.state = State::waiting;
            request.awaiting = false;
            oldest = i;
            requester.next_psn = request.psn;
        }
    }
    requester.next = oldest;
}

void Engine::Implementation::give_up_answers(Qp& qp) {
    for (std::uint64_t i = qp.sends.first(); i < qp.requester.next; ++i) {
        finish(qp, qp.sends[i]);
    }
    retire(qp);
}

void Engine::Implementation::fail_oldest(Qp& qp, ibv_wc_status status) {
    // It may have failed already, when its completion queue overran.
    if (!qp.sends.empty() && qp.state() != IBV_QPS_ERR) {
        complete_send(qp, status);
        enter_error(qp);
    }
}

bool Engine::Implementation::refused(Qp& qp, const PacketHeader& header) {
    Requester& requester = qp.requester;
    switch (header.refusal) {
        case Refusal::receiver_not_ready:
            if (requester.rnr_retries_left == 0) {
                retire(qp);
                fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
                return true;
            }
            if (qp.attributes.rnr_retry != 7) { // which means for ever
                --requester.rnr_retries_left;
            }
            ++process().counters.retried;
            resend(qp);
            retire(qp);
            if (qp.state() == IBV_QPS_ERR) {
                return true;
            }
            if (!std::exchange(requester.waiting_for_receiver, true)) {
                ++waiting_for_receivers;
            }
            set_timer(qp, std::uint64_t{rnr_delays[header.rnr_timer & 31U]} * 10'000);
            return true;
        case Refusal::sequence:
            ++process().counters.retried;
            resend(qp);
            return false;
        case Refusal::resend_as_records:
            requester.records_only = true;
            resend(qp);
            return false;
        default:
            retire(qp);
            fail_oldest(qp, status_of(header.refusal));
            return true;
    }
}

void Engine::Implementation::answered(Qp& qp, fabric::Connection* from, const Packet& packet) {
    const PacketHeader& header = packet.header;
    Requester& requester = qp.requester;
    if (header.source != qp.attributes.dest_qp_num || qp.type() == IBV_QPT_UD ||
        (qp.state() != IBV_QPS_RTS && qp.state() != IBV_QPS_SQD)) {
        return;
    }
    const std::uint64_t position = find(qp, header.psn);
    if (position == qp.sends.end()) {
        return; // an answer that came twice
    }
    SendRequest& request = qp.sends[position];
    if (qp.type() == IBV_QPT_UC) {
        // That it was fetched, or cannot be.
        if (header.kind == Kind::acknowledge || header.kind == Kind::refuse) {
            finish(qp, request);
            retire(qp);
            run(qp);
        }
        return;
    }
    requester.progressed = true;
    const bool all_before = finish_before(qp, position);
    switch (header.kind) {
        case Kind::acknowledge:
            if (all_before && !returns_data(request.opcode)) {
                finish(qp, request);
            }
            break;
        case Kind::read_data: {
            bool could_not_fetch = false;
            if (request.opcode == IBV_WR_RDMA_READ && in_flight(request) &&
                take_data(qp, position, from, packet, could_not_fetch)) {
                if (could_not_fetch) {
                    requester.records_only = true;
                    resend(qp);
                } else if (request.offset == request.length) {
                    finish(qp, request);
                }
            }
            break;
        }
        case Kind::atomic_result: {
            EntryList entries;
            if (is_atomic(request.opcode) && in_flight(request) &&
                entries.open(qp.pd(), qp.entries(position), sizeof(std::uint64_t), true) ==
                    Denied::no) {
                entries.put(0, std::as_bytes(std::span(&header.compare_add, 1)));
                finish(qp, request);
            }
            break;
        }
        case Kind::refuse:
            if (!in_flight(request)) {
                break; // the request was answered since
            }
            if (!all_before && header.refusal != Refusal::sequence) {
                resend(qp);
                break;
            }
            if (refused(qp, header)) {
                return;
            }
            break;
        default:
            break;
    }
    if (header.kind != Kind::refuse) {
        requester.retries_left = qp.attributes.retry_cnt;
        requester.rnr_retries_left = qp.attributes.rnr_retry;
    }
    retire(qp);
    run(qp);
}

} // namespace softverbs
