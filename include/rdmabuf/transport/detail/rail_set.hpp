// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/channel_rail.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/detail/held_buffers.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf::transport::detail {

/// The queue pairs of a channel. Each device has the same number of queue pairs, and the queue
/// pairs of a device have consecutive indices. Messages use the first queue pair. Long transfers
/// are striped over all queue pairs, in proportion to the speed of the ports.
///
/// If the first queue pair fails, or if a work request is invalid, the channel fails: all queue
/// pairs are moved to the error state. The requests of the channel end after all posted work
/// requests have completed, because until then a device may still access their memory.
///
/// If another queue pair fails, the channel continues without it. The failed queue pair is moved to
/// the error state, and the data that it has not transferred is posted again on the first queue
/// pair. RailRecovery coordinates this with the peer. Later, RailProbation creates a new queue pair
/// to replace the failed one.
class RDMABUF_EXPORT RailSet {
  public:
    /// @param max_message  maximum length of a work request in bytes
    /// @param channel      the channel of these queue pairs. SharedState::wake() is called for this
    ///                     channel when it fails or when one of its queue pairs fails.
    RailSet(SharedState& shared, ChannelLinks& channel, std::vector<ChannelRail> rails,
            std::uint32_t inline_data, std::uint32_t max_message) noexcept;
    RailSet(const RailSet&) = delete;
    RailSet& operator=(const RailSet&) = delete;
    ~RailSet() = default;

    [[nodiscard]] std::size_t size() const noexcept { return rails_.size(); }
    [[nodiscard]] std::size_t devices() const noexcept { return rails_.back().device + 1; }
    [[nodiscard]] std::uint32_t queue_pairs_per_device() const noexcept {
        return static_cast<std::uint32_t>(rails_.size() / devices());
    }
    [[nodiscard]] ChannelRail& operator[](std::size_t i) noexcept { return rails_[i]; }
    [[nodiscard]] const ChannelRail& operator[](std::size_t i) const noexcept { return rails_[i]; }
    /// Returns the index of the queue pair to which an asynchronous event belongs; size() if the
    /// event belongs to no queue pair of this channel.
    [[nodiscard]] std::size_t rail_of(const AsyncEvent& event) const noexcept;
    [[nodiscard]] const SendQueue& queue() const noexcept { return rails_[0].queue; }
    [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }
    /// Returns the maximum length of inline data in bytes.
    [[nodiscard]] std::uint32_t inline_data() const noexcept { return inline_data_; }

    // Messages, which use only the first queue pair

    /// Posts an unsignaled message. FastLimits::sends must not be 0. Fails the channel if posting
    /// fails with another errno value than ENOMEM.
    /// @param work  a work request with the opcode IBV_WR_SEND and inline data, whose wr_id is
    ///              SendQueue::next()
    /// @return true if the message is posted
    [[nodiscard, gnu::always_inline]] bool send_prepared(ibv_send_wr& work) noexcept {
        ibv_send_wr* failed; // NOLINT(*-init-variables): set by verbs on failure
        if (const int error = ibv_post_send(rails_[0].queue_pair.native(), &work, &failed);
            error != 0) [[unlikely]] {
            if (error != ENOMEM) {
                fail(EIO, "ibv_post_send failed");
            }
            return false;
        }
        rails_[0].queue.posted(false);
        --fast.sends;
        return true;
    }

    /// Returns true if the send queue has room for a message.
    /// @param count  the number of work requests that are posted together, including the message
    [[nodiscard]] bool can_send(std::uint32_t count = 1) const noexcept {
        return rails_[0].queue.has_room(reserve + count - 1);
    }
    /// Returns true if @p length bytes fit into the inline data of a work request. They then need
    /// no send buffer.
    [[nodiscard]] bool fits_inline(std::size_t length) const noexcept {
        return length <= inline_data_;
    }

    /// Sends a message that consists of @p header and @p body. The send queue must have room: see
    /// can_send(). Credit messages and the close message may also use the entries that `reserve`
    /// keeps free.
    /// @param request        the request that waits for the completion, or nullptr
    /// @param always_signal  true to get a completion even if @p request is nullptr
    /// @return false if the channel may hold no more send buffers, or if posting failed
    [[nodiscard]] bool send(const Header& header, std::span<const std::byte> body,
                            RequestState* request = nullptr, bool always_signal = false) noexcept;
    /// Sends a message that consists of @p header and @p data. The device reads the data from the
    /// memory of the request, without a copy.
    /// @return false if the channel may hold no more send buffers, or if posting failed
    [[nodiscard]] bool send_gathered(const Header& header, const ibv_sge& data,
                                     RequestState& request) noexcept;

