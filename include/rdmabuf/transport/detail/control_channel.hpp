// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Handles the credits, the keepalive writes and the close message of a channel.
class RDMABUF_EXPORT ControlChannel {
  public:
    ControlChannel(RailSet& rails, const EndpointOptions& options, const Hello& peer) noexcept
        : rails_(rails),
          eager_credits(options.unexpected_limit, peer.unexpected_limit),
          notification_credits(options.notification_limit, peer.notification_limit),
          probe_address_(peer.probe_address),
          probe_rkeys_(peer.probe_rkeys) {}

    /// Sets the members of @p header that return credits to the peer: `received` and, for the kinds
    /// `eager`, `rts` and `credit`, `number`.
    void add_credits(Header& header) const noexcept;
    /// Sets the members of the header of an eager message that return credits to the peer:
    /// `received` and `number`.
    void add_eager_credits(Header& header) const noexcept {
        header.received = window.received();
        header.number = eager_credits.consumed();
    }
    /// Records that the peer gets the credits of a header that add_credits() has set. Must be
    /// called after the message was sent.
    void credits_sent(Kind kind) noexcept {
        window.reported();
        if (returns_eager_credits(kind)) {
            eager_credits.reported();
        }
    }
    /// Sends a message on the first queue pair, as RailSet::send() does. Returns credits in the
    /// header of the message.
    [[nodiscard]] bool send(Header header, std::span<const std::byte> body,
                            RequestState* request = nullptr, bool always_signal = false) noexcept {
        add_credits(header);
        if (!rails_.send(header, body, request, always_signal)) {
            return false;
        }
        credits_sent(header.kind);
        return true;
    }
    /// Posts a write and a message, as RailSet::write_and_send() does. Returns credits in the
    /// header of the message.
    [[nodiscard]] RailSet::Posted write_and_send(ibv_send_wr& write, Header header,
                                                 std::span<const std::byte> body,
                                                 RequestState& request) noexcept;
    /// Sends a message that consists of @p header, @p body and the first `body.chunks` elements of
    /// @p chunks, which describe memory regions. The send queue must have room.
    /// @return false if the channel may hold no more send buffers, or if posting failed
    template <class Body>
    [[nodiscard]] bool send(const Header& header, const Body& body,
                            std::span<const KeyedChunk, max_chunks> chunks) noexcept {
        const std::size_t size = body.chunks * sizeof(KeyedChunk);
        std::array<std::byte, max_body> bytes; // NOLINT(*-member-init): filled below
        std::memcpy(bytes.data(), &body, sizeof body);
        std::memcpy(bytes.data() + sizeof body, chunks.data(), size);
        return send(header, std::span(bytes).first(sizeof body + size));
    }
    /// Returns true if a received message is an eager message that returns no new credits. Its
    /// header then needs no other check.
    [[nodiscard]] bool repeats_credits(const std::byte* message) const noexcept {
        return start_of(message) == same_credits_;
    }
    /// Processes the credits in the header of a received message.
    /// @return false if the credits are impossible, which is a protocol error
    [[nodiscard]] bool credits_arrived(const Header& header) noexcept {
        if (!window.peer_received(header.received)) {
            return false;
        }
        bool valid = true;
        switch (header.kind) {
            case Kind::eager:
            case Kind::rts:
                valid = eager_credits.peer_consumed(header.number);
                break;
            case Kind::credit:
                valid =
                    eager_credits.peer_consumed(header.number) &&
                    notification_credits.peer_consumed(static_cast<std::uint32_t>(header.value));
                break;
            default:
                break;
        }
        const Header same = {.kind = Kind::eager,
                             .received = header.received,
                             .number = eager_credits.peer_consumed()};
        same_credits_ = start_of(&same);
        return valid;
    }
    /// Returns true if enough credits for eager messages have accumulated for a separate credit
    /// message.
    [[nodiscard]] bool eager_credit_due() const noexcept {
        return window.due() || eager_credits.due();
    }
    /// Returns true if enough credits of any kind have accumulated for a separate credit message.
    [[nodiscard]] bool credit_due() const noexcept {
        return eager_credit_due() || notification_credits.due();
    }
    /// Sends a credit message if enough credits have accumulated. The message may use the send
    /// queue entries that RailSet::reserve keeps free, because the peer may be waiting for the
    /// credits.
    void send_credits() noexcept {
        if (!credit_due() || !rails_.queue().has_room()) {
            return;
        }
        if (send({.kind = Kind::credit, .value = notification_credits.consumed()}, {})) {
            notification_credits.reported();
        }
    }

    /// Calls probe(rail) for each queue pair that transfers use, to find out whether the devices of
    /// both ends respond.
    void probe() noexcept;
    /// Posts a signaled keepalive write of 0 bytes on a queue pair, unless the completion of its
    /// last work request is still awaited, or its send queue has no room.
    void probe(std::size_t rail) noexcept;
    /// Returns the memory of the peer that keepalive writes and fences of a queue pair access.
    [[nodiscard]] RemoteAddress probe_target(std::size_t rail) const noexcept {
        return {.address = probe_address_, .rkey = probe_rkeys_[rails_[rail].device]};
    }

    /// Sends the `close` message, which is the last message of this end. @return false if it cannot
    /// be sent now
    [[nodiscard]] bool send_close() noexcept;

  private:
    /// Returns true if Header::number of a message of this kind returns credits for eager messages.
    [[nodiscard]] static constexpr bool returns_eager_credits(Kind kind) noexcept {
        return kind == Kind::eager || kind == Kind::rts || kind == Kind::credit;
    }

    /// Returns the first 8 bytes of a header: all members before `value`.
    [[nodiscard]] static std::uint64_t start_of(const void* header) noexcept {
        std::uint64_t start = 0;
        static_assert(offsetof(Header, value) == sizeof start);
        std::memcpy(&start, header, sizeof start);
        return start;
    }
    RailSet& rails_;
    static constexpr Header first_eager = {.kind = Kind::eager};
    /// The first 8 bytes of the header of an eager message that returns no new credits.
    std::uint64_t same_credits_ = start_of(&first_eager);

  public:
    MessageWindow window;
    ByteCredits eager_credits;
    ByteCredits notification_credits;

  private:
    std::uint64_t probe_address_;
    std::array<std::uint32_t, max_rails> probe_rkeys_;
};

} // namespace rdmabuf::transport::detail
