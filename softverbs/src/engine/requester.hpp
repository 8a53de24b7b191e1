// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

[[nodiscard]] inline bool is_atomic(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
/// Returns whether the response to a request with this opcode contains data. Each such request
/// needs its own response.
[[nodiscard]] inline bool returns_data(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
/// Returns whether a request with this opcode is executed locally, without a packet.
[[nodiscard]] inline bool is_local(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
/// Sets the kind, the flags and imm_or_key in the header of a send or an RDMA write. Returns false
/// for other requests.
/// @param header  a PacketHeader or a ShortHeader
template <class Header>
[[nodiscard]] bool set_operation(const SendRequest& request, Header& header) noexcept {
    header.kind = PacketHeader::Kind::send;
    header.flags = 0;
    header.imm_or_key = 0;
    switch (request.opcode) {
        case IBV_WR_SEND:
            break;
        case IBV_WR_RDMA_WRITE:
            header.kind = PacketHeader::Kind::write;
            break;
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            header.kind = PacketHeader::Kind::write;
            [[fallthrough]];
        case IBV_WR_SEND_WITH_IMM:
            header.flags = PacketHeader::has_immediate;
            header.imm_or_key = request.imm_data;
            break;
        case IBV_WR_SEND_WITH_INV:
            header.flags = PacketHeader::has_invalidate;
            header.imm_or_key = request.invalidate_rkey;
            break;
        default:
            return false;
    }
    if ((request.flags & IBV_SEND_SOLICITED) != 0) {
        header.flags |= PacketHeader::solicited;
    }
    return true;
}

/// Returns whether the engine has begun to send the request (state "sending" or "sent") and no
/// response has completed it. Returns false for a request that waits for its retransmission,
/// because resend() has set its state to "waiting".
[[nodiscard]] inline bool in_flight(const SendRequest& request) noexcept {
    return request.state == SendRequest::State::sent ||
           request.state == SendRequest::State::sending;
}

/// Returns the position in the send queue of the request with the packet sequence number @p psn.
/// Does not find requests in the state "waiting": they were not sent yet, or wait for their
/// retransmission. Returns sends.end() if there is no such request.
[[nodiscard]] std::uint64_t find_request(Qp& qp, std::uint32_t psn);
/// If the request is an RDMA read or an atomic, decrements Requester::reads_in_flight, and also
/// fetches_in_flight if the requester copies the data from memory of the responder.
void discount(Qp& qp, SendRequest& request) noexcept;
/// If the request is in flight, changes its state to "done".
void finish(Qp& qp, SendRequest& request) noexcept;
/// Completes the requests in the send queue whose state is "done", in order, up to the first
/// request with another state.
void retire(Qp& qp);

/// A request whose position in the send queue is a multiple of this number has the ACK request
/// flag, even if it is unsignaled. Most other unsignaled requests do not have it, because an ACK
/// also acknowledges earlier requests. If the last requests do not have the flag, the responder
/// sends a delayed ACK (acknowledge.cpp). If none arrives, the requester retransmits them with the
/// flag when its timer expires.
inline constexpr std::uint64_t ack_request_interval = 16;
/// Returns whether the send request at @p position must request an ACK.
[[nodiscard]] inline bool needs_ack_request(Qp& qp, std::uint64_t position,
                                            const SendRequest& request) {
    if (qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0 || returns_data(request.opcode) ||
        position < qp.requester.resent_until || position % ack_request_interval == 0) {
        return true;
    }
    if (position + 1 == qp.sends.end()) {
        return false;
    }
    const SendRequest& following = qp.sends[position + 1];
    return is_local(following.opcode) || (following.flags & IBV_SEND_FENCE) != 0;
}

/// The result of an attempt to send a request: sent, wait (for another event), again (requests must
/// be retransmitted first), or failed (the request has completed with an error).
enum class Step : std::uint8_t { sent, wait, again, failed };

/// Sends one request of a send queue. Used if no fast path (send_short(), write_long_directly())
/// can send the request.
class OutboundRequest {
  public:
    OutboundRequest(Engine::Implementation& engine, Qp& qp, std::uint64_t position)
        : engine_(engine),
          qp_(qp),
          requester_(qp.requester),
          position_(position),
          request_(qp.sends[position]) {}

    Step operator()();

  private:
    Step local();
    Step datagram();
    /// Sends a multicast datagram to all processes in the rendezvous directory, including this one.
    /// Returns false if the CUDA driver cannot read the data from GPU memory.
    [[nodiscard]] bool multicast(const EntryList& entries);
    Step connected();
    /// Returns whether the request must wait until earlier reads and atomics have completed. The
    /// reasons are a fence, or the limit max_rd_atomic, or an earlier read whose data the requester
    /// still copies from memory of the responder.
    [[nodiscard]] bool has_to_wait() const;
    /// If the request is the oldest one in the send queue, completes it with an error and moves the
    /// queue pair to the error state (UC and UD: to the state SQE). Otherwise, makes the request
    /// wait until all earlier requests have completed.
    Step fail_in_turn(ibv_wc_status status);
    /// Checks the length of the request, and whether the queue pair permits reads and atomics.
    /// Returns IBV_WC_SUCCESS, or the completion status for the error.
    [[nodiscard]] ibv_wc_status check_request() const;
    /// Checks the access to the scatter/gather list of the request, and begins the CPU access. Does
    /// nothing for inline data, reads and atomics. Returns IBV_WC_SUCCESS or IBV_WC_LOC_PROT_ERR.
    [[nodiscard]] ibv_wc_status open(EntryList& entries) const;
    void fill_header(Outgoing& packet) const;
    [[nodiscard]] std::uint64_t data_length() const;
    /// Sends the data of the request. Sends only a part of the data if the ring to the other
    /// process becomes full.
    Step send_data(const EntryList& entries);
    Step send_read();
    std::optional<fabric::Sent> send_fragment(const EntryList& entries, std::uint64_t length,
                                              bool last);
    bool send_segments(const EntryList& entries, fabric::Sent& sent);
    Step after(fabric::Sent sent);

    Engine::Implementation& engine_;
    Qp& qp_;
    Requester& requester_;
    std::uint64_t position_;
    SendRequest& request_;
    fabric::Connection* to_ = nullptr;
    /// True if this object begins a transmission or retransmission of the request. False if an
    /// earlier object has begun it and then had to wait.
    bool begins_ = false;
};

} // namespace softverbs
