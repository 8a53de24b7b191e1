// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"

namespace softverbs {

/// Length of the Global Routing Header before the data of a datagram, in bytes.
inline constexpr std::size_t grh_length = 40;

/// Handles one request packet for a queue pair.
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

    void operator()();

  private:
    using Kind = PacketHeader::Kind;
    using NakCode = PacketHeader::NakCode;

    [[nodiscard]] bool reliable() const { return qp_.is_reliable(); }
    void datagram();
    /// Checks the packet sequence number. If it is the expected one, returns true. Otherwise
    /// handles a duplicate, or sends a NAK for a missing packet, and returns false.
    bool in_sequence();
    void duplicate();
    void duplicate_atomic();
    void execute();
    void send();
    /// Handles a send to a shared receive queue with tags; see tagged_send.cpp.
    void tagged_send();
    /// Takes a tagged buffer or a receive request for the message. False: there is none, and an RNR
    /// NAK was sent, or the message was a rendezvous request and is complete.
    bool have_tagged_receive();
    void match_rendezvous(const ibv_tmh& message, const ibv_rvh& rendezvous);
    void write();
    void read();
    void atomic();
    /// Executes an atomic and returns the old value; nullopt: the memory was revoked.
    [[nodiscard]] std::optional<std::uint64_t> change(const Window& window) const;

    /// Stores the data of the packet in the target memory. On failure it sends a NAK and returns
    /// false.
    bool store(const EntryList& entries);
    [[nodiscard]] bool sums_up() const;
    [[nodiscard]] bool is_last() const {
        return (header_.flags & PacketHeader::to_fetch) != 0 ||
               header_.offset + header_.payload == header_.length;
    }
    /// Takes a receive request for the message. If there is none, it sends an RNR NAK and returns
    /// false.
    bool have_receive();
    /// Returns the value of ibv_wc::sl: the service level of the packet, or on Ethernet the RoCE
    /// packet type of a datagram.
    [[nodiscard]] std::uint8_t received_service_level() const;
    /// Adds the completion of the receive request. @p data is the data that the CPU copies when the
    /// program polls the completion; null: none.
    void complete(ibv_wc_opcode opcode, ibv_wc_status status, std::uint64_t length,
                  const Scatter* data = nullptr);
    /// Handles a send whose data is copied by the CPU when the program polls its completion.
    /// Returns false if the send is not of this kind.
    bool send_to_cqe();
    /// Ends a send after its last packet.
    void end_send(const Scatter* data);
    /// Ends the message after its last packet: expects the next sequence number and sends an ACK.
    void done();

    [[nodiscard]] Outgoing make_response(Kind kind) const;
    void send_response(Outgoing& answer);
    void send_ack();
    void send_nak(NakCode nak_code);
    /// Sends a NAK and moves the queue pair to the error state.
    void send_nak(NakCode nak_code, ibv_event_type event);
    /// Checks that the access flags of the queue pair include @p access. If not, the operation is
    /// an invalid request: sends the NAK, and returns false.
    bool enabled(unsigned access);
    /// Checks that the queue pair and the key permit the access, and opens the memory. If not,
    /// sends the NAK, and returns false.
    bool permitted(unsigned access, Window& window);

    Engine::Implementation& engine_;
    Qp& qp_;
    Responder& responder_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
    /// The message is in a tagged buffer: its completion has IBV_WC_TM_DATA_VALID.
    bool tag_data_valid_ = false;
};

} // namespace softverbs
