// SPDX-License-Identifier: BSD-3-Clause
#include "engine/addressing.hpp"
#include "engine/responder.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"
#include "objects/srd.hpp"

// The responder of SRD queue pairs; see objects/srd.hpp. It executes requests in the order of their
// arrival. A send or RDMA write that it has executed completely is not executed again if it is
// retransmitted.

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using NakCode = PacketHeader::NakCode;
using efa::Status;

/// Returns whether the request number @p one was used before the request number @p other. The
/// numbers wrap around.
bool is_before(std::uint32_t one, std::uint32_t other) noexcept {
    return static_cast<std::int32_t>(one - other) < 0;
}

/// Sends a response to an SRD request packet.
/// @param to  connection to the requester's process; null: this process
/// @param request  the header of the request packet
void respond(Engine::Implementation& engine, fabric::Connection* to, const PacketHeader& request,
             Outgoing& response) {
    PacketHeader& header = response.header;
    header.service = static_cast<std::uint8_t>(IBV_QPT_DRIVER);
    header.destination = request.source;
    header.source = request.destination;
    header.psn = request.psn;
    header.swap = request.swap;
    if (to != nullptr && to->between_hosts()) {
        header.device = device_by_address;
    } else {
        ibv_ah_attr address{};
        address.is_global = 1;
        address.grh.dgid = request.source_gid;
        const int device = destination_of(*process().devices.front(), address).device;
        if (device < 0) {
            return;
        }
        header.device = static_cast<std::uint8_t>(device);
    }
    static_cast<void>(engine.transmit(to, fabric::Lane::responses, response));
}

void send_nak(Engine::Implementation& engine, fabric::Connection* to, const PacketHeader& request,
              Status status) {
    Outgoing packet;
    packet.header.kind = Kind::nak;
    packet.header.nak_code =
        status == Status::remote_not_ready ? NakCode::rnr : NakCode::remote_operation;
    packet.header.imm_or_key = static_cast<std::uint32_t>(status);
    respond(engine, to, request, packet);
}

/// Executes one received SRD request packet.
class SrdInbound {
  public:
    SrdInbound(Engine::Implementation& engine, Qp& qp, fabric::Connection* from,
               const Packet& packet)
        : engine_(engine), qp_(qp), from_(from), packet_(packet), header_(packet.header) {}

