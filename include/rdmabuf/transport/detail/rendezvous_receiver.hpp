// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/chunk_table.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/cts_ring.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Receives long messages, and advertises posted receives to the peer. See Kind for the protocol.
class RDMABUF_EXPORT RendezvousReceiver {
  public:
    RendezvousReceiver(SharedState& shared, RailSet& rails, ControlChannel& control,
                       const ChannelState* channel) noexcept
        : shared_(shared), rails_(rails), control_(control), channel_(channel) {}

    /// Advertises a receive to the peer. Does nothing if can_advertise() returns false, or if the
    /// buffer has more than max_chunks regions. If posting the message fails, advance() tries
    /// again. Must be called before the receive is added to the TagMatcher.
    void advertise(ReceiveRequest& receive) noexcept;
    /// Returns true if there is room to advertise @p count more receives, and receives with this
    /// tag may be advertised; see Channel::can_advertise().
    [[nodiscard]] bool can_advertise(Tag tag, std::size_t count) const noexcept;
    /// Ends the advertisement of a receive that has matched a message or was cancelled. Does
    /// nothing if the receive was not advertised.
    void advertisement_used(ReceiveRequest& receive) noexcept;
    /// Starts to transfer the data of the message whose RTS has matched @p receive.
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
    [[nodiscard]] bool rts_is_valid(std::span<const std::byte> bytes) const noexcept {
        RtsBody body;
        RemoteTable table;
        return read_body(bytes, body) && body.request <= Immediate::max_request &&
               (body.chunks == 0 ? bytes.size() == sizeof body
                                 : body.rails >= rails_.devices() &&
                                       ChunkTable::decode(bytes.subspan(sizeof body), body.chunks,
                                                          rails_.devices(), body.length, table));
    }
    /// Counts the part of the data of a message that one queue pair has transferred, or a FIN. If
    /// the message needs a further CTS, queues it.
    /// @param rail     the index of this queue pair
    /// @param rails    the number of queue pairs that transfer the data
    /// @param length   the length of the message, if a FIN has arrived; otherwise nullptr
    /// @param written  the length in bytes of the RDMA write with immediate data, or of the data
    ///                 that a `range_repeated` message reports; 0 for a FIN
    /// @param valid    set to false for a protocol error
    /// @return the receive if all its data has arrived; otherwise nullptr
    [[nodiscard]] ReceiveRequest* data_arrived(std::uint32_t number, std::size_t rail,
                                               std::uint32_t rails, const std::uint64_t* length,
                                               std::uint64_t written, bool& valid) noexcept;
    /// Queues the `rget_done` message. Called when the RDMA read of the data of a message has
    /// completed.
    void read_completed(ReceiveRequest& receive) noexcept {
        queue(receive, ReceiveRequest::Stage::sending_rget_done);
    }
    /// Withdraws the advertisement of a receive. The receive ends when the peer confirms the
    /// withdrawal, or with a message that the peer had already sent.
    void cancel(ReceiveRequest& receive) noexcept;
    /// Processes the peer's confirmation that it will not use a withdrawn advertisement.
    /// @return the cancelled receive; nullptr for a protocol error
    [[nodiscard]] ReceiveRequest* cancelled_arrived(std::uint32_t number) const noexcept;

    [[nodiscard]] bool has_work() const noexcept {
        return !answers_.empty() || !unsent_.empty() || cancels_ != 0;
    }
    /// Sends the control messages that wait for room in the send queue.
    /// @param finished  called with each receive whose `rget_done` message was sent; all its data
    ///                  has arrived
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
        if (!unsent_.empty() && !send_advertisements()) {
            return; // The peer ignores the cancellation of a receive that is not advertised.
        }
        if (cancels_ != 0 && rails_.can_send()) {
            send_cancels();
        }
    }
    /// Removes all requests from the queues, because the channel has failed. The caller must end
    /// the requests.
    void stop() noexcept;

  private:
    [[nodiscard]] CtsBody cts_body(const ReceiveRequest& receive,
                                   const ChunkTable& table) const noexcept;
    /// Sends the advertisement of a receive. @param table  the regions of its buffer
    /// @return false if it cannot be sent now
    [[nodiscard]] bool send_advertisement(const ReceiveRequest& receive,
                                          const ChunkTable& table) noexcept;
    /// Sends the advertisements of the receives in unsent_.
    /// @return false if not all of them can be sent now
    [[nodiscard]] bool send_advertisements() noexcept;
    /// Starts to read the data of a message by RDMA. @return false if memory is exhausted
    [[nodiscard]] bool start_read(ReceiveRequest& receive, const RtsBody& body,
                                  std::span<const std::byte> bytes) noexcept;
    void queue(ReceiveRequest& receive, ReceiveRequest::Stage stage) noexcept;
    /// Sends the CTS, NACK or `rget_done` message of a receive. @return false if it cannot be sent
    /// now
    [[nodiscard]] bool answer(ReceiveRequest& receive) noexcept;
    /// Checks that a receive waits for data. If the receive is advertised and has not matched a
    /// message yet, matches it with the message whose data the peer has written to its buffer.
    /// @return false if the receive does not wait for data, or if @p length is not valid for it
    [[nodiscard]] bool take_advertised(ReceiveRequest& receive,
                                       const std::uint64_t* length) noexcept;
    void send_cancels() noexcept;

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    const ChannelState* channel_;

    /// The receives whose CTS, NACK or `rget_done` message must be sent.
    List<ReceiveRequest, &ReceiveRequest::link> answers_;
    /// The receives whose advertisement could not be posted yet, in the order of irecv().
    RequestList unsent_;
    /// The number of receives of this end that are advertised to the peer, or are in unsent_.
    std::uint32_t advertised_ = 0;
    /// The number of cancellation messages to send. Receives that have ended since cancel() are
    /// still counted.
    std::uint32_t cancels_ = 0;
};

} // namespace rdmabuf::transport::detail