    /// Which work requests write_and_send() has posted: none, only the write, or the write and the
    /// message.
    enum class Posted : std::uint8_t { none = 0, write = 1, both = 2 };
    /// Posts a write on the first queue pair and, behind it, a message that consists of @p header
    /// and @p body, with one call of ibv_post_send(). The send queue must have room for two work
    /// requests. If the message is posted, its completion shows that the write has completed, too.
    /// @param write    a work request with the opcode IBV_WR_RDMA_WRITE
    /// @param request  the request that waits for the completion of the message
    /// @return `both` on success. Otherwise the send queue was full, the channel may hold no more
    ///         send buffers, or it has failed.
    [[nodiscard]] Posted write_and_send(ibv_send_wr& write, const Header& header,
                                        std::span<const std::byte> body,
                                        RequestState& request) noexcept;

    // Work requests

    /// Posts one work request.
    /// @return false if the send queue is full or if posting failed. If posting failed on the first
    ///         queue pair, the channel has failed. If it failed on another queue pair, the channel
    ///         no longer uses that queue pair.
    bool post(std::size_t rail, ibv_send_wr& work, RequestState* request,
              bool always_signal = false, Work type = Work::remote) noexcept;
    /// Posts linked work requests by one call of ibv_post_send(). Only the last one is signaled and
    /// counted in RequestState::pending: work requests of a queue pair complete in order. The send
    /// queue must have room for all of them.
    /// @param first  the first work request; ibv_send_wr::next links the others
    /// @return the number of posted work requests. If it is smaller than the number of linked ones,
    ///         the last one is not posted: the send queue of the first queue pair was full, nothing
    ///         is posted (ENOMEM), the channel has failed, or it no longer uses queue pair @p rail.
    [[nodiscard]] std::size_t post_chain(std::size_t rail, ibv_send_wr& first,
                                         RequestState& request) noexcept;
    /// Frees the send queue entries of a completed work request and of all earlier work requests.
    void completed(std::size_t rail, std::uint32_t sequence) noexcept;

    // Transfers

    /// Returns true if a transfer of this length is striped over several queue pairs. Otherwise
    /// the first queue pair transfers it.
    [[nodiscard]] bool is_striped(std::uint64_t length) const noexcept {
        return length > shared_.options.min_fragment && part(0, length, speed_) < length;
    }
    /// Divides a transfer among the queue pairs and appends it to the list of transfers.
    /// @return a bit mask: bit i is set if queue pair i transfers a part of the data
    std::uint32_t start(RdmaTransfer& transfer, std::uint64_t length) noexcept;
    /// Returns false while messages must wait. They wait for a transfer with
    /// RdmaTransfer::keeps_order until its part on the first queue pair, and its FIN if it has one,
    /// are posted. They also wait for a control message for which hold_messages() was called, until
    /// it is sent.
    [[nodiscard]] bool order_allows_message() const noexcept { return ordered_ == 0; }
    [[nodiscard]] bool has_transfers() const noexcept { return !transfers_.empty(); }

    /// Posts work requests of the started transfers, until all are posted or the send queues are
    /// full.
    /// @param on_posted  called with the request of each transfer that is posted completely, after
    ///                   RequestState::transfer was set to nullptr
    template <class OnPosted>
    void advance(const OnPosted& on_posted) noexcept {
        for (RdmaTransfer& transfer : transfers_) {
            if (broken_ != 0) {
                return;
            }
            if (!advance(transfer)) {
                continue;
            }
            transfers_.remove(&transfer);
            RequestState& request = *transfer.request;
            request.transfer = nullptr;
            if (rails_.size() == 1) {
                shared_.transfers.give_back(&transfer);
            } else {
                release_if_done(transfer);
            }
            on_posted(request);
        }
    }
    /// Makes later messages wait for a control message that must not be overtaken; see
    /// order_allows_message().
    void hold_messages() noexcept;
    /// Ends the wait of later messages for one control message or transfer; see
    /// order_allows_message(). Must be called after sending a message for which hold_messages() was
    /// called, or the FIN of a transfer with RdmaTransfer::keeps_order.
    void release_messages() noexcept { --ordered_; }

