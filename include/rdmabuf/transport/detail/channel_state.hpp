// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/eager_protocol.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/one_sided.hpp>
#include <rdmabuf/transport/detail/peer_setup.hpp>
#include <rdmabuf/transport/detail/rail_probation.hpp>
#include <rdmabuf/transport/detail/rail_recovery.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/rendezvous_receiver.hpp>
#include <rdmabuf/transport/detail/rendezvous_sender.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/request.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// A notification that has arrived and that the program has not read yet. The bytes of the
/// notification are stored behind this object.
struct Notification {
    Link<Notification> link{};
    std::uint32_t size = 0;
    NotificationFences fences{};

    [[nodiscard]] std::byte* bytes() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// The connection to one peer. Starts the requests of the program, and passes the messages of the
/// peer to the protocol classes, for example to RendezvousReceiver.
class RDMABUF_EXPORT ChannelState : public ChannelLinks {
  public:
    /// @param number  a number that identifies the channel in this process
    ChannelState(SharedState& shared, const void* endpoint, std::uint32_t number,
                 std::vector<ChannelRail> channel_rails, const Hello& peer,
                 std::uint32_t inline_data, std::uint32_t max_message) noexcept
        : shared_(shared),
          endpoint_(endpoint),
          number_(number),
          depth_(shared.options.depth),
          rails_(shared, *this, std::move(channel_rails), inline_data, max_message),
          control_(rails_, shared.options, peer),
          eager_(shared, rails_, control_,
                 eager_limit(shared.options.eager_limit, peer.eager_limit, max_message)),
          rendezvous_sender_(shared, rails_, control_, this, peer.depth),
          rendezvous_receiver_(shared, rails_, control_, this),
          one_sided_(shared, rails_, control_),
          recovery_(rails_, control_, one_sided_),
          probation_(shared, rails_, control_, one_sided_, recovery_),
          loopback_(shared),
          probed_ns_(now_ns()) {
        set_fast_arrivals();
        rails_.fast.requests = depth_ - 1; // The last request needs count_request().
    }
    ChannelState(const ChannelState&) = delete;
    ChannelState& operator=(const ChannelState&) = delete;
    ~ChannelState();

    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    [[nodiscard]] RailSet& rails() noexcept { return rails_; }
    [[nodiscard]] const ControlChannel& control() const noexcept { return control_; }
    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    void set_socket(UniqueFd socket) noexcept { socket_ = std::move(socket); }
    [[nodiscard]] std::uint32_t in_flight() const noexcept { return in_flight_; }
    /// Returns the errno value with which the channel has failed; 0 while the channel works. New
    /// requests fail with this value. Two kinds can still start, unless the value is EBADF (the
    /// channel was closed): receives of eager messages that have already arrived, and flushes.
    [[nodiscard]] int broken() const noexcept { return rails_.broken(); }
    /// Returns the errno value with which new sends and one-sided requests fail; 0 if they can
    /// start. The value is EBADF after this end has sent its close message: the peer then stops its
    /// queue pairs, and receives no later message.
    [[nodiscard]] int refusal() const noexcept { return close_sent ? EBADF : broken(); }
    [[nodiscard]] const char* reason() const noexcept { return rails_.reason(); }

    // Setup of a PreparedChannel, by addresses that the program exchanges; see PeerSetup

    /// Makes the channel wait for its peer: until the queue pairs of the peer are connected,
    /// nothing is posted on the queue pairs of the channel. Must be called only once, before any
    /// request is started.
    /// @param kept  a datagram that arrived for this end before this call. If the peer of this
    ///              channel has sent the datagram, the channel does not wait
    void await_peer(std::unique_ptr<PeerSetup> setup,
                    const std::optional<ConnectedDatagram>& kept) noexcept;
    /// Returns true if the channel waits for a ConnectedDatagram of the peer.
    [[nodiscard]] bool waits_for_peer() const noexcept {
        return setup_ != nullptr && !setup_->peer_connected;
    }
    /// Returns true if the channel waits for its peer and no request is queued.
    [[nodiscard]] bool is_unused() const noexcept { return waits_for_peer() && !has_queued(); }
    /// Returns true if a received ConnectedDatagram is for this channel.
    /// @param to  the member ConnectedDatagram::to
    [[nodiscard]] bool is_end(const Handle::Secret& to) const noexcept {
        return setup_ != nullptr && setup_->ours == to;
    }
    void connected_arrived(const ConnectedDatagram& datagram) noexcept;

