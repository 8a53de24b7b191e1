// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"

namespace softverbs {

/// Length of the GRH before the data of a datagram in bytes.
inline constexpr std::size_t grh_length = 40;

/// Executes one request packet. Used when the fast path (receive_short()) cannot execute the
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

    /// Executes the request. Returns false if its data is not completely copied from memory of the
    /// sender yet. The request must then be handled again.
    [[nodiscard]] bool operator()();

  private:
    using Kind = PacketHeader::Kind;
    using NakCode = PacketHeader::NakCode;

    [[nodiscard]] bool reliable() const { return qp_.is_reliable(); }
    void datagram();
    /// Checks the packet sequence number. Returns true if the responder expects this number.
    /// Otherwise returns false, after handling a duplicate packet or sending a NAK for a missing
    /// packet.
    bool in_sequence();
    void duplicate();
    void duplicate_atomic();
    void execute();
    void send();
    /// Executes a send to a shared receive queue with tag matching (tagged_send.cpp).
    void tagged_send();
    /// Takes a tagged buffer or a receive request for the message. Returns false if the packet
    /// needs no further processing: there is no receive request, so an RNR NAK was sent, or the
    /// message has started a rendezvous.
    bool have_tagged_receive();
    void match_rendezvous(const ibv_tmh& message, const ibv_rvh& rendezvous);
    void write();
    void read();
    void atomic();
    /// Executes an atomic operation on the memory. Returns the old value, or no value if the memory
    /// was revoked.
    [[nodiscard]] std::optional<std::uint64_t> change(const Window& window) const;

    /// Stores the data of the packet. On failure, sends a NAK and returns false.
    bool store(const EntryList& entries);
    [[nodiscard]] bool sums_up() const;
    [[nodiscard]] bool is_last() const {
        return (header_.flags & PacketHeader::to_fetch) != 0 ||
               header_.offset + header_.payload == header_.length;
    }
    /// Takes a receive request for the message. If there is none, sends an RNR NAK and returns
    /// false.
    bool have_receive();
    /// Returns the value for ibv_wc::sl: the service level or, for a datagram on Ethernet, the type
    /// of its network header (GRH, IPv4 or IPv6).
    [[nodiscard]] std::uint8_t received_service_level() const;
    /// Pushes the completion of the receive request.
    /// @param data  data that the CPU copies when the program polls the completion; null: none
    void complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length,
                  const Scatter* data = nullptr);
    /// Executes a send whose data is copied when the program polls the completion (scatter-to-CQE).
    /// Returns false if scatter-to-CQE cannot be used for this send.
    bool send_to_cqe();
    /// Completes the receive request of a message after its last packet has arrived.
    void end_send(const Scatter* data);
    /// Ends a message after its last packet: increments the expected packet sequence number, and
    /// sends an ACK at once or later.
    void done();

    [[nodiscard]] Outgoing make_response(Kind kind) const;
    void send_response(Outgoing& answer);
    void send_ack();
    void send_nak(NakCode nak_code);
    /// Sends a NAK, raises the event, and moves the queue pair to the error state.
    void send_nak(NakCode nak_code, ibv_event_type event);
    /// Checks that the access flags of the queue pair contain @p access. Otherwise, sends a NAK for
    /// an invalid request and returns false.
    bool enabled(unsigned access);
    /// Checks that the queue pair and the rkey permit the access, and stores the memory in @p
    /// window. Otherwise, sends a NAK and returns false.
    bool permitted(unsigned access, Window& window);

    Engine::Implementation& engine_;
    Qp& qp_;
    Responder& responder_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
    /// Whether the message was received in a tagged buffer. Its completion then has
    /// IBV_WC_TM_DATA_VALID.
    bool tag_data_valid_ = false;
    bool incomplete_ = false;
};

} // namespace softverbs
