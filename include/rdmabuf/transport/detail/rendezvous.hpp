// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// The memory regions that follow the body of a protocol message.
struct ChunkTable {
    std::array<KeyedChunk, max_chunks> chunks{};
    std::uint16_t count = 0;
    /// The total number of bytes of the regions.
    std::uint64_t length = 0;

    /// Returns the regions of up to @p wanted bytes of registered memory that begin at @p address.
    static ChunkTable describe(const MemoryState& memory, std::uint64_t address,
                               std::uint64_t wanted) noexcept {
        RemoteTable table;
        ChunkTable result;
        result.length = Memory::fill(memory, table, address, wanted);
        result.count = table.chunks;
        for (std::size_t c = 0; c < table.chunks; ++c) {
            result.chunks[c] = {.address = table.regions[0][c].address,
                                .length = table.regions[0][c].length};
            for (std::size_t rail = 0; rail < table.rails; ++rail) {
                result.chunks[c].rkeys[rail] = table.regions[rail][c].rkey;
            }
        }
        return result;
    }
    /// Decodes the regions that follow the body of a message.
    /// @param rails   the number of devices of the channel
    /// @param length  the total number of bytes that the regions must have
    /// @return false if the regions are invalid
    [[nodiscard]] static bool decode(std::span<const std::byte> bytes, std::uint16_t count,
                                     std::size_t rails, std::uint64_t length,
                                     RemoteTable& table) noexcept {
        if (count == 0 || count > max_chunks || bytes.size() != count * sizeof(KeyedChunk)) {
            return false;
        }
        table.chunks = count;
        table.rails = static_cast<std::uint16_t>(rails);
        std::uint64_t total = 0;
        std::uint64_t next = 0;
        for (std::size_t c = 0; c < count; ++c) {
            KeyedChunk chunk;
            std::memcpy(&chunk, bytes.data() + c * sizeof chunk, sizeof chunk);
            if (chunk.length == 0 || chunk.length > length - total ||
                chunk.address + (chunk.length - 1) < chunk.address ||
                (c > 0 && (chunk.address != next || next == 0))) {
                return false;
            }
            for (std::size_t rail = 0; rail < rails; ++rail) {
                table.regions[rail][c] = {
                    .address = chunk.address, .length = chunk.length, .rkey = chunk.rkeys[rail]};
            }
            total += chunk.length;
            next = chunk.address + chunk.length;
        }
        return total == length;
    }
};

/// Transfers long messages by RDMA between the memory of the send and the memory of the receive;
/// see Kind for the protocol.
class Rendezvous {
  public:
    using Sends = List<SendRequest, &SendRequest::link>;
    using Receives = List<ReceiveRequest, &ReceiveRequest::link>;

    Rendezvous(SharedState& shared, RailSet& rails, ControlChannel& control) noexcept
        : shared_(shared), rails_(rails), control_(control) {}

    // The sender