    // The functions below start a request. On success, each function returns 0 and sets `request`;
    // send_copy() has no Request. On failure, the function returns an errno value and has no other
    // effect.

    int send(const BufferRef& buffer, Tag tag, Request& request, void* context) noexcept;
    /// Starts a send of any length. @p memory, @p address and @p bytes describe the buffer.
    int send_any(const MemoryState* memory, std::uintptr_t address, std::uint64_t bytes, Tag tag,
                 Request& request, void* context) noexcept;
    /// Sends a message that is copied before the call returns.
    /// @return 0; EMSGSIZE if the message is too long; EAGAIN if it cannot be sent now; the errno
    ///         value of refusal() if the channel has failed or was closed
    int send_copy(std::span<const std::byte> message, Tag tag) noexcept;
    /// See Channel::issend().
    int send_synchronously(const BufferRef& buffer, Tag tag, Request& request,
                           void* context) noexcept;
    /// @param mask  the bits in which the tag of a message must be equal to @p tag; see Tag
    int receive(const BufferRef& buffer, Tag tag, Tag mask, Request& request,
                void* context) noexcept;
    /// Starts a receive into a buffer of any size. @p memory, @p address and @p bytes describe the
    /// buffer.
    int receive_any_length(const MemoryState* memory, std::uintptr_t address, std::uint64_t bytes,
                           Tag tag, Tag mask, Request& request, void* context) noexcept;
    /// Starts the receive of a message that mprobe() has claimed.
    /// @param claim  UnexpectedMessage::claim
    /// @return the result of receive(), or ESTALE if there is no such message
    int receive_claimed(const BufferRef& buffer, std::uint64_t claim, Request& request,
                        void* context) noexcept;
    int put(const BufferRef& buffer, const RemoteMemory& remote, std::uint64_t offset,
            std::span<const std::byte> notification, bool notifies, Request& request,
            void* context) noexcept;
    int get(const BufferRef& buffer, const RemoteMemory& remote, std::uint64_t offset,
            Request& request, void* context) noexcept;
    int prepare_list(std::span<const TransferEntry> entries, bool is_read,
                     PreparedList& list) const noexcept;
    int start_list(const PreparedList& list, bool is_read, std::span<const std::byte> notification,
                   bool notifies, Request& request, void* context) noexcept;
    int atomic(OneSidedRequest::Operation operation, const BufferRef& result,
               const RemoteMemory& remote, std::uint64_t offset, std::uint64_t operand,
               std::uint64_t compare, Request& request, void* context) noexcept;
    int flush(const BufferRef& buffer, Request& request, void* context) noexcept;
    int fence(Request& request, void* context) noexcept;

    /// Copies the oldest notification of the peer to @p bytes, and removes it.
    /// @return the size of the notification; -EAGAIN if no notification has arrived; -EMSGSIZE if
    ///         @p bytes is too small: the notification is kept
    int take_notification(std::span<std::byte> bytes) noexcept;
    /// Like take_notification(), but an error has a text.
    Result<std::size_t> notification(std::span<std::byte> bytes) noexcept;

    [[nodiscard]] std::optional<std::uint64_t> advertised_receive(Tag tag) noexcept;
    [[nodiscard]] bool can_advertise(Tag tag, std::size_t count) const noexcept {
        return broken() == 0 && rendezvous_receiver_.can_advertise(tag, count);
    }

    /// Cancels a receive that has not matched a message. If an advertisement of the receive was
    /// sent to the peer, the receive ends when the peer confirms the cancellation.
    /// @return 0; EALREADY if the receive has matched a message or was cancelled before
    int cancel(ReceiveRequest& receive) noexcept;
    /// See OneSided::cancel().
    int cancel(OneSidedRequest& request) noexcept { return one_sided_.cancel(request); }

