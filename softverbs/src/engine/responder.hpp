// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"

namespace softverbs {

/// Length in bytes of the GRH in the receive buffer, before the data of a datagram.
inline constexpr std::size_t grh_length = 40;

/// Returns a completion for a receive request with the members that depend on the received packet.
/// The caller must set wr_id, status, opcode and byte_len.
[[nodiscard]] Completion completion_of(const Qp& qp, const PacketHeader& header);

/// Executes one received request packet. Used if the fast path receive_short() cannot execute the
/// request.
class InboundRequest {
  public:
    InboundRequest(Engine::Implementation& engine, Qp& qp, fabric::Connection* from,
                   const Packet& packet)
        : engine_(engine),
          qp_(qp),
          responder_(qp.responder),
          from_(from),
          packet_(packet),
          header_(packet.header) {}

    /// Executes the request. Returns false as Engine::Implementation::receive() does.
    [[nodiscard]] bool operator()();

  private:
    using Kind = PacketHeader::Kind;
    using NakCode = PacketHeader::NakCode;

    [[nodiscard]] bool reliable() const { return qp_.is_reliable(); }
    /// Returns whether a packet that a UD queue pair has received is a valid datagram for it.
    [[nodiscard]] bool is_valid_datagram() const;
    /// Checks the packet sequence number. Returns true if the packet must be executed now.
    /// Otherwise returns false. A reliable responder then sends the response to a duplicate again,
    /// or a NAK if an earlier packet is missing.
    bool in_sequence();
    void duplicate();
    void duplicate_atomic();
    void execute();
    void send();
    /// For a shared receive queue that matches tags (tagged_send.cpp): takes a tagged buffer
    /// (ibv_post_srq_ops()) or a receive request for the received message. Returns false if the
    /// packet needs no further processing, because an RNR NAK was sent, or because the message has
    /// started a rendezvous (an RDMA read of its data) or was rejected.
    bool have_tagged_receive();
    void match_rendezvous(const ibv_tmh& message, const ibv_rvh& rendezvous);
    void write();
    void read();
    void atomic();
    /// Executes the atomic operation of the request on the memory @p window. Returns the old value,
    /// or no value if the CUDA driver could not access GPU memory.
    [[nodiscard]] std::optional<std::uint64_t> change(const Window& window) const;

    /// Stores the data of the received packet in the memory @p entries. On failure, sends a NAK and
    /// returns false. Also returns false if the data is not completely copied yet from memory of
    /// the sender.
    /// @param skipped  number of bytes at the start of the message that are not stored
    bool store(const EntryList& entries, std::uint64_t skipped = 0);
    /// Returns the number of bytes in the receive buffer before the data.
    [[nodiscard]] std::uint64_t space_before_data() const {
        return qp_.type() == IBV_QPT_UD ? grh_length : 0;
    }
    /// Returns the opcode for the completion of a received send.
    [[nodiscard]] ibv_wc_opcode receive_opcode() const;
    /// Completes the receive request of a send with an error, because its memory does not permit
    /// the access. Sends a NAK, and moves the queue pair to the error state.
    void deny_receive();
    [[nodiscard]] bool sums_up() const;
    [[nodiscard]] bool is_last() const {
        return (header_.flags & PacketHeader::to_fetch) != 0 ||
               header_.offset + header_.payload == header_.length;
    }
    /// Takes a receive request for the received message, unless one was already taken. If none is
    /// posted, calls send_nak() with the code "rnr" and returns false.
    bool have_receive();
    /// Adds the completion of the receive request to the completion queue.
    /// @param data  data that the CPU copies to the receive buffer when the program polls the
    ///     completion; null: none
    void complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length,
                  const Scatter* data = nullptr);
    /// Executes a received send with scatter-to-CQE: its data is copied to the receive buffer when
    /// the program polls the completion. Returns false if scatter-to-CQE cannot be used for this
    /// send.
    bool send_to_cqe();
    /// Completes the receive request of a send after the last packet of the send has arrived.
    /// @param length  number of bytes in the receive buffer
    void end_send(std::uint64_t length, const Scatter* data);
    /// Ends a message after its last packet was executed: increments the expected packet sequence
    /// number, and sends an ACK now or later.
    void done();

    [[nodiscard]] Outgoing make_response(Kind kind) const;
    void send_response(Outgoing& answer);
    void send_ack();
    /// Sends a NAK. Does nothing on an unreliable queue pair, unless the packet requests an ACK.
    void send_nak(NakCode nak_code);
    /// Sends a NAK. On a reliable queue pair, also raises the asynchronous event @p event and moves
    /// the queue pair to the error state.
    void send_nak(NakCode nak_code, ibv_event_type event);
    /// Sends a NAK for an invalid request, and moves a reliable queue pair to the error state.
    void reject() { send_nak(NakCode::invalid_request, IBV_EVENT_QP_REQ_ERR); }
    /// Returns whether the access flags of the queue pair contain @p access. If not, sends a NAK
    /// with the code invalid_request and moves a reliable queue pair to the error state.
    bool enabled(unsigned access);
    /// Returns whether the queue pair and the rkey permit the access, and stores the memory range
    /// in @p window. If not, sends a NAK and moves a reliable queue pair to the error state. The
    /// rkey is not checked for a message of 0 bytes.
    bool permitted(unsigned access, Window& window);

    Engine::Implementation& engine_;
    Qp& qp_;
    Responder& responder_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
    /// Whether the message was received completely in a tagged buffer. The completion of the
    /// message then has the flag IBV_WC_TM_DATA_VALID.
    bool tag_data_valid_ = false;
    bool incomplete_ = false;
};

} // namespace softverbs