    /// Returns the advertised receive that the next message with this tag matches; nullptr if there
    /// is none.
    [[nodiscard]] CtsRing::Entry* advertised(Tag tag) noexcept {
        return ring_ == nullptr || ring_->empty() ? nullptr : ring_->find(tag);
    }
    /// Counts a message that was sent as an eager message or as an RTS.
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
        RdmaTransfer* const transfer = take(request, 0);
        if (transfer == nullptr) {
            return false;
        }
        copy_used(entry.remote, transfer->remote);
        transfer->remote_address = entry.remote.regions[0][0].address;
        // If a device needs several work requests, a FIN message must contain the length of the
        // message. Otherwise the receiver adds up the lengths of the RDMA writes.
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
        Header header = {.kind = Kind::rts, .value = request.tag};
        RtsBody body = {.length = request.bytes, .request = SharedState::wire_number(request)};
        ChunkTable table;
        if (shared_.options.read_long_messages && request.buffer.length > 0 &&
            has(request.buffer.memory->access, Access::remote_read)) {
            table = ChunkTable::describe(*request.buffer.memory, request.buffer.device_address(),
                                         request.bytes);
            if (table.length == request.bytes) {
                body.chunks = table.count;
                body.rails = static_cast<std::uint16_t>(request.buffer.memory->rails);
            }
        }
        if (!send(header, body, table, body.chunks)) {
            return false;
        }
        request.cts_bytes = 0;
        request.stage = SendRequest::Stage::waiting_for_cts;
        return true;
    }
    /// Processes a CTS. @return false if the CTS violates the protocol
    [[nodiscard]] bool cts_arrived(std::uint32_t number, std::span<const std::byte> bytes,
                                   const ChannelState* channel) noexcept {
        SendRequest* const request = shared_.send_of(channel, number);
        CtsBody body;
        if (request == nullptr || request->transfer != nullptr ||
            (request->stage != SendRequest::Stage::waiting_for_cts &&
             request->stage != SendRequest::Stage::transferring) ||
            !read(bytes, body) || body.rails < rails_.size() || body.length == 0 ||
            body.length > request->bytes - request->cts_bytes ||
            body.request > Immediate::max_request) {
            return false;
        }
        RdmaTransfer* const transfer = take(*request, request->cts_bytes);
        if (transfer == nullptr) {
            rails_.fail(ENOMEM, "no memory for an RDMA transfer");
            return true;
        }
        if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.size(), body.length,
                                transfer->remote)) {
            shared_.transfers.give_back(transfer);
            return false;
        }
        transfer->remote_address = transfer->remote.regions[0][0].address;
        transfer->has_immediate = true;
        transfer->immediate.request = body.request;
        request->cts_bytes += body.length;
        request->stage = SendRequest::Stage::transferring;
        rails_.start(*transfer, body.length);
        return true;
    }
    /// Stores an advertised receive of the peer, unless a message that was already sent matches
    /// this receive.
    /// @return false if the advertisement violates the protocol
    [[nodiscard]] bool advertisement_arrived(Tag tag, std::span<const std::byte> bytes) noexcept {
        CtsBody body;
        if (!read(bytes, body) || body.rails < rails_.size() || body.length == 0 ||
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
        entry.tag = tag;
        entry.length = body.length;
        entry.request = body.request;
        if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.size(), body.length,
                                entry.remote)) {
            ring_->remove(&entry);
            return false;
        }
        return true;
    }
    /// Removes an advertisement that the peer withdraws. If a message for this receive was already
    /// sent, the receive may still end with this message.
    void cancel_arrived(std::uint32_t number) noexcept {
        CtsRing::Entry* const entry = ring_ == nullptr ? nullptr : ring_->find_request(number);
        if (entry != nullptr) {
            ring_->remove(entry);
            cancelled_.at(cancelled_count_++ % cancelled_.size()) = number;
        }
    }
    /// Ends a send whose message is longer than the receive buffer.
    /// @return false if the NACK violates the protocol
    [[nodiscard]] bool nack_arrived(std::uint32_t number, const ChannelState* channel) noexcept {
        SendRequest* const request = shared_.send_of(channel, number);
        if (request == nullptr || request->stage != SendRequest::Stage::waiting_for_cts) {
            return false;
        }
        shared_.complete(*request, EMSGSIZE);
        return true;
    }
    /// Ends a send whose data the receiver has read by RDMA.
    /// @return false if the message violates the protocol
    [[nodiscard]] bool rget_done_arrived(std::uint32_t number,
                                         const ChannelState* channel) noexcept {
        SendRequest* const request = shared_.send_of(channel, number);
        if (request == nullptr || request->stage != SendRequest::Stage::waiting_for_cts) {
            return false;
        }
        shared_.complete(*request);
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
        if (request.pending == 0 && request.transfer == nullptr &&
            request.stage == SendRequest::Stage::transferring &&
            request.cts_bytes == request.bytes) {
            shared_.complete(request);
        }
    }

    // The receiver

    /// Advertises a posted receive to the peer, if its buffer is longer than the eager limit and no
    /// earlier receive can match its message. No advertisement is sent if the send queue is full
    /// now. Must be called before the receive is added to the TagMatcher.
    void advertise(ReceiveRequest& receive) noexcept {
        if (advertised_ == CtsRing::capacity ||
            shared_.matcher.has_unadvertised(receive.channel, receive.tag) || !rails_.can_send()) {
            return;
        }
        const ChunkTable table = ChunkTable::describe(
            *receive.buffer.memory, receive.buffer.device_address(), receive.buffer.length);
        if (table.length != receive.buffer.length) {
            return;
        }
        Header header = {.kind = Kind::advertisement, .value = receive.tag};
        if (send(header, cts_body(receive, table), table, table.count)) {
            receive.advertised = true;
            ++advertised_;
        }
    }
    /// Called when an advertised receive has matched a message or was cancelled.
    void advertisement_used(ReceiveRequest& receive) noexcept {
        if (receive.advertised) {
            receive.advertised = false;
            --advertised_;
        }
    }
    /// Starts to transfer the data of a message. The RTS of this message has matched @p receive.
    /// @param bytes  the body of the RTS
    void rts_matched(ReceiveRequest& receive, std::span<const std::byte> bytes) noexcept {
        RtsBody body;
        std::memcpy(&body, bytes.data(), sizeof body); // rts_is_valid() has checked the body.
        receive.bytes = body.length;
        receive.peer_request = body.request;
        receive.cts_bytes = 0;
        if (body.length > receive.buffer.length) {
            queue(receive, ReceiveRequest::Stage::sending_nack);
            return;
        }
        if (body.chunks == 0 || body.length == 0 || !start_read(receive, body, bytes)) {
            queue(receive, body.length == 0 ? ReceiveRequest::Stage::sending_rget_done
                                            : ReceiveRequest::Stage::sending_cts);
        }
    }
    /// Returns true if the body of an RTS is valid.
    [[nodiscard]] bool rts_is_valid(std::span<const std::byte> bytes) const noexcept {
        RtsBody body;
        RemoteTable table;
        return read(bytes, body) && body.request <= Immediate::max_request &&
               (body.chunks == 0 ? bytes.size() == sizeof body
                                 : body.rails >= rails_.size() &&
                                       ChunkTable::decode(bytes.subspan(sizeof body), body.chunks,
                                                          rails_.size(), body.length, table));
    }
    /// Called when one device has transferred its fragment of the data of a message.
    /// @param rails    the number of devices that transfer the data
    /// @param length   the length of the message, from a FIN; nullptr if immediate data has arrived
    /// @param written  the length in bytes of the RDMA write that had the immediate data
    /// @param valid    set to false for a protocol error
    /// @return the receive if all its data has arrived, or nullptr
    [[nodiscard]] ReceiveRequest* data_arrived(const ChannelState* channel, std::uint32_t number,
                                               std::uint32_t rails, const std::uint64_t* length,
                                               std::uint64_t written, bool& valid) noexcept {
        ReceiveRequest* const receive = shared_.receive_of(channel, number);
        valid = receive != nullptr && rails >= 1 && rails <= rails_.size() &&
                take_advertised(*receive, length);
        if (!valid) {
            return nullptr;
        }
        if (length != nullptr) {
            receive->bytes = *length;
            receive->fin_arrived = true;
        }
        receive->written += written;
        if (++receive->rails_arrived < rails) {
            return nullptr;
        }
        if (receive->written_by_advertisement && !receive->fin_arrived) {
            receive->bytes = receive->written;
            valid = receive->written <= receive->buffer.length;
            if (!valid) {
                return nullptr;
            }
        }
        receive->rails_arrived = 0;
        if (receive->cts_bytes < receive->bytes) {
            queue(*receive, ReceiveRequest::Stage::sending_cts);
            return nullptr;
        }
        return receive;
    }
    /// Called when the RDMA read of a message has completed.
    void read_completed(ReceiveRequest& receive) noexcept {
        queue(receive, ReceiveRequest::Stage::sending_rget_done);
    }
    /// Withdraws the advertisement of a receive. The receive ends when the peer has confirmed the
    /// withdrawal, or when the message of the receive arrives.
    void cancel(ReceiveRequest& receive) noexcept {
        receive.cancel_requested = true;
        ++cancels_;
    }
    /// Processes the peer's confirmation that it will not use a withdrawn advertisement.
    /// @return the cancelled receive; nullptr for a protocol error
    [[nodiscard]] ReceiveRequest* cancelled_arrived(const ChannelState* channel,
                                                    std::uint32_t number) const noexcept {
        ReceiveRequest* const receive = shared_.receive_of(channel, number);
        return receive != nullptr && receive->stage == ReceiveRequest::Stage::posted &&
                       receive->advertised && receive->cancel_requested
                   ? receive
                   : nullptr;
    }

    // Progress

    [[nodiscard]] bool has_work() const noexcept {
        return !fins_.empty() || !answers_.empty() || cancelled_count_ != cancelled_sent_ ||
               cancels_ != 0;
    }
    /// Sends the control messages that wait for room in the send queue.
    /// @param finished  called with each receive that has ended successfully
    template <class Finished>
    void advance(const Finished& finished) noexcept {
        while (cancelled_count_ != cancelled_sent_ && rails_.can_send()) {
            Header header = {.kind = Kind::cancelled,
                             .number = cancelled_.at(cancelled_sent_ % cancelled_.size())};
            if (!control_.send(header, {})) {
                return;
            }
            ++cancelled_sent_;
        }
        while (!answers_.empty() && rails_.can_send()) {
            ReceiveRequest& receive = *answers_.front();
            if (!answer(receive)) {
                return;
            }
            answers_.remove(&receive);
            if (receive.stage == ReceiveRequest::Stage::sending_cts) {
                receive.stage = ReceiveRequest::Stage::waiting_for_data;
            } else if (receive.stage == ReceiveRequest::Stage::sending_nack) {
                shared_.complete(receive, EMSGSIZE);
            } else {
                finished(receive);
            }
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
            rails_.fin_sent();
            fins_.remove(&request);
            request.stage = SendRequest::Stage::transferring;
        }
        if (cancels_ != 0 && rails_.can_send()) {
            send_cancels();
        }
    }
    /// Removes all requests from the queues, because the channel has failed.
    void stop() noexcept {
        fins_.clear();
        answers_.clear();
        cancels_ = 0;
        cancelled_sent_ = cancelled_count_;
    }
    void set_channel(const ChannelState* channel) noexcept { channel_ = channel; }

  private:
    template <class Body>
    [[nodiscard]] static bool read(std::span<const std::byte> bytes, Body& body) noexcept {
        if (bytes.size() < sizeof body) {
            return false;
        }
        std::memcpy(&body, bytes.data(), sizeof body);
        return true;
    }
    template <class Body>
    [[nodiscard]] bool send(const Header& header, const Body& body, const ChunkTable& table,
                            std::size_t count) noexcept {
        std::array<std::byte, max_body> bytes; // NOLINT(*-member-init): filled below
        std::memcpy(bytes.data(), &body, sizeof body);
        std::memcpy(bytes.data() + sizeof body, table.chunks.data(), count * sizeof(KeyedChunk));
        return control_.send(header,
                             std::span(bytes).first(sizeof body + count * sizeof(KeyedChunk)));
    }
    [[nodiscard]] static CtsBody cts_body(const ReceiveRequest& receive,
                                          const ChunkTable& table) noexcept {
        return {.length = table.length,
                .request = SharedState::wire_number(receive),
                .chunks = table.count,
                .rails = static_cast<std::uint16_t>(receive.buffer.memory->rails)};
    }
    /// Takes an unused RdmaTransfer from the pool, for the bytes of the message that begin at @p
    /// offset.
    /// @return nullptr if memory is exhausted
    [[nodiscard]] RdmaTransfer* take(RequestState& request, std::uint64_t offset) noexcept {
        RdmaTransfer* const transfer = shared_.transfers.take();
        if (transfer != nullptr) {
            transfer->is_read = transfer->has_immediate = transfer->has_fin =
                transfer->keeps_order = false;
            transfer->immediate = {};
            transfer->request = &request;
            transfer->memory = request.buffer.memory;
            transfer->local_address = request.buffer.device_address() + offset;
        }
        return transfer;
    }
    /// Copies the regions of the devices that this channel uses.
    void copy_used(const RemoteTable& from, RemoteTable& to) const noexcept {
        to.chunks = from.chunks;
        to.rails = from.rails;
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            std::copy_n(from.regions[rail].begin(), from.chunks, to.regions[rail].begin());
        }
    }
    /// Starts to read the data of a message by RDMA. @return false if memory is exhausted
    [[nodiscard]] bool start_read(ReceiveRequest& receive, const RtsBody& body,
                                  std::span<const std::byte> bytes) noexcept {
        RdmaTransfer* const transfer = take(receive, 0);
        if (transfer == nullptr) {
            return false;
        }
        static_cast<void>(ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.size(),
                                             body.length, transfer->remote));
        transfer->is_read = true;
        transfer->remote_address = transfer->remote.regions[0][0].address;
        receive.stage = ReceiveRequest::Stage::transferring;
        rails_.start(*transfer, body.length);
        return true;
    }
    void queue(ReceiveRequest& receive, ReceiveRequest::Stage stage) noexcept {
        receive.stage = stage;
        answers_.push_back(&receive);
    }
    /// Sends the CTS, NACK or end-of-read message that a receive has to send. @return false if it
    /// cannot be sent now
    [[nodiscard]] bool answer(ReceiveRequest& receive) noexcept {
        if (receive.stage == ReceiveRequest::Stage::sending_cts) {
            const ChunkTable table = ChunkTable::describe(
                *receive.buffer.memory, receive.buffer.device_address() + receive.cts_bytes,
                receive.bytes - receive.cts_bytes);
            Header header = {.kind = Kind::cts, .number = receive.peer_request};
            if (!send(header, cts_body(receive, table), table, table.count)) {
                return false;
            }
            receive.cts_bytes += table.length;
            return true;
        }
        Header header = {.kind = receive.stage == ReceiveRequest::Stage::sending_nack
                                     ? Kind::nack
                                     : Kind::rget_done,
                         .number = receive.peer_request};
        return control_.send(header, {});
    }
    /// Matches an advertised receive with the message whose data a device of the peer has written
    /// to the receive buffer.
    /// @return false if the receive does not wait for data
    [[nodiscard]] bool take_advertised(ReceiveRequest& receive,
                                       const std::uint64_t* length) noexcept {
        if (receive.stage == ReceiveRequest::Stage::waiting_for_data) {
            // A FIN is valid only for data that was written to an advertised receive.
            return length == nullptr ||
                   (receive.written_by_advertisement && *length <= receive.buffer.length);
        }
        if (receive.stage != ReceiveRequest::Stage::posted || !receive.advertised ||
            (length != nullptr && *length > receive.buffer.length)) {
            return false;
        }
        shared_.matcher.remove(receive);
        advertisement_used(receive);
        receive.stage = ReceiveRequest::Stage::waiting_for_data;
        receive.written_by_advertisement = true;
        receive.bytes = receive.cts_bytes = receive.buffer.length;
        return true;
    }
    void send_cancels() noexcept {
        // Receives that have ended in the meantime need no cancellation message.
        cancels_ = 0;
        shared_.receives.for_each([this](ReceiveRequest& receive) {
            if (receive.channel != channel_ || !receive.cancel_requested || receive.cancel_sent ||
                receive.done) {
                return;
            }
            Header header = {.kind = Kind::cancel, .number = SharedState::wire_number(receive)};
            if (rails_.can_send() && control_.send(header, {})) {
                receive.cancel_sent = true;
            } else {
                ++cancels_;
            }
        });
    }

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    const ChannelState* channel_ = nullptr;

    /// The advertised receives of the peer, to which this end may write. Most channels never need
    /// the ring, so it is allocated when the first advertisement arrives.
    std::unique_ptr<CtsRing> ring_;
    SentTags sent_tags_;
    /// The sends whose FIN must be sent.
    Sends fins_;

    /// The receives whose CTS, NACK or end-of-read message must be sent.
    Receives answers_;
    /// The number of receives of this end that are advertised to the peer.
    std::uint32_t advertised_ = 0;
    /// The number of receives for which a cancellation message must be sent.
    std::uint32_t cancels_ = 0;
    /// The numbers of the peer's receives whose cancellation must be confirmed.
    std::array<std::uint32_t, CtsRing::capacity> cancelled_{};
    std::uint32_t cancelled_count_ = 0;
    std::uint32_t cancelled_sent_ = 0;
};

} // namespace rdmabuf::transport::detail
