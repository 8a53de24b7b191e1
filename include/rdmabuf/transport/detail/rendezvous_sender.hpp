// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/chunk_table.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Sends long messages: writes them by RDMA to the buffers of the matching receives, or lets the
/// receiver read them. See Kind for the protocol.
class RDMABUF_EXPORT RendezvousSender {
  public:
    /// @param max_unanswered  maximum number of RTS messages without an answer of the peer
    RendezvousSender(SharedState& shared, RailSet& rails, ControlChannel& control,
                     const ChannelState* channel, std::uint32_t max_unanswered) noexcept
        : shared_(shared),
          rails_(rails),
          control_(control),
          channel_(channel),
          max_unanswered_(max_unanswered) {}

    /// Returns the advertised receive of the peer that the next message with this tag will match;
    /// nullptr if there is none.
    [[nodiscard]] CtsRing::Entry* advertised(Tag tag) noexcept {
        return has_advertised() ? ring_->find(tag) : nullptr;
    }
    /// Returns true if the peer has advertised a receive that no message has matched yet.
    [[nodiscard]] bool has_advertised() const noexcept {
        return ring_ != nullptr && !ring_->empty();
    }
    /// Records the tag of an eager message that was sent and that matches no advertised receive.
    /// @param number  the sequence number of the message; see MessageWindow::sent()
    void count_unpaired(std::uint32_t number, Tag tag) noexcept {
        sent_tags_.add(number, tag, false);
    }
    /// Counts a message that was sent as an eager message or as an RTS, and stores its tag.
    /// @param entry  the advertised receive that the message matches, or nullptr. The entry is
    ///               removed from the ring.
    void count_message(Tag tag, const CtsRing::Entry* entry) noexcept;
    /// Starts to write a message to an advertised receive. @return false if memory is exhausted
    [[nodiscard]] bool write_to(SendRequest& request, const CtsRing::Entry& entry) noexcept;
    /// Sends the RTS of a message. @return false if it cannot be sent now
    [[nodiscard]] bool request_to_send(SendRequest& request) noexcept;
    /// Processes a CTS. @return false if the CTS violates the protocol
    [[nodiscard]] bool cts_arrived(std::uint32_t number, std::span<const std::byte> bytes) noexcept;
    /// Stores an advertised receive of the peer, unless it will match a message that this end has
    /// already sent.
    /// @return false if the advertisement violates the protocol
    [[nodiscard]] bool advertisement_arrived(Tag tag, std::span<const std::byte> bytes) noexcept;
    /// Removes an advertised receive that the peer has cancelled. advance() then confirms the
    /// cancellation to the peer. Does nothing if this end has already sent the message that matches
    /// the receive: the receive then ends with this message.
    void cancel_arrived(std::uint32_t number) noexcept;
    /// Ends a send because the receiver has sent `nack` or `rget_done`.
    /// @param error  the errno value with which the send ends; 0 if it was successful
    /// @return false if the message violates the protocol
    [[nodiscard]] bool end_arrived(std::uint32_t number, int error) noexcept;
    /// Queues the FIN of a send whose RDMA writes are all posted, if the send needs one.
    void send_posted(SendRequest& request) noexcept;
    /// Ends a send if all its data is transferred. Called when a transfer of the send is posted
    /// completely, or when one of its work requests has completed.
    void send_settled(SendRequest& request) noexcept;

    [[nodiscard]] bool has_work() const noexcept {
        return !fins_.empty() || cancelled_count_ != cancelled_sent_;
    }
    /// Sends the control messages that wait for room in the send queue.
    void advance() noexcept;
    /// Called when the channel has failed. Drops the FINs and the confirmations of cancelled
    /// receives that were not sent; the caller must end the sends.
    void stop() noexcept;

  private:
    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    const ChannelState* channel_;
    std::uint32_t max_unanswered_;
    /// The number of sends that wait for the answer to their RTS.
    std::uint32_t unanswered_ = 0;

    /// The advertised receives of the peer, to which this end may write; nullptr until the first
    /// one is stored, because most channels never need the ring.
    std::unique_ptr<CtsRing> ring_;
    SentTags sent_tags_;
    /// The sends whose FIN must be sent.
    List<SendRequest, &SendRequest::link> fins_;
    /// A ring buffer with the numbers (SharedState::wire_number()) of receives that the peer has
    /// cancelled. Those from cancelled_sent_ to cancelled_count_ - 1 must still be confirmed to the
    /// peer.
    std::array<std::uint32_t, CtsRing::capacity> cancelled_{};
    std::uint32_t cancelled_count_ = 0;
    std::uint32_t cancelled_sent_ = 0;
};

} // namespace rdmabuf::transport::detail