    /// Starts a receive whose message has already arrived, and takes @p message from the
    /// TagMatcher. Destroys the message, except an eager message for memory of a GPU: this one is
    /// destroyed when its data is in a copy buffer, from which a NIC writes it to the GPU.
    void receive_unexpected(ReceiveRequest& receive, UnexpectedMessage& message) noexcept;

    /// Until deliver_held_messages(), withholds the messages of the peer from receives that accept
    /// any channel. Must be called before progress() can process a message of the channel.
    /// @throws std::bad_alloc
    void hold_messages() { shared_.matcher.hold(this); }
    /// Delivers the messages that have arrived since hold_messages() to receives that accept any
    /// channel.
    void deliver_held_messages() noexcept;

    // Progress

    /// Processes a send completion.
    /// @param rail  the index of the queue pair on which the work request was posted
    void send_completed(std::size_t rail, const WorkId& id, ibv_wc_status status) noexcept;
    /// Processes a message that has arrived in a receive buffer.
    /// @param bytes  the address of the receive buffer
    /// @return true if the buffer may be posted again; false if LoopbackCopy still reads the buffer
    [[nodiscard]] bool message_arrived(const WorkCompletion& completion, std::byte* bytes) noexcept;
    /// Processes an RDMA write of the peer with immediate data.
    /// @param value    the immediate data
    /// @param written  the length of the RDMA write in bytes
    void immediate_arrived(std::size_t rail, std::uint32_t value, std::uint32_t written) noexcept;
    /// Processes a receive that has completed with an error on queue pair @p rail. If the receive
    /// was flushed, calls RailSet::leave_out() for the queue pair; otherwise fails the channel with
    /// EPROTO.
    void receive_failed(std::size_t rail, ibv_wc_status status) noexcept;
    /// Processes the completion of a loopback work request that belongs to a request of this
    /// channel.
    void loopback_completed(RequestState& request, ibv_wc_status status) noexcept;

    /// Returns true if advance() has something to do.
    [[nodiscard]] bool has_work() const noexcept {
        return !loopback_queue_.empty() || (rails_.broken() != 0 ? !ended_ : can_post());
    }
    /// Posts the work requests and messages that are due, for example those that waited for free
    /// entries of the send queues. After a failure, ends the requests when the devices no longer
    /// access their memory.
    /// @param polled  true if the caller has just polled all completion queues and has found no
    ///                completion
    void advance(bool polled = false) noexcept;

    /// Called periodically. Sends keepalive writes while requests are in flight, continues the
    /// replacement of failed queue pairs, and marks devices that do not respond as silent. While a
    /// prepared channel waits for its peer, repeats the ConnectedDatagram, and fails the channel if
    /// the peer does not connect in time.
    void check(std::int64_t now) noexcept;
    /// Processes an event of the socket. Fails the channel if the peer has closed the socket or has
    /// sent data. Posts keepalive writes if TCP cannot reach the other machine.
    /// @return false if the socket need not be watched any more
    [[nodiscard]] bool socket_event() noexcept;

