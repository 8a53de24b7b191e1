// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "engine/addressing.hpp"
#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "fabric/clock.hpp"
#include "objects/process.hpp"

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using efa::Status;

/// If the connection to the responder's process has no room, the requester tries again to send the
/// request after this time (in nanoseconds).
constexpr std::uint64_t full_wait_ns = 200'000;

bool is_write(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

bool is_rdma(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_READ || is_write(opcode);
}

/// Sends the packets of one SRD request.
class Transmission {
  public:
    Transmission(Engine::Implementation& engine, Qp& qp, std::uint64_t number, SrdRequest& request)
        : engine_(engine),
          qp_(qp),
          number_(number),
          request_(request),
          length_(request.request.length) {}

    /// Sends packets until all data was sent, the requester must wait, or the destination cannot be
    /// reached. If the request fails, it is completed with an error and no longer exists.
    void operator()() {
        engine_.release_writes(); // a NIC reads memory after earlier RDMA writes to it
        request_.state = SrdRequest::State::sent;
        EntryList entries;
        if (const Status status = check(entries); status != Status::success) {
            complete_srd(qp_, number_, status);
            return;
        }
        request_.deadline = fabric::now_ns() + (first_srd_timeout_ns << request_.retries);
        engine_.set_timer_before(qp_, request_.deadline);
        if (const Status status = find_destination(); status != Status::success) {
            complete_srd(qp_, number_, status);
            return;
        }
        while (reachable_ && (!request_.begun || request_.sent < length_) && !must_wait()) {
            if (!send_packet(entries)) {
                return;
            }
        }
    }

  private:
    [[nodiscard]] ibv_wr_opcode opcode() const noexcept { return request_.request.opcode; }
    [[nodiscard]] bool reads() const noexcept { return opcode() == IBV_WR_RDMA_READ; }

    [[nodiscard]] Status check(EntryList& entries) const {
        const Port* const port = device_of(qp_.qp_base).port(qp_.attributes.port_num);
        if (port == nullptr) {
            return Status::internal_error; // a test has reduced the number of ports
        }
        if (length_ > (is_rdma(opcode()) ? efa::max_rdma_length : port->attributes.max_msg_sz)) {
            return Status::bad_length;
        }
        const ibv_ah_attr& address = request_.request.destination;
        if (address.grh.sgid_index >= port->gids.size()) {
            return Status::invalid_ah;
        }
        const std::span list(request_.entries.data(), request_.request.entries);
        return request_.request.is_inline || entries.open(qp_.pd(), list, length_, reads())
                   ? Status::success
                   : Status::invalid_lkey;
    }

    Status find_destination() {
        Device& device = device_of(qp_.qp_base);
        const Port& port = *device.port(qp_.attributes.port_num);
        destination_ = destination_of(device, request_.request.destination);
        request_.to = nullptr;
        reachable_ = false;
        if (destination_.device < 0 || port.attributes.state != IBV_PORT_ACTIVE) {
            return Status::success; // the packets are lost
        }
        reachable_ = engine_.reach(request_.request.remote_qpn, destination_.route, request_.to);
        return reachable_ || destination_.route.remote ? Status::success
                                                       : Status::remote_bad_destination;
    }

    [[nodiscard]] bool must_wait() const noexcept {
        const bool is_last = length_ - request_.sent <= record_payload;
        // The last packet of an RDMA write can complete a receive request, so it must be executed
        // last. Send it only after all other packets of the write were acknowledged.
        if (is_write(opcode()) && is_last && request_.acknowledged < request_.sent) {
            return true;
        }
        return request_.sent - request_.acknowledged >= read_window;
    }

    void fill_header(PacketHeader& header, std::uint64_t bytes) const {
        const SendRequest& wanted = request_.request;
        Device& device = device_of(qp_.qp_base);
        if (!set_operation(wanted, header)) {
            header.kind = Kind::read;
        }
        if (request_.sent + bytes != length_) {
            header.flags = 0; // only the last packet has the immediate data
        }
        header.flags |= PacketHeader::has_grh;
        header.service = static_cast<std::uint8_t>(IBV_QPT_DRIVER);
        header.destination = wanted.remote_qpn;
        header.source = qp_.number();
        header.psn = static_cast<std::uint32_t>(number_);
        header.remote_address = wanted.remote_address;
        header.rkey = wanted.rkey;
        header.qkey = wanted.remote_qkey;
        header.length = length_;
        header.offset = request_.sent;
        header.payload = static_cast<std::uint32_t>(bytes);
        header.compare_add = oldest();
        header.swap = qp_.srd->epoch;
        header.device = static_cast<std::uint8_t>(destination_.device);
        const Port& port = *device.port(qp_.attributes.port_num);
        header.source_gid = port.gids[wanted.destination.grh.sgid_index].gid;
        header.destination_gid = wanted.destination.grh.dgid;
    }

    /// Returns the number of the oldest request of this queue pair to the same destination queue
    /// pair that has not completed.
    [[nodiscard]] std::uint32_t oldest() const noexcept {
        const auto is_same = [this](const auto& other) {
            const SendRequest& one = other.second.request;
            return one.remote_qpn == request_.request.remote_qpn &&
                   std::ranges::equal(one.destination.grh.dgid.raw,
                                      request_.request.destination.grh.dgid.raw);
        };
        return static_cast<std::uint32_t>(std::ranges::find_if(qp_.srd->requests, is_same)->first);
    }

    /// Sends the next packet of the request. Returns false if no more packets can be sent now, or
    /// if the request has failed.
    bool send_packet(const EntryList& entries) {
        const std::uint64_t bytes =
            std::min<std::uint64_t>(length_ - request_.sent, record_payload);
        Outgoing packet;
        fill_header(packet.header, bytes);
        if (request_.request.is_inline) {
            packet.parts[1] = std::span(request_.inline_data).first(length_);
            packet.count = 2;
        } else if (!reads()) {
            const auto parts =
                entries.parts(request_.sent, bytes, std::span(packet.parts).subspan(1));
            if (!parts) {
                complete_srd(qp_, number_, Status::invalid_lkey); // the memory was revoked
                return false;
            }
            packet.count = 1 + *parts;
        }
        switch (engine_.transmit(request_.to, fabric::Lane::requests, packet)) {
            case fabric::Sent::full:
                wait_for_room();
                return false;
            case fabric::Sent::closed:
                request_.to = nullptr; // the packet is lost
                return false;
            case fabric::Sent::sent:
                break;
        }
        request_.begun = true;
        request_.sent += bytes;
        request_.record = request_.to == nullptr ? 0 : request_.to->sent();
        return true;
    }

    void wait_for_room() {
        Requester& requester = qp_.requester;
        request_.blocked = true;
        qp_.srd->blocked.push_back(number_);
        // The queue pair may have requests to several processes whose rings are full. Store only
        // one of these connections: on_room() continues the queue pair when this connection has
        // room. The timer continues the requests to the other processes.
        if (!requester.stalled) {
            engine_.stalled.push_back(&qp_);
            requester.stalled = true;
            requester.connection = request_.to;
        }
        engine_.set_timer_before(qp_, fabric::now_ns() + full_wait_ns);
    }

    Engine::Implementation& engine_;
    Qp& qp_;
    std::uint64_t number_;
    SrdRequest& request_;
    std::uint64_t length_;
    Destination destination_;
    bool reachable_ = false;
};

} // namespace

void transmit_srd(Engine::Implementation& engine, Qp& qp, std::uint64_t number) {
    const auto found = qp.srd->requests.find(number);
    if (found != qp.srd->requests.end()) {
        found->second.blocked = false;
        Transmission(engine, qp, number, found->second)();
    }
}

} // namespace softverbs
