// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/chunk_table.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Receives long messages, and advertises posted receives to the peer. See Kind for the protocol.
class RendezvousReceiver {
  public:
    RendezvousReceiver(SharedState& shared, RailSet& rails, ControlChannel& control,
                       const ChannelState* channel) noexcept
        : shared_(shared), rails_(rails), control_(control), channel_(channel) {}

    /// Advertises a receive to the peer. Does nothing if an earlier receive could match the same
    /// message, if too many receives are advertised, or if the send queue is full. Must be called
    /// before the receive is added to the TagMatcher.
    void advertise(ReceiveRequest& receive) noexcept {
        if (advertised_ == CtsRing::capacity ||
            shared_.matcher.has_unadvertised(receive.channel, receive.tag) || !rails_.can_send()) {
            return;
        }
        const BufferRef& buffer = receive.buffer;
        ChunkTable table; // A buffer of 0 bytes may have no memory.
        if (buffer.length > 0) {
            table = ChunkTable::describe(*buffer.memory, buffer.device_address(), buffer.length);
        }
        if (table.length != buffer.length) {
            return;
        }
        Header header = {.kind = Kind::advertisement, .value = receive.tag};
        if (control_.send(header, cts_body(receive, table), table.regions)) {
            receive.advertised = true;
            ++advertised_;
        }
    }
    /// Returns true if advertise() will advertise a receive with this tag, and @p count receives in
    /// total.
    [[nodiscard]] bool can_advertise(Tag tag, std::uint32_t count) const noexcept {
        return advertised_ + count <= CtsRing::capacity && rails_.can_send(count) &&
               rails_.may_hold(count) && !shared_.matcher.has_unadvertised(channel_, tag);
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
        return read_body(bytes, body) && body.request <= Immediate::max_request &&
               (body.chunks == 0 ? bytes.size() == sizeof body
                                 : body.rails >= rails_.devices() &&
                                       ChunkTable::decode(bytes.subspan(sizeof body), body.chunks,
                                                          rails_.devices(), body.length, table));
    }
    /// Called when one queue pair has transferred its part of the data of a message.
    /// @param rail     the index of this queue pair
    /// @param rails    the number of queue pairs that transfer the data
    /// @param length   the length of the message, if a FIN has arrived; otherwise nullptr
    /// @param written  the length in bytes of the RDMA write with immediate data, or of the data
    ///                 that a `range_repeated` message reports; 0 for a FIN
    /// @param valid    set to false for a protocol error
    /// @return the receive if all its data has arrived, or nullptr
    [[nodiscard]] ReceiveRequest* data_arrived(std::uint32_t number, std::size_t rail,
                                               std::uint32_t rails, const std::uint64_t* length,
                                               std::uint64_t written, bool& valid) noexcept {
        ReceiveRequest* const receive = shared_.receive_of(channel_, number);
        const std::uint32_t bit = 1U << rail;
        valid = receive != nullptr && rails >= 1 && rails <= rails_.size() &&
                (receive->rails_arrived & bit) == 0 && written <= receive->buffer.length &&
                take_advertised(*receive, length);
        if (!valid) {
            return nullptr;
        }
        if (length != nullptr) {
            receive->bytes = *length;
            receive->fin_arrived = true;
        }
        receive->written += written;
        receive->rails_arrived |= bit;
        if (rails != 1 && std::popcount(receive->rails_arrived) < static_cast<int>(rails)) {
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
    /// Called when the RDMA read of the data of a message has completed.
    void read_completed(ReceiveRequest& receive) noexcept {
        queue(receive, ReceiveRequest::Stage::sending_rget_done);
    }
    /// Withdraws the advertisement of a receive. The receive ends when the peer has confirmed the
    /// withdrawal, or with a message that the peer has sent earlier.
    void cancel(ReceiveRequest& receive) noexcept {
        receive.cancel_requested = true;
        ++cancels_;
    }
    /// Processes the peer's confirmation that it will not use a withdrawn advertisement.
    /// @return the cancelled receive; nullptr for a protocol error
    [[nodiscard]] ReceiveRequest* cancelled_arrived(std::uint32_t number) const noexcept {
        ReceiveRequest* const receive = shared_.receive_of(channel_, number);
        return receive != nullptr && receive->stage == ReceiveRequest::Stage::posted &&
                       receive->advertised && receive->cancel_requested
                   ? receive
                   : nullptr;
    }

    [[nodiscard]] bool has_work() const noexcept { return !answers_.empty() || cancels_ != 0; }
    /// Sends the control messages that wait for room in the send queue.
    /// @param finished  called with each receive that has ended successfully
    template <class Finished>
    void advance(const Finished& finished) noexcept {
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
        if (cancels_ != 0 && rails_.can_send()) {
            send_cancels();
        }
    }
    /// Removes all requests from the queues, because the channel has failed. The caller ends the
    /// requests.
    void stop() noexcept {
        answers_.clear();
        cancels_ = 0;
    }

  private:
    [[nodiscard]] CtsBody cts_body(const ReceiveRequest& receive,
                                   const ChunkTable& table) const noexcept {
        return {.length = table.length,
                .request = SharedState::wire_number(receive),
                .chunks = table.chunks,
                .rails = static_cast<std::uint16_t>(rails_.devices())};
    }
    /// Starts to read the data of a message by RDMA. @return false if memory is exhausted
    [[nodiscard]] bool start_read(ReceiveRequest& receive, const RtsBody& body,
                                  std::span<const std::byte> bytes) noexcept {
        RdmaTransfer* const transfer = shared_.transfers.take(receive, 0);
        if (transfer == nullptr) {
            return false;
        }
        static_cast<void>(ChunkTable::decode(bytes.subspan(sizeof body), body.chunks,
                                             rails_.devices(), body.length, transfer->remote));
        transfer->is_read = true;
        transfer->remote_address = transfer->remote.regions[0].address;
        receive.stage = ReceiveRequest::Stage::transferring;
        rails_.start(*transfer, body.length);
        return true;
    }
    void queue(ReceiveRequest& receive, ReceiveRequest::Stage stage) noexcept {
        receive.stage = stage;
        answers_.push_back(&receive);
    }
    /// Sends the CTS, NACK or end-of-read message of a receive. @return false if it cannot be sent
    /// now
    [[nodiscard]] bool answer(ReceiveRequest& receive) noexcept {
        if (receive.stage == ReceiveRequest::Stage::sending_cts) {
            const ChunkTable table = ChunkTable::describe(
                *receive.buffer.memory, receive.buffer.device_address() + receive.cts_bytes,
                receive.bytes - receive.cts_bytes);
            Header header = {.kind = Kind::cts, .number = receive.peer_request};
            if (!control_.send(header, cts_body(receive, table), table.regions)) {
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
            // A FIN (@p length is not nullptr) is valid only for an advertised receive. Data for a
            // CTS ends with immediate data.
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
        // Receives that have ended since cancel() need no cancellation message.
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
    const ChannelState* channel_;

    /// The receives whose CTS, NACK or end-of-read message must be sent.
    List<ReceiveRequest, &ReceiveRequest::link> answers_;
    /// The number of receives of this end that are advertised to the peer.
    std::uint32_t advertised_ = 0;
    /// The number of receives for which a cancellation message must be sent.
    std::uint32_t cancels_ = 0;
};

} // namespace rdmabuf::transport::detail