    void fail(int error, const char* reason, const RequestState* culprit = nullptr,
              int culprit_error = 0) noexcept {
        rails_.fail(error, reason, culprit, culprit_error);
    }
    /// Returns true if all sent messages and one-sided requests are acknowledged. Keepalive writes
    /// and tests on queue pairs other than the first need not be acknowledged, because the port of
    /// their device may be down. Copies of received messages to GPU memory have no effect on the
    /// result: the peer does not wait for them.
    [[nodiscard]] bool all_acknowledged() noexcept;
    /// Posts a signaled write of 0 bytes on the first queue pair, unless the last work request
    /// there was signaled or the send queue has no room. The completion shows that all earlier
    /// messages are acknowledged. The other queue pairs need no such write: the last work request
    /// of each request and each fence there is signaled.
    void signal_all() noexcept;
    [[nodiscard]] bool send_close() noexcept;
    /// Sends `goodbye` on the socket, if there is one.
    void say_goodbye() noexcept;
    /// Returns true if this end has sent its close message, or the peer has closed the channel. The
    /// peer may then destroy its queue pairs at any time; if this channel fails because of that,
    /// close() returns no error.
    [[nodiscard]] bool close_exchanged() const noexcept { return close_sent || peer_closed_; }
    /// Ends the remaining requests of a failed channel with EIO, although a queue pair could
    /// neither be moved to the error state nor be destroyed. The device of this queue pair may
    /// still access the memory of the requests. Their send buffers are not returned to the pool.
    void give_up() noexcept;
    /// Returns true if requests_ended() is true, and no request waits for the loopback queue pairs.
    [[nodiscard]] bool ended() const noexcept { return ended_ && loopback_queue_.empty(); }
    /// Returns true if the channel has failed and all its requests have ended, except those that
    /// need the loopback queue pairs (copies and flush reads).
    [[nodiscard]] bool requests_ended() const noexcept { return ended_; }
    /// Ends, with @p error, the requests of a failed channel that wait for the loopback queue
    /// pairs. A request that has already posted work requests there ends when these have completed.
    /// @param error  0 to end only the requests whose RequestState::error is set
    void drop_loopback(int error) noexcept;

    void give_back(RequestState& request) noexcept;
    /// Puts a receive back into its pool, with less work than give_back(). RequestFlags::delivered
    /// must be true.
    void recycle(ReceiveRequest& receive) noexcept {
        --in_flight_;
        shared_.receives.recycle(&receive);
    }
    /// Assigns to this channel a receive that Endpoint::irecv() has started without a channel, and
    /// that has matched a message of this channel. Counts it as a request of this channel, and sets
    /// its deadline again.
    void adopt(ReceiveRequest& receive) noexcept;

  private:
    using Sends = List<SendRequest, &SendRequest::link>;

    /// Returns the maximum length of an eager message that both ends and the ports of both ends
    /// support, in bytes.
    [[nodiscard]] static std::uint32_t eager_limit(std::uint32_t ours, std::uint32_t theirs,
                                                   std::uint32_t max_message) noexcept;
    /// Checks that a transfer between a buffer and memory of the peer can start.
    /// @param access  the access that the operation needs to the memory of the peer
    /// @return 0, the value of refusal(), or another errno value
    [[nodiscard]] int check_transfer(const BufferRef& buffer, const RemoteMemory& remote,
                                     std::uint64_t offset, Access access) const noexcept;
    /// Initializes a request of this channel.
    /// @param taken  a request that was taken from its pool, or nullptr
    /// @return @p taken
    template <class T>
    [[nodiscard]] T* begin(T* taken, const BufferRef& buffer, Request& request,
                           void* context) noexcept {
        if (taken == nullptr) {
            return nullptr;
        }
        count_request();
        shared_.begin(*taken, this, number_, buffer, request, context);
        return taken;
    }
    void wake() noexcept { shared_.wake(*this); }
    [[nodiscard]] bool full() const noexcept { return in_flight_ >= depth_; }
    void count_request() noexcept;