    // Failed queue pairs, and the new queue pairs that replace them

    /// Returns true if transfers use the queue pair: it has not failed, or was replaced by a new
    /// queue pair that has passed its test.
    [[nodiscard]] bool is_used(std::size_t rail) const noexcept {
        return rails_[rail].failure == nullptr;
    }
    /// Returns true if work requests can be posted on the queue pair: it has not failed, or was
    /// replaced by a new queue pair, even by one that is not tested yet.
    [[nodiscard]] bool works(std::size_t rail) const noexcept { return rails_[rail].connected; }
    /// Returns the sequence number that the next RDMA write with immediate data on a queue pair
    /// will have; see ChannelRail::immediates_posted.
    [[nodiscard]] std::uint32_t next_immediate(std::size_t rail) const noexcept {
        return rails_[rail].immediates_posted + 1;
    }
    /// Posts a fence: a write of 0 bytes with immediate data, on a queue pair other than the first.
    /// @return false if the send queue is full or if posting failed
    [[nodiscard]] bool post_fence(std::size_t rail, ibv_send_wr& work) noexcept;
    /// Records that a fence has succeeded: the peer has received the earlier writes on this queue
    /// pair.
    /// @param number  WorkId::number of the fence: the lower 24 bits of its sequence number
    void fence_completed(std::size_t rail, std::uint32_t number) noexcept;
    /// Returns true if @p number is before @p other. Both are sequence numbers of RDMA writes with
    /// immediate data, which wrap around.
    [[nodiscard]] static bool is_before(std::uint32_t number, std::uint32_t other) noexcept {
        return static_cast<std::int32_t>(number - other) < 0;
    }
    /// Returns a bit mask: bit i is set if queue pair i has failed, and the data that it has not
    /// transferred must still be posted again on the first queue pair.
    [[nodiscard]] std::uint32_t recovering() const noexcept { return recovering_; }
    /// Removes a failed queue pair from recovering(). All data that it has not transferred must
    /// have been posted again on the first queue pair.
    void recovered(std::size_t rail) noexcept { recovering_ &= ~(1U << rail); }