    void operator()() {
        // An SRD packet without a GRH is invalid, so drop the packet. If the packet came from
        // another host, receive() has already checked the source GID in its GRH.
        if ((header_.flags & PacketHeader::has_grh) == 0) {
            return;
        }
        const ibv_qp_state state = qp_.state();
        if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR ||
            header_.qkey != qp_.attributes.qkey) {
            send_nak(engine_, from_, header_, Status::remote_bad_destination);
            return;
        }
        SrdSession& session = find_session();
        if (is_before(header_.psn, session.oldest)) {
            return; // a duplicate of a request that has completed
        }
        const auto executed = session.executed.find(header_.psn);
        if (executed != session.executed.end()) {
            reply(executed->second);
            return;
        }
        if (header_.kind == Kind::read) {
            read();
            return;
        }
        const Status status = header_.kind == Kind::write ? write() : send();
        if (is_last() && status != Status::remote_not_ready) {
            session.executed.emplace(header_.psn, status);
        }
        reply(status);
    }

  private:
    [[nodiscard]] bool is_last() const noexcept {
        return header_.offset + header_.payload == header_.length;
    }

    SrdSession& find_session() {
        SrdSource source;
        source.qp_number = header_.source;
        if (from_ != nullptr && from_->between_hosts()) {
            source.host = from_->route().remote;
        }
        SrdSession& session = qp_.srd->sessions[source];
        const auto oldest = static_cast<std::uint32_t>(header_.compare_add);
        if (session.epoch != header_.swap) {
            session = {};
            session.epoch = header_.swap;
            session.oldest = oldest;
        }
        if (is_before(session.oldest, oldest)) {
            session.oldest = oldest;
            std::erase_if(session.executed,
                          [oldest](const auto& one) { return is_before(one.first, oldest); });
        }
        return session;
    }

    void reply(Status status) {
        if (status != Status::success) {
            send_nak(engine_, from_, header_, status);
            return;
        }
        Outgoing packet;
        packet.header.kind = Kind::ack;
        packet.header.compare_add = header_.offset;
        packet.header.offset = packet.header.length = header_.offset + header_.payload;
        respond(engine_, from_, header_, packet);
    }

    void complete(const RecvRequest& request, ibv_wc_opcode opcode, Status status,
                  std::uint64_t length) {
        Completion completion = completion_of(qp_, header_);
        ibv_wc& wc = completion.wc;
        wc.wr_id = request.wr_id;
        wc.status = efa::wc_status(status);
        wc.vendor_err = static_cast<std::uint32_t>(status);
        wc.opcode = opcode;
        wc.byte_len = static_cast<std::uint32_t>(length);
        complete_receive(qp_, completion);
    }

    Status send() {
        if (header_.kind != Kind::send || header_.offset != 0 || !is_last() ||
            (header_.flags & PacketHeader::to_fetch) != 0) {
            return Status::remote_bad_status;
        }
        RecvRequest request;
        if (!take_receive(qp_, request)) {
            return Status::remote_not_ready;
        }
        if (header_.length > request.capacity()) {
            complete(request, IBV_WC_RECV, Status::bad_length, 0);
            return Status::remote_bad_length;
        }
        bool stored = false;
        {
            EntryList entries;
            stored = entries.open(qp_.pd(), request.list(), header_.length, true) &&
                     entries.put(0, packet_.bytes);
        }
        complete(request, IBV_WC_RECV, stored ? Status::success : Status::invalid_lkey,
                 stored ? header_.length : 0);
        return stored ? Status::success : Status::remote_bad_status;
    }

    /// Checks an RDMA request, and stores the memory range that it accesses in @p window.
    [[nodiscard]] Status open(unsigned access, Window& window) const {
        // EFA executes an RDMA request only if the responder has an address handle for the
        // requester.
        if (find_ah_number(qp_.pd(), header_.source_gid) == efa::unknown_ah) {
            return Status::remote_unknown_peer;
        }
        if (header_.length > efa::max_rdma_length) {
            return Status::remote_bad_length;
        }
        return open_remote(qp_, header_.rkey, header_.remote_address, header_.length, access,
                           window)
                   ? Status::success
                   : Status::remote_bad_address;
    }

    Status write() {
        if ((header_.flags & PacketHeader::to_fetch) != 0) {
            return Status::remote_bad_status;
        }
        Window window{};
        if (const Status status = open(IBV_ACCESS_REMOTE_WRITE, window);
            status != Status::success) {
            return status;
        }
        RecvRequest request;
        const bool with_immediate = (header_.flags & PacketHeader::has_immediate) != 0;
        if (with_immediate && !take_receive(qp_, request)) {
            return Status::remote_not_ready;
        }
        bool stored = false;
        {
            EntryList target;
            target.open(window, true);
            stored = target.put(header_.offset, packet_.bytes);
        }
        if (with_immediate) {
            complete(request, IBV_WC_RECV_RDMA_WITH_IMM,
                     stored ? Status::success : Status::invalid_lkey, header_.length);
        }
        return stored ? Status::success : Status::remote_bad_address;
    }

    void read() {
        Window window{};
        Status status = header_.payload <= record_payload ? open(IBV_ACCESS_REMOTE_READ, window)
                                                          : Status::remote_bad_status;
        Outgoing data;
        data.header.kind = Kind::read_data;
        data.header.length = header_.length;
        data.header.offset = header_.offset;
        data.header.payload = header_.payload;
        EntryList source;
        if (status == Status::success) {
            source.open(window, false);
            const auto parts =
                source.parts(header_.offset, header_.payload, std::span(data.parts).subspan(1));
            data.count = 1 + parts.value_or(0);
            status = parts ? Status::success : Status::remote_bad_address;
        }
        if (status != Status::success) {
            send_nak(engine_, from_, header_, status);
            return;
        }
        respond(engine_, from_, header_, data);
    }

    Engine::Implementation& engine_;
    Qp& qp_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
};

} // namespace

void Engine::Implementation::handle_srd_request(Qp& qp, fabric::Connection* from,
                                                const Packet& packet) {
    release_writes();
    SrdInbound(*this, qp, from, packet)();
}

void Engine::Implementation::reject_srd_request(fabric::Connection* from, const Packet& packet) {
    if (!process().devices.empty()) {
        send_nak(*this, from, packet.header, Status::remote_bad_destination);
    }
}

} // namespace softverbs