    /// Returns 0 if a send of this buffer can start; otherwise an errno value.
    [[nodiscard]] int check_send(const BufferRef& buffer) noexcept;
    /// Copies a message and sends it as an eager message.
    /// @return false if it cannot be sent now
    [[nodiscard]] bool send_now(std::span<const std::byte> message, Tag tag) noexcept;
    /// Starts a send that needs a SendRequest: the send must wait, a NIC reads the data from the
    /// program's memory, the send is synchronous, or it has a `context` pointer.
    int start_send(const BufferRef& buffer, Tag tag, Request& request, void* context,
                   bool synchronous) noexcept;
    /// Returns 0 if a receive into this buffer can start; otherwise an errno value.
    [[nodiscard]] int check_receive(const BufferRef& buffer) noexcept;
    /// @param message  the message, if it has already arrived; nullptr to post the receive
    int start_receive(const BufferRef& buffer, UnexpectedMessage* message, Tag tag, Tag mask,
                      Request& request, void* context) noexcept;
    /// Matches a receive with a message that has already arrived, and takes @p message from the
    /// TagMatcher. If the message is an RTS, the next advance() answers it.
    void match_unexpected(ReceiveRequest& receive, UnexpectedMessage& message) noexcept;
    /// Destroys a stored eager message whose data was copied, or is not needed any more. The peer
    /// gets the credits of the message back only now, so that EndpointOptions::unexpected_limit
    /// also limits the messages whose receives wait for a copy buffer.
    void consumed(UnexpectedMessage& message) noexcept;
    [[nodiscard]] EagerProtocol::Sent try_send(SendRequest& request) noexcept;
    void send_queued() noexcept;
    /// Takes a one-sided request from its pool and initializes it.
    /// @param taken  set to the request, or to nullptr if an errno value is returned
    /// @return 0; EAGAIN if too many requests of the channel are in flight; ENOMEM
    int begin_one_sided(OneSidedRequest::Operation operation, const BufferRef& buffer,
                        Request& request, void* context, OneSidedRequest*& taken) noexcept;
    /// Starts a request that needs no RdmaTransfer.
    /// @return always 0, so that callers can return the result of this function
    int start(OneSidedRequest& request) noexcept;
    /// Starts an RDMA write or read by an RdmaTransfer.
    /// @return 0, or ENOMEM; after ENOMEM, the request was returned to its pool
    int start_transfer(OneSidedRequest& request, const RemoteMemory& remote,
                       std::uint64_t offset) noexcept;
    static void set_notification(OneSidedRequest& request, std::span<const std::byte> bytes,
                                 bool notifies) noexcept;

    /// Checks a received message, and processes the credits in its header. Then processes the
    /// message itself, unless it is an eager message.
    /// @param received  the number of bytes that have arrived, with the header
    /// @return true for a valid eager message, whose data the caller must process
    [[nodiscard]] bool header_arrived(std::byte* bytes, std::uint32_t received) noexcept;
    void set_fast_sends() noexcept {
        const bool unusual = broken() != 0 || full() || !queued_.empty() ||
                             !rails_.order_allows_message() || rendezvous_sender_.has_advertised();
        rails_.fast.sends = unusual ? 0
                                    : std::min(eager_.short_messages(),
                                               rails_.queue().unsignaled_left(RailSet::reserve));
    }
    /// Sets FastLimits::arrivals, which limits the length of messages on the short path. Must be
    /// called when ByteCredits::room() has changed.
    void set_fast_arrivals() noexcept;
    /// Processes a received message of any kind except `eager`.
    void control_message_arrived(const Header& header, std::span<std::byte> body) noexcept;
    void rts_arrived(const Header& header, std::span<std::byte> body) noexcept;
    /// Ends the advertisement of a posted receive that has matched a message of this channel, and
    /// assigns a receive from any channel to this channel.
    void matched(ReceiveRequest& receive) noexcept;
    /// Stores a message that no posted receive accepts.
    /// @param length  the length of the message in bytes
    void add_unexpected(Kind kind, Tag tag, std::span<std::byte> body,
                        std::uint64_t length) noexcept;
    void notification_arrived(const Header& header, std::span<const std::byte> body) noexcept;
    void data_arrived(std::uint32_t request, std::size_t rail, std::uint32_t rails,
                      const std::uint64_t* length, std::uint64_t written) noexcept;
    /// Ends a receive whose data has arrived. If the message has data and
    /// MemoryState::flush_on_receive is true, flush reads are posted first, and the receive ends
    /// when these reads have completed.
    void finish_receive(ReceiveRequest& receive) noexcept;
    /// Adds a request to loopback_queue_, or to SharedState::copies if it needs a copy buffer. For
    /// a flush, calls LoopbackCopy::query_ports().
    void queue_loopback(RequestState& request) noexcept;
    /// Moves as many requests of all channels as there are free copy buffers from
    /// SharedState::copies to the loopback_queue_ of their channels.
    void give_copy_buffers() noexcept;
    /// Posts the work requests of one request: the copy to GPU memory, or the flush reads.
    /// @return 0; EAGAIN if a loopback queue pair has no room for them or is being replaced;
    ///         another errno value of LoopbackCopy
    [[nodiscard]] int post_loopback(RequestState& request) noexcept;
    /// Ends one request, as drop_loopback(int) does.
    void drop_loopback(RequestState& request, int error) noexcept;
    /// Posts the work requests of as many requests in loopback_queue_ as possible.
    void start_loopback() noexcept;
    /// Ends a request whose loopback work requests have completed, with RequestState::error. A
    /// receive whose data has been copied is flushed first if its memory needs it.
    void loopback_ended(RequestState& request) noexcept;
    /// Starts the requests and sends the control messages that were waiting for free send queue
    /// entries, for credits, or for earlier transfers to be posted.
    void start_queued() noexcept;
    void end_requests(int error) noexcept;
    /// Called when all work requests of an RdmaTransfer of @p request are posted. For a send,
    /// queues the FIN if one is needed. Then calls settled().
    void posted(RequestState& request) noexcept;
    /// Ends the request or starts its next step, if all its work requests are posted and have
    /// completed. Called when this may have become true.
    void settled(RequestState& request) noexcept;
    void explain(std::size_t rail, ibv_wc_status status, const RequestState* culprit) noexcept;
    /// Returns true if a work request waits to be posted.
    [[nodiscard, gnu::always_inline]] bool has_queued() const noexcept {
        return !queued_.empty() || rails_.has_transfers() || rendezvous_sender_.has_work() ||
               rendezvous_receiver_.has_work() || one_sided_.has_work() || control_.credit_due() ||
               recovery_.has_work();
    }
    /// Returns true if advance() of a channel that works has something to post for the peer.
    [[nodiscard, gnu::always_inline]] bool can_post() const noexcept {
        return setup_ == nullptr ? has_queued()
                                 : setup_->datagram_due || (setup_->peer_connected && has_queued());
    }
    /// Sends a ConnectedDatagram, or makes advance() send it later if all send buffers are in use.
    void send_connected() noexcept;
    void protocol_error(const char* reason) noexcept { fail(EPROTO, reason); }
    /// Fails the channel because the close message of the peer, or its `goodbye`, has arrived; see
    /// RailSet::close_by_peer().
    void peer_closed() noexcept;
    void drop_notification() noexcept;