    /// Stops using a queue pair that has failed, and moves it to the error state. If the failed
    /// queue pair is the first one, which sends the messages, or if the peer is not connected yet,
    /// the whole channel fails; see suspend().
    void leave_out(std::size_t rail, int error, const char* reason) noexcept;
    /// Tries again to stop a failed queue pair that could not be moved to the error state, or whose
    /// last work request could not be posted.
    void stop_again(std::size_t rail) noexcept;
    /// Returns true if a queue pair in the error state takes no more receives from the shared
    /// receive queue: IBV_EVENT_QP_LAST_WQE_REACHED was processed, @p waited is at least
    /// last_receive_limit_ns, the queue pair is destroyed, or its device has failed. Before,
    /// completions of data that has arrived can still follow. Therefore this end must not send
    /// `rail_down` yet, nor destroy the queue pair, whose receive buffers would be lost.
    /// @param waited  the time since the queue pair has failed, in nanoseconds
    [[nodiscard]] bool receives_ended(std::size_t rail, std::int64_t waited) const noexcept;
    /// Returns true if all completions of a failed queue pair were polled (see receives_ended() for
    /// receives), or if abandon() has destroyed it.
    [[nodiscard]] bool is_drained(std::size_t rail) const noexcept;
    /// Returns true if the caller need not wait longer for a failed queue pair: its device has
    /// failed and no work request is in its send queue, or drain_limit_ns has passed since the
    /// failure.
    [[nodiscard]] bool is_overdue(std::size_t rail, std::int64_t now) const noexcept;
    /// Destroys a failed queue pair whose device reports no completions. Its work requests that
    /// have not completed count as failed.
    /// @return false if the queue pair cannot be destroyed. The device may then still execute the
    ///         work requests.
    [[nodiscard]] bool abandon(std::size_t rail) noexcept;
    [[nodiscard]] bool all_used() const noexcept;
    /// Puts a new queue pair in place of a failed one. Transfers use the new queue pair only after
    /// a test: see use(). Before the call, both ends must have posted again the data that the
    /// failed queue pair has not transferred.
    /// @param pair  nullptr if the new queue pair could not be connected; the caller must then call
    ///              leave_out()
    void begin_probation(std::size_t rail, QueuePair* pair) noexcept;
    /// Doubles the time between attempts to replace a failed queue pair, up to
    /// EndpointOptions::probation * 2^max_replacements. The time until the next attempt starts now.
    void delay_probation(std::size_t rail) noexcept;
    /// Resets the time between attempts to replace a failed queue pair of a device to
    /// EndpointOptions::probation. Called when the port of the device is active again.
    void port_active(std::size_t device) noexcept;
    /// Makes transfers use a new queue pair, whose test has succeeded.
    void use(std::size_t rail) noexcept;
    /// Counts a completed work request of @p request, on a channel with several queue pairs.
    /// @param succeeded  false if the work request failed because its queue pair has failed
    /// @return false if the work request is not part of an RdmaTransfer
    bool transfer_completed(std::size_t rail, const RequestState& request, bool succeeded) noexcept;
    /// Posts again, on the first queue pair, the data that a failed queue pair has not transferred.
    /// Called until it returns true.
    /// @param rail       the index of the failed queue pair
    /// @param arrived    the number of RDMA writes with immediate data that this end has posted on
    ///                   the failed queue pair and that have arrived at the peer
    /// @param end_range  called with a transfer with immediate data, and the number of bytes that
    ///                   were posted again for it. Must inform the peer, and return false if this
    ///                   is not possible now
    /// @param confirmed  called with the request of each transfer whose part on the failed queue
    ///                   pair has arrived or was posted again, if all other parts are posted, too
    /// @return true if all this data is posted again
    template <class EndRange, class Confirmed>
    [[nodiscard]] bool repeat(std::size_t rail, std::uint32_t arrived, const EndRange& end_range,
                              const Confirmed& confirmed) noexcept {
        const std::uint32_t bit = 1U << rail;
        for (RdmaTransfer& transfer : all_transfers_) {
            if (broken_ != 0) {
                return false;
            }
            RdmaTransfer::Share& share = transfer.shares[rail];
            const bool has_arrived =
                (share.has_number || share.is_covered) && !is_before(arrived, share.number);
            if ((transfer.lost & bit) == 0 && !share.unposted &&
                (has_arrived || !share.has_number)) {
                continue;
            }
            if (!has_arrived && !repeat_range(transfer, rail, end_range)) {
                return false;
            }
            share.unposted = false;
            transfer.lost &= ~bit;
            RequestState& request = *transfer.request;
            if (request.transfer != &transfer) {
                release_if_done(transfer);
                confirmed(request);
            }
        }
        return broken_ == 0;
    }

    // Set-up

    /// Makes can_send() and SendQueue::has_room() return false until resume() is called. Until
    /// then, nothing is posted except the last work requests of fail().
    void suspend() noexcept;
    void resume() noexcept;

    // Failure

    /// Returns the errno value with which the channel failed; 0 while the channel works.
    [[nodiscard]] int broken() const noexcept { return broken_; }
    /// Returns a text that describes the cause of the failure; an empty text while the channel
    /// works.
    [[nodiscard]] const char* reason() const noexcept { return reason_; }
    /// Returns the request that caused the failure (nullptr if none did), and the errno value with
    /// which this request ends.
    [[nodiscard]] std::pair<const RequestState*, int> culprit() const noexcept {
        return {culprit_, culprit_error_};
    }

    /// Fails the channel and moves all its queue pairs to the error state. A second call has no
    /// effect.
    /// @param flush_all  if true, drain() also waits until every completion of data that has
    ///                   already arrived was polled
    void fail(int error, const char* reason, const RequestState* culprit = nullptr,
              int culprit_error = 0, bool flush_all = false) noexcept;
    /// Fails the channel because the peer has closed it. The peer may have received data whose
    /// acknowledgement arrives later than its close message, or by another queue pair. Therefore
    /// the queue pairs are moved to the error state only when all signaled work requests have
    /// completed, or drain_limit_ns has passed.
    void close_by_peer() noexcept;
    /// Returns true if work requests of the failed channel can still succeed; see close_by_peer().
    /// Their requests then end as if the channel had not failed.
    [[nodiscard]] bool may_succeed() const noexcept { return awaits_acknowledgements_; }
    /// Returns true if no device can still access the memory of the channel's requests: all work
    /// requests have completed, and all queue pairs are in the error state. Destroys a queue pair
    /// if it could not be moved to the error state, or if its work requests have not completed
    /// within drain_limit_ns after the failure: its device is then considered dead.
    /// @param polled  true if the caller has just polled all completion queues and has found no
    ///                completion
    [[nodiscard]] bool drain(bool polled) noexcept;
    /// Removes all transfers and returns them to their pool.
    void drop_transfers() noexcept;
    /// Returns all send buffers of the channel to the pool. drain() must have returned true.
    void release_buffers() noexcept { held_.release_all(); }

