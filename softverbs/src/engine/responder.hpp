// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"

namespace softverbs {

/// What is written before a datagram, in bytes.
inline constexpr std::size_t grh_length = 40;

/// One packet for a queue pair, being answered.
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

    [[nodiscard]] bool reliable() const { return qp_.type() == IBV_QPT_RC; }
    void datagram();
    /// Whether the packet is the next one; what is not is seen to.
    bool in_sequence();
    void duplicate();
    void duplicate_atomic();
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

    [[nodiscard]] Outgoing make_response(Kind kind) const;
    void send_response(Outgoing& answer);
    void send_ack();
    void send_nak(NakCode nak_code);
    /// And the queue pair fails.
    void send_nak(NakCode nak_code, ibv_event_type event);
    bool permitted(unsigned access, Window& window);

    Engine::Implementation& engine_;
    Qp& qp_;
    Responder& responder_;
    fabric::Connection* from_;
    const Packet& packet_;
    const PacketHeader& header_;
};

} // namespace softverbs
