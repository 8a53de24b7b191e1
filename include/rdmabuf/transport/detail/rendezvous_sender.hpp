// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include <rdmabuf/transport/detail/chunk_table.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Sends long messages: writes them by RDMA to the buffers of the matching receives, or lets the
/// receiver read them. See Kind for the protocol.
class RendezvousSender {
  public:
    /// @param max_unanswered  maximum number of RTS messages that the peer has not answered
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
    void count_message(Tag tag, const CtsRing::Entry* entry) noexcept {
        sent_tags_.add(control_.window.sent(), tag, entry != nullptr);
        control_.window.count_sent();
        if (entry != nullptr) {
            ring_->remove(entry);
        }
    }
    /// Starts to write a message to an advertised receive. @return false if memory is exhausted
    [[nodiscard]] bool write_to(SendRequest& request, const CtsRing::Entry& entry) noexcept {
        RdmaTransfer* const transfer = shared_.transfers.take(request, 0);
        if (transfer == nullptr) {
            return false;
        }
        transfer->set_remote(entry.remote, 0);
        // If a queue pair needs several work requests, a FIN must contain the length of the
        // message. Otherwise each queue pair posts one RDMA write, and the receiver adds up their
        // lengths.
        request.needs_fin = request.bytes > rails_.max_message() || entry.remote.chunks != 1 ||
                            request.buffer.memory->rail(0).size() != 1;
        request.peer_request = entry.request;
        transfer->has_immediate = true;
        transfer->has_fin = request.needs_fin;
        transfer->keeps_order = true;
        transfer->immediate.request = entry.request;
        request.cts_bytes = request.bytes;
        request.stage = SendRequest::Stage::transferring;
        ring_->remove(&entry);
        rails_.start(*transfer, request.bytes);
        request.fin_rails = static_cast<std::uint8_t>(transfer->immediate.rails);
        return true;
    }
    /// Sends the RTS of a message. @return false if it cannot be sent now
    [[nodiscard]] bool request_to_send(SendRequest& request) noexcept {
        if (unanswered_ == max_unanswered_) {
            return false;
        }
        Header header = {.kind = Kind::rts, .value = request.tag};
        RtsBody body = {.length = request.bytes, .request = SharedState::wire_number(request)};
        ChunkTable table;
        if (shared_.options.read_long_messages && request.buffer.length > 0 &&
            has(request.buffer.memory->access, Access::remote_read)) {
            table = ChunkTable::describe(*request.buffer.memory, request.buffer.device_address(),
                                         request.bytes);
            if (table.length == request.bytes) {
                body.chunks = table.chunks;
                body.rails = static_cast<std::uint16_t>(request.buffer.memory->rails);
            }
        }
        if (!control_.send(header, body, table.regions)) {
            return false;
        }
        ++unanswered_;
        request.cts_bytes = 0;
        request.stage = SendRequest::Stage::waiting_for_cts;
        return true;
    }
    /// Processes a CTS. @return false if the CTS violates the protocol
    [[nodiscard]] bool cts_arrived(std::uint32_t number,
                                   std::span<const std::byte> bytes) noexcept {
        SendRequest* const request = shared_.send_of(channel_, number);
        CtsBody body;
        if (request == nullptr || request->transfer != nullptr ||
            (request->stage != SendRequest::Stage::waiting_for_cts &&
             request->stage != SendRequest::Stage::transferring) ||
            !read_body(bytes, body) || body.rails < rails_.devices() || body.length == 0 ||
            body.length > request->bytes - request->cts_bytes ||
            body.request > Immediate::max_request) {
            return false;
        }
        RdmaTransfer* const transfer = shared_.transfers.take(*request, request->cts_bytes);
        if (transfer == nullptr) {
            rails_.fail(ENOMEM, "no memory for an RDMA transfer");
            return true;
        }
        if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.devices(),
                                body.length, transfer->remote)) {
            shared_.transfers.give_back(transfer);
            return false;
        }
        transfer->remote_address = transfer->remote.regions[0].address;
        transfer->has_immediate = true;
        transfer->immediate.request = body.request;
        request->cts_bytes += body.length;
        if (request->stage == SendRequest::Stage::waiting_for_cts) {
            --unanswered_;
        }
        request->stage = SendRequest::Stage::transferring;
        rails_.start(*transfer, body.length);
        return true;
    }
    /// Stores an advertised receive of the peer, unless it will match a message that this end has
    /// already sent.
    /// @return false if the advertisement violates the protocol
    [[nodiscard]] bool advertisement_arrived(Tag tag, std::span<const std::byte> bytes) noexcept {
        CtsBody body;
        if (!read_body(bytes, body) || body.rails < rails_.devices() ||
            body.request > Immediate::max_request) {
            return false;
        }
        const std::uint32_t sent = control_.window.sent();
        if (sent_tags_.pair(sent - control_.window.unreceived(), sent, tag)) {
            return true;
        }
        if (ring_ == nullptr) {
            ring_.reset(new (std::nothrow) CtsRing);
            if (ring_ == nullptr) {
                rails_.fail(ENOMEM, "no memory for advertisements of posted receives");
                return true;
            }
        }
        if (ring_->full() || ring_->find_request(body.request) != nullptr) {
            return false;
        }
        CtsRing::Entry& entry = ring_->push_back();
        rails_.fast.sends = 0;
        entry.tag = tag;
        entry.length = body.length;
        entry.request = body.request;
        if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.devices(),
                                body.length, entry.remote)) {
            ring_->remove(&entry);
            return false;
        }
        return true;
    }
    /// Removes an advertised receive that the peer has cancelled. If this end has already sent the
    /// message that matches it, the receive may still end with this message.
    void cancel_arrived(std::uint32_t number) noexcept {
        CtsRing::Entry* const entry = ring_ == nullptr ? nullptr : ring_->find_request(number);
        if (entry != nullptr) {
            ring_->remove(entry);
            cancelled_.at(cancelled_count_++ % cancelled_.size()) = number;
            // A message that overtakes the confirmation could match the receive, and the peer would
            // take the confirmation for a protocol error.
            rails_.hold_messages();
        }
    }
    /// Ends a send because the receiver has sent a NACK or an end-of-read message.
    /// @param error  the errno value with which the send ends; 0 if it was successful
    /// @return false if the message violates the protocol
    [[nodiscard]] bool end_arrived(std::uint32_t number, int error) noexcept {
        SendRequest* const request = shared_.send_of(channel_, number);
        if (request == nullptr || request->stage != SendRequest::Stage::waiting_for_cts) {
            return false;
        }
        --unanswered_;
        shared_.complete(*request, error);
        return true;
    }
    /// Called when all RDMA writes of a send are posted.
    void send_posted(SendRequest& request) noexcept {
        if (request.needs_fin) {
            request.stage = SendRequest::Stage::sending_fin;
            fins_.push_back(&request);
        }
    }
    /// Called when a work request of a send has completed. Ends the send if all its data is
    /// transferred.
    void send_settled(SendRequest& request) noexcept {
        if (request.pending == 0 && request.transfer == nullptr && request.unconfirmed == nullptr &&
            request.stage == SendRequest::Stage::transferring &&
            request.cts_bytes == request.bytes) {
            shared_.complete(request);
        }
    }

    [[nodiscard]] bool has_work() const noexcept {
        return !fins_.empty() || cancelled_count_ != cancelled_sent_;
    }
    /// Sends the control messages that wait for room in the send queue.
    void advance() noexcept {
        while (cancelled_count_ != cancelled_sent_ && rails_.can_send()) {
            Header header = {.kind = Kind::cancelled,
                             .number = cancelled_.at(cancelled_sent_ % cancelled_.size())};
            if (!control_.send(header, {})) {
                return;
            }
            ++cancelled_sent_;
            rails_.release_messages();
        }
        while (!fins_.empty() && rails_.can_send()) {
            SendRequest& request = *fins_.front();
            Header header = {.kind = Kind::fin,
                             .rails = request.fin_rails,
                             .number = request.peer_request,
                             .value = request.bytes};
            if (!control_.send(header, {}, &request)) {
                return;
            }
            rails_.release_messages();
            fins_.remove(&request);
            request.stage = SendRequest::Stage::transferring;
        }
    }
    /// Removes all requests from the queues, because the channel has failed. The caller ends the
    /// requests.
    void stop() noexcept {
        fins_.clear();
        cancelled_sent_ = cancelled_count_;
    }

  private:
    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    const ChannelState* channel_;
    std::uint32_t max_unanswered_;
    /// The number of sends that wait for the answer to their RTS.
    std::uint32_t unanswered_ = 0;

    /// The advertised receives of the peer, to which this end may write. Most channels never need
    /// the ring, so it is allocated when the first advertisement arrives.
    std::unique_ptr<CtsRing> ring_;
    SentTags sent_tags_;
    /// The sends whose FIN must be sent.
    List<SendRequest, &SendRequest::link> fins_;
    /// The wire numbers of the receives that the peer has cancelled. This end must still confirm
    /// each cancellation to the peer.
    std::array<std::uint32_t, CtsRing::capacity> cancelled_{};
    std::uint32_t cancelled_count_ = 0;
    std::uint32_t cancelled_sent_ = 0;
};

} // namespace rdmabuf::transport::detail