    FastLimits fast;

    /// The number of send queue entries that are kept free for credit messages, keepalive writes,
    /// the fences of notifications, and the close message.
    static constexpr std::uint32_t reserve = 4;
    static constexpr std::size_t max_inline = 512;
    /// The time limit in nanoseconds, after the failure of a channel or of a queue pair, by which a
    /// device must have reported all completions. Otherwise the device is considered dead.
    static constexpr std::int64_t drain_limit_ns = 1'000'000'000;
    /// The maximum time in nanoseconds to wait for IBV_EVENT_QP_LAST_WQE_REACHED. Some drivers do
    /// not raise this event, and some programs read the events of devices themselves.
    static constexpr std::int64_t last_receive_limit_ns = 100'000'000;
    /// The maximum value of ChannelRail::replacements. Each replacement doubles the time until the
    /// next attempt, so this time is at most 2^6 times EndpointOptions::probation.
    static constexpr std::uint8_t max_replacements = 6;

  private:
    static constexpr std::uint64_t share_alignment = 4096;

    static void copy(std::byte* to, const Header& header, std::span<const std::byte> body) noexcept;
    /// Calls @p post with a work request for a message that consists of @p header and @p body.
    /// @param post  posts the work request, and returns true if this has succeeded
    /// @return the result of @p post; false if the channel may hold no more send buffers
    template <class Post>
    [[nodiscard]] bool with_message(const Header& header, std::span<const std::byte> body,
                                    const Post& post) noexcept {
        const std::size_t length = sizeof header + body.size();
        if (!fits_inline(length)) {
            return with_buffer(header, body, nullptr, post);
        }
        alignas(16) std::array<std::byte, max_inline> bytes; // NOLINT(*-member-init)
        copy(bytes.data(), header, body);
        ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
                         .length = static_cast<std::uint32_t>(length),
                         .lkey = 0};
        ibv_send_wr message = make_send(std::span<const ibv_sge>(&entry, 1));
        message.send_flags = IBV_SEND_INLINE;
        return post(message);
    }
    /// Like with_message(), but always copies @p header and @p body to a send buffer. The work
    /// request is signaled, because the buffer can return to the pool only after its completion.
    /// @param data  the rest of the message, which the device reads from the memory of the program;
    ///              nullptr if there is none
    template <class Post>
    [[nodiscard]] bool with_buffer(const Header& header, std::span<const std::byte> body,
                                   const ibv_sge* data, const Post& post) noexcept {
        if (!held_.may_hold()) {
            return false;
        }
        const std::uint32_t buffer = shared_.pool.take();
        std::byte* const bytes = shared_.pool.send_buffer(buffer);
        copy(bytes, header, body);
        std::array<ibv_sge, 2> entries = {
            ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(bytes),
                    .length = static_cast<std::uint32_t>(sizeof header + body.size()),
                    .lkey = shared_.rails[0]->bounce_buffers.lkey()}};
        if (data != nullptr) {
            entries[1] = *data;
        }
        ibv_send_wr message = make_send(std::span(entries).first(data != nullptr ? 2 : 1));
        if (!post(message)) {
            shared_.pool.give_back(buffer);
            return false;
        }
        held_.hold(buffer, rails_[0].queue.next() - 1);
        return true;
    }

    /// Stores the cause of the failure of the channel.
    /// @return false, without any effect, if the channel has already failed
    bool set_broken(int error, const char* reason, const RequestState* culprit,
                    int culprit_error) noexcept;
    /// Returns true if the channel failed more than drain_limit_ns ago, and all completions that
    /// the devices reported in this time were polled.
    /// @param polled  true if the caller has just polled all completion queues and has found no
    ///                completion
    [[nodiscard]] bool is_drain_over(bool polled) const noexcept {
        return (polled ? now_ns() : shared_.polled_ns) - failed_ns_ > drain_limit_ns;
    }
    void stop_all(bool flush_all) noexcept;
    /// Moves the queue pairs to the error state as soon as no signaled work request is in flight,
    /// or after drain_limit_ns; see close_by_peer().
    /// @return false if the channel must still wait for completions
    bool stop_when_acknowledged(bool polled) noexcept;
    /// Moves a queue pair to the error state. Posts a last work request if the send queue is not
    /// empty or @p flush_all is true.
    /// @return false if the queue pair is not in the error state, or if the last work request
    ///         cannot be posted
    bool stop(std::size_t rail, bool flush_all) noexcept;
    /// Destroys a queue pair, after which the device no longer accesses the memory of its work
    /// requests. @return false if ibv_destroy_qp(3) fails
    [[nodiscard]] bool destroy(std::size_t rail) noexcept;
    /// Raises ChannelRail::immediates_confirmed to @p acknowledged: the number of an RDMA write
    /// with immediate data that the device of the peer has acknowledged.
    void immediate_confirmed(std::size_t rail, std::uint32_t acknowledged) noexcept;
    /// Returns a transfer, which must be posted completely, to its pool if all its work requests
    /// have succeeded.
    void release_if_done(RdmaTransfer& transfer) noexcept;
    /// Posts again, on the first queue pair, the part of a transfer that was assigned to the failed
    /// queue pair @p rail; see repeat().
    template <class EndRange>
    [[nodiscard]] bool repeat_range(RdmaTransfer& transfer, std::size_t rail,
                                    const EndRange& end_range) noexcept {
        RdmaTransfer::Share& share = transfer.shares[rail];
        if (!share.repeated) {
            share.repeated = true;
            share.has_number = share.is_covered = false;
            share.next = share.begin;
            transfer.lost |= 1U << rail;
        }
        while (share.next < share.end) {
            if (!rails_[0].queue.has_room(reserve) || !post_piece(transfer, 0, share)) {
                return false;
            }
        }
        return !transfer.has_immediate || end_range(transfer, share.end - share.begin);
    }

    /// Returns the number of bytes of a transfer that are assigned to queue pair @p rail.
    /// @param left        the number of bytes that are not assigned to queue pairs with lower
    ///                    indices
    /// @param speed_left  the sum of the speeds of this queue pair and those with higher indices
    [[nodiscard]] std::uint64_t part(std::size_t rail, std::uint64_t left,
                                     std::uint64_t speed_left) const noexcept;
    /// Divides a transfer among the queue pairs. @return a bit mask: bit i is set if queue pair i
    /// gets a part
    [[nodiscard]] std::uint32_t share(RdmaTransfer& transfer, std::uint64_t length) const noexcept;
    /// Posts work requests of a transfer until the send queues are full. @return true if the
    /// transfer is posted completely
    [[nodiscard]] bool advance(RdmaTransfer& transfer) noexcept;
    /// Posts the next work request for one part of a transfer.
    /// @param rail   the index of the queue pair on which the work request is posted
    /// @param share  the part, which may be that of a failed queue pair
    /// @return true if the work request is posted
    [[nodiscard]] bool post_piece(RdmaTransfer& transfer, std::size_t rail,
                                  RdmaTransfer::Share& share) noexcept;

    SharedState& shared_;
    ChannelLinks& channel_;
    std::vector<ChannelRail> rails_;
    std::uint32_t inline_data_;
    std::uint32_t max_message_;
    std::uint64_t speed_ = 0;
    /// The transfers whose work requests are not all posted yet.
    List<RdmaTransfer, &RdmaTransfer::link> transfers_;
    /// On a channel with several queue pairs: all transfers that have not completed. Otherwise
    /// empty.
    List<RdmaTransfer, &RdmaTransfer::all> all_transfers_;
    std::uint32_t recovering_ = 0;
    bool suspended_ = false;
    /// The number of transfers with RdmaTransfer::keeps_order and of control messages for which
    /// later messages must wait; see order_allows_message().
    std::uint32_t ordered_ = 0;
    HeldBuffers held_;

    int broken_ = 0;
    bool awaits_acknowledgements_ = false;
    const char* reason_ = "";
    const RequestState* culprit_ = nullptr;
    int culprit_error_ = 0;
    std::int64_t failed_ns_ = 0;
};

} // namespace rdmabuf::transport::detail