    SharedState& shared_;
    const void* endpoint_;
    std::uint32_t number_;
    std::uint32_t in_flight_ = 0;
    /// EndpointOptions::depth.
    std::uint32_t depth_;
    UniqueFd socket_;
    /// The setup state of a PreparedChannel; nullptr if the channel was connected by a socket.
    std::unique_ptr<PeerSetup> setup_;
    RailSet rails_;
    ControlChannel control_;
    EagerProtocol eager_;
    RendezvousSender rendezvous_sender_;
    RendezvousReceiver rendezvous_receiver_;
    OneSided one_sided_;
    RailRecovery recovery_;
    RailProbation probation_;
    LoopbackCopy loopback_;

    /// The sends that are not started yet, in the order in which the program called isend().
    Sends queued_;
    /// The receives and flushes whose copy to GPU memory or flush reads are not posted yet. The
    /// loopback queue pairs belong to the endpoint, so these requests continue after a failure of
    /// the channel.
    RequestList loopback_queue_;
    /// The number of RTS messages that have arrived and have not matched a receive yet. More than
    /// depth_ such messages (Hello::depth) are a protocol error of the peer.
    std::uint32_t unexpected_rts_ = 0;
    List<Notification, &Notification::link> notifications_;

    /// True if the channel has failed and its requests have ended; see requests_ended().
    bool ended_ = false;
    /// True if the close message of the peer, or its `goodbye`, has arrived.
    bool peer_closed_ = false;
    /// True if a message has arrived since the last call of check().
    bool heard_ = false;
    std::int64_t probed_ns_ = 0;
};

} // namespace rdmabuf::transport::detail

// Defines the inlined member functions of ChannelState.
#include <rdmabuf/transport/detail/channel_hot_path.hpp>
