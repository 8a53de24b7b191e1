// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transfer_splitter.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/held_buffers.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf::transport::detail {

/// A queue pair of a channel.
struct ChannelRail {
    /// @param used_device  the index of the device in SharedState::rails
    ChannelRail(QueuePair pair, std::size_t used_device, std::uint32_t depth) noexcept
        : queue_pair(std::move(pair)), device(used_device), queue(depth) {}

    QueuePair queue_pair;
    /// The index of the device in SharedState::rails.
    std::size_t device;
    SendQueue queue;

    /// The cause for which the queue pair was left out; nullptr while it works.
    const char* failure = nullptr;
    std::int64_t failed_ns = 0;
    /// True if the last work request of the queue pair that was left out is posted.
    bool stopped = false;
    /// True if the device does not report the completions of the queue pair that was left out. If
    /// they arrive later, they are ignored.
    bool abandoned = false;
    /// The number of RDMA writes with immediate data that were posted on this queue pair. It wraps
    /// around.
    std::uint32_t immediates_posted = 0;
    /// The last of these RDMA writes that has ended a range of a transfer and has succeeded.
    std::uint32_t immediates_confirmed = 0;
    /// The number of RDMA writes with immediate data of the peer that have arrived.
    std::uint32_t immediates_arrived = 0;
};

/// The queue pairs of a channel. Each device has the same number of queue pairs, and the queue
/// pairs of a device have consecutive indices. Messages use the first queue pair. Long transfers
/// are striped over all queue pairs, in proportion to the speed of the ports.
///
/// If the first queue pair fails, or if a work request is invalid, the channel fails: all queue
/// pairs are moved to the error state. The requests of the channel end after all posted work
/// requests have completed, because until then a device may still access the memory of these
/// requests. If another queue pair fails, it is left out: it is moved to the error state, and the
/// first queue pair repeats what it has not transferred. RailRecovery agrees on this with the peer.
class RailSet {
  public:
    /// @param max_message  maximum length of a work request in bytes
    /// @param channel      the channel of these queue pairs. When a work request fails,
    ///                     SharedState::wake() is called for this channel.
    RailSet(SharedState& shared, ChannelLinks& channel, std::vector<ChannelRail> rails,
            std::uint32_t inline_data, std::uint32_t max_message) noexcept
        : shared_(shared),
          channel_(channel),
          rails_(std::move(rails)),
          inline_data_(inline_data),
          max_message_(max_message),
          held_(shared.pool) {
        for (const ChannelRail& rail : rails_) {
            speed_ += shared_.rails[rail.device]->speed;
        }
    }
    RailSet(const RailSet&) = delete;
    RailSet& operator=(const RailSet&) = delete;
    ~RailSet() = default;

    /// Returns the number of queue pairs.
    [[nodiscard]] std::size_t size() const noexcept { return rails_.size(); }
    /// Returns the number of devices.
    [[nodiscard]] std::size_t devices() const noexcept { return rails_.back().device + 1; }
    [[nodiscard]] std::uint32_t queue_pairs_per_device() const noexcept {
        return static_cast<std::uint32_t>(rails_.size() / devices());
    }
    [[nodiscard]] ChannelRail& operator[](std::size_t i) noexcept { return rails_[i]; }
    [[nodiscard]] const ChannelRail& operator[](std::size_t i) const noexcept { return rails_[i]; }
    /// Returns the index of the queue pair that an asynchronous event is of; size() if it is of
    /// another queue pair.
    [[nodiscard]] std::size_t rail_of(const AsyncEvent& event) const noexcept {
        return static_cast<std::size_t>(
            std::ranges::find_if(
                rails_, [&](const ChannelRail& rail) { return event.is_of(rail.queue_pair); }) -
            rails_.begin());
    }
    [[nodiscard]] const SendQueue& queue() const noexcept { return rails_[0].queue; }
    [[nodiscard]] std::uint32_t max_message() const noexcept { return max_message_; }

    // Messages on the first queue pair

    /// Posts the message that @p work describes, and sets its wr_id and flags. can_send() must be
    /// true.
    /// @param work  a work request with the opcode IBV_WR_SEND and inline data
    [[nodiscard]] bool send_inline(ibv_send_wr& work) noexcept {
        ChannelRail& to = rails_[0];
        const bool signaled = to.queue.must_signal();
        work.wr_id =
            WorkId{.work = Work::remote, .number = WorkId::no_request, .sequence = to.queue.next()}
                .encode();
        work.send_flags = signaled ? unsigned{IBV_SEND_INLINE} | unsigned{IBV_SEND_SIGNALED}
                                   : unsigned{IBV_SEND_INLINE};
        ibv_send_wr* failed = nullptr;
        if (const int error = ibv_post_send(to.queue_pair.native(), &work, &failed); error != 0) {
            if (error != ENOMEM) {
                fail(EIO, "ibv_post_send failed");
            }
            return false;
        }
        to.queue.posted(signaled);
        return true;
    }

    /// Returns true if a message can be posted now.
    [[nodiscard]] bool can_send() const noexcept { return rails_[0].queue.has_room(reserve); }
    /// Returns true if a message with a body of this length is sent as inline data, without a send
    /// buffer.
    [[nodiscard]] bool fits_inline(std::size_t length) const noexcept {
        return length <= inline_data_;
    }

    /// Sends a message that consists of @p header and @p body. can_send() must be true.
    /// @param request        the request that waits for the completion, or nullptr
    /// @param always_signal  true to get a completion even if @p request is nullptr
    /// @return false if all send buffers are in use, or if posting failed
    [[nodiscard]] bool send(const Header& header, std::span<const std::byte> body,
                            RequestState* request = nullptr, bool always_signal = false) noexcept {
        const std::size_t length = sizeof header + body.size();
        if (fits_inline(length)) {
            alignas(16) std::array<std::byte, max_inline> bytes; // NOLINT(*-member-init)
            copy(bytes.data(), header, body);
            ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
                             .length = static_cast<std::uint32_t>(length),
                             .lkey = 0};
            ibv_send_wr work = make_send(std::span<const ibv_sge>(&entry, 1));
            work.send_flags = IBV_SEND_INLINE;
            return post(0, work, request, always_signal);
        }
        return send_buffered(header, body, nullptr, request, always_signal);
    }
    /// Sends a header and data that the device reads from the memory of the request.
    [[nodiscard]] bool send_gathered(const Header& header, const ibv_sge& data,
                                     RequestState& request) noexcept {
        return send_buffered(header, {}, &data, &request, true);
    }

    // Work requests

    /// Posts one work request.
    /// @return false if posting failed. The channel has then failed too, unless the send queue was
    ///         full.
    bool post(std::size_t rail, ibv_send_wr& work, RequestState* request,
              bool always_signal = false) noexcept {
        ChannelRail& to = rails_[rail];
        const bool signaled = always_signal || request != nullptr || to.queue.must_signal();
        work.wr_id = WorkId{.work = Work::remote,
                            .number = request != nullptr ? request->index : WorkId::no_request,
                            .sequence = to.queue.next()}
                         .encode();
        work.send_flags |= signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
        ibv_send_wr* failed = nullptr;
        if (const int error = ibv_post_send(to.queue_pair.native(), &work, &failed); error != 0) {
            if (error != ENOMEM && rail == 0) {
                fail(EIO, "ibv_post_send failed", request, error);
            } else if (error != ENOMEM) {
                leave_out(rail, EIO, "ibv_post_send failed");
            }
            return false;
        }
        to.queue.posted(signaled);
        if (request != nullptr) {
            ++request->pending;
        }
        return true;
    }
    /// Frees the send queue entries of a completed work request and of all earlier work requests.
    void completed(std::size_t rail, std::uint32_t sequence) noexcept {
        SendQueue& queue = rails_[rail].queue;
        queue.completed(sequence);
        if (rail == 0) {
            held_.release_completed(queue);
        }
    }

    // Transfers

    /// Divides a transfer among the queue pairs and appends it to the list of transfers.
    void start(RdmaTransfer& transfer, std::uint64_t length) noexcept {
        const std::uint32_t used = share(transfer, length);
        transfer.immediate.rails = used;
        transfer.request->transfer = &transfer;
        transfers_.push_back(&transfer);
        if (rails_.size() > 1) {
            transfer.lost = transfer.pending = 0;
            transfer.next_of_request = nullptr;
            RdmaTransfer** last = &transfer.request->unconfirmed;
            while (*last != nullptr) {
                last = &(*last)->next_of_request;
            }
            *last = &transfer;
            all_transfers_.push_back(&transfer);
        }
        if (transfer.keeps_order) {
            ++ordered_;
        }
    }
    /// Returns true if a message may be posted. Transfers that must precede later messages must all
    /// be posted on the first queue pair.
    [[nodiscard]] bool order_allows_message() const noexcept { return ordered_ == 0; }
    [[nodiscard]] bool has_transfers() const noexcept { return !transfers_.empty(); }

    /// Posts the transfers of the list until they are all posted or the send queues are full.
    /// @param on_posted  called with the request of each transfer that is posted completely, after
    ///                   RequestState::transfer was set to nullptr
    template <class OnPosted>
    void advance(const OnPosted& on_posted) noexcept {
        for (RdmaTransfer* i = transfers_.front(); i != nullptr && broken_ == 0;) {
            RdmaTransfer* const transfer = i;
            i = Transfers::next(i);
            if (!advance(*transfer)) {
                continue;
            }
            transfers_.remove(transfer);
            RequestState& request = *transfer->request;
            request.transfer = nullptr;
            if (rails_.size() == 1) {
                shared_.transfers.give_back(transfer);
            } else {
                release_if_done(*transfer);
            }
            on_posted(request);
        }
    }
    /// Called after the FIN of a transfer with RdmaTransfer::keeps_order was sent. Later messages
    /// need not wait for this transfer any longer; see order_allows_message().
    void fin_sent() noexcept { --ordered_; }

    // Queue pairs that are left out

    /// Returns true if the queue pair was not left out.
    [[nodiscard]] bool works(std::size_t rail) const noexcept {
        return rails_[rail].failure == nullptr;
    }
    /// Returns the queue pairs whose lost transfers are not repeated yet: bit i is queue pair i.
    [[nodiscard]] std::uint32_t recovering() const noexcept { return recovering_; }
    /// Called when all lost transfers of a queue pair were repeated.
    void recovered(std::size_t rail) noexcept { recovering_ &= ~(1U << rail); }

    /// Leaves out a queue pair that has failed, and moves it to the error state. If it is the first
    /// one, the channel fails, because messages use this queue pair.
    void leave_out(std::size_t rail, int error, const char* reason) noexcept {
        if (rail == 0 || suspended_) {
            fail(error, reason);
            return;
        }
        ChannelRail& failed = rails_[rail];
        if (broken_ != 0 || failed.failure != nullptr) {
            return;
        }
        failed.failure = reason;
        failed.failed_ns = now_ns();
        recovering_ |= 1U << rail;
        speed_ -= shared_.rails[failed.device]->speed;
        shared_.wake(channel_);
        // The completion of the last work request also shows that all data of the peer which has
        // arrived by this queue pair was polled.
        failed.stopped = stop(rail, true);
    }
    /// Returns true if the last completions of a queue pair that was left out were polled, or do
    /// not arrive.
    [[nodiscard]] bool is_drained(std::size_t rail) const noexcept {
        const ChannelRail& failed = rails_[rail];
        return failed.abandoned || (failed.stopped && failed.queue.idle());
    }
    /// Stops to wait for the completions of a queue pair that was left out.
    void abandon(std::size_t rail) noexcept {
        SendQueue& queue = rails_[rail].queue;
        rails_[rail].abandoned = true;
        queue.completed(queue.next() - 1);
        for (RdmaTransfer* i = all_transfers_.front(); i != nullptr; i = AllTransfers::next(i)) {
            RdmaTransfer::Share& share = i->shares[rail];
            if (share.pending != 0) {
                i->request->pending -= share.pending;
                i->pending -= share.pending;
                share.pending = 0;
                i->lost |= 1U << rail;
            }
        }
    }
    /// Called when a work request of a request on a channel with several queue pairs has completed.
    /// @param succeeded  false if it was lost because its queue pair has failed
    /// @return false if the work request is not part of an RdmaTransfer
    bool transfer_completed(std::size_t rail, const RequestState& request,
                            bool succeeded) noexcept {
        RdmaTransfer* transfer = request.unconfirmed;
        while (transfer != nullptr && transfer->shares[rail].pending == 0) {
            transfer = transfer->next_of_request;
        }
        if (transfer == nullptr) {
            return false;
        }
        --transfer->shares[rail].pending;
        --transfer->pending;
        if (!succeeded) {
            transfer->lost |= 1U << rail;
        }
        if (transfer->request->transfer != transfer) {
            release_if_done(*transfer);
        }
        return true;
    }
    /// Repeats, on the first queue pair, the ranges that a queue pair that was left out has not
    /// transferred. Called until it returns true.
    /// @param arrived    the number of RDMA writes with immediate data of this queue pair that have
    ///                   arrived at the peer
    /// @param end_range  called with each RdmaTransfer with immediate data whose range is repeated,
    ///                   and with the length of this range; informs the peer, and returns false if
    ///                   this is not possible now
    /// @param confirmed  called with the request of each transfer that is complete
    /// @return true if nothing is left to be repeated
    template <class EndRange, class Confirmed>
    [[nodiscard]] bool repeat(std::size_t rail, std::uint32_t arrived, const EndRange& end_range,
                              const Confirmed& confirmed) noexcept {
        const std::uint32_t bit = 1U << rail;
        for (RdmaTransfer* i = all_transfers_.front(); i != nullptr && broken_ == 0;) {
            RdmaTransfer& transfer = *i;
            i = AllTransfers::next(i);
            RdmaTransfer::Share& share = transfer.shares[rail];
            const bool has_arrived =
                share.has_number && static_cast<std::int32_t>(arrived - share.number) >= 0;
            if ((transfer.lost & bit) == 0 && !share.unposted && has_arrived == share.has_number) {
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

    /// After suspend(), can_send() and SendQueue::has_room() return false until resume(), so that
    /// nothing is posted except the work requests of fail().
    void suspend() noexcept {
        suspended_ = true;
        for (ChannelRail& rail : rails_) {
            rail.queue.suspend();
        }
    }
    void resume() noexcept {
        suspended_ = false;
        for (ChannelRail& rail : rails_) {
            rail.queue.resume();
        }
    }

    // Failure

    /// Returns the errno value with which the channel failed; 0 while the channel works.
    [[nodiscard]] int broken() const noexcept { return broken_; }
    /// Returns a text that describes the cause of the failure.
    [[nodiscard]] const char* reason() const noexcept { return reason_; }
    /// Returns the request that caused the failure, and the errno value with which this request
    /// ends.
    [[nodiscard]] std::pair<const RequestState*, int> culprit() const noexcept {
        return {culprit_, culprit_error_};
    }

    /// Fails the channel and moves all its queue pairs to the error state. A second call has no
    /// effect.
    /// @param flush_all  true if drained() must also wait until all earlier completions of each
    ///                   device are polled
    void fail(int error, const char* reason, const RequestState* culprit = nullptr,
              int culprit_error = 0, bool flush_all = false) noexcept {
        if (broken_ != 0) {
            return;
        }
        broken_ = error;
        reason_ = reason;
        culprit_ = culprit;
        culprit_error_ = culprit_error;
        failed_ns_ = now_ns();
        shared_.wake(channel_);
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (works(i)) {
                static_cast<void>(stop(i, flush_all));
            }
        }
    }
    /// Returns true if no device can access the memory of the channel's requests any more. A device
    /// that reports no completions for one second is considered dead.
    [[nodiscard]] bool drained() const noexcept {
        return std::all_of(rails_.begin(), rails_.end(),
                           [](const ChannelRail& rail) { return rail.queue.idle(); }) ||
               now_ns() - failed_ns_ > drain_limit_ns;
    }
    /// Removes all transfers from the list and returns the held bounce buffers to the pool.
    void drop_transfers() noexcept {
        while (RdmaTransfer* const transfer = transfers_.pop_front()) {
            transfer->request->transfer = nullptr;
            if (rails_.size() == 1) {
                shared_.transfers.give_back(transfer);
            }
        }
        while (RdmaTransfer* const transfer = all_transfers_.pop_front()) {
            transfer->request->unconfirmed = nullptr;
            shared_.transfers.give_back(transfer);
        }
        ordered_ = 0;
        held_.release_all();
    }

    /// The number of send queue entries that only credit messages and keepalive writes may use.
    static constexpr std::uint32_t reserve = 4;
    static constexpr std::size_t max_inline = 512;
    /// The time after which a device that reports no completions is considered dead.
    static constexpr std::int64_t drain_limit_ns = 1'000'000'000;

  private:
    using Transfers = List<RdmaTransfer, &RdmaTransfer::link>;
    using AllTransfers = List<RdmaTransfer, &RdmaTransfer::all>;
    static constexpr std::uint64_t share_alignment = 4096;

    static void copy(std::byte* to, const Header& header,
                     std::span<const std::byte> body) noexcept {
        std::memcpy(to, &header, sizeof header);
        if (!body.empty()) {
            std::memcpy(to + sizeof header, body.data(), body.size());
        }
    }
    /// Sends a message by a send buffer, which contains @p header and @p body.
    /// @param data  further data that the device reads from the memory of the request, or nullptr
    /// @return false if all send buffers are in use, or if posting failed
    [[nodiscard]] bool send_buffered(const Header& header, std::span<const std::byte> body,
                                     const ibv_sge* data, RequestState* request,
                                     bool always_signal) noexcept {
        if (shared_.pool.exhausted()) {
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
        ibv_send_wr work = make_send(std::span(entries).first(data != nullptr ? 2 : 1));
        if (!post(0, work, request, always_signal)) {
            shared_.pool.give_back(buffer);
            return false;
        }
        held_.hold(buffer, rails_[0].queue.next() - 1);
        return true;
    }

    /// Moves a queue pair to the error state.
    /// @param flush_all  see fail()
    /// @return false if the work request whose completion shows that the queue pair has stopped
    ///         cannot be posted
    bool stop(std::size_t rail, bool flush_all) noexcept {
        ChannelRail& stopped = rails_[rail];
        // Until abort() succeeds, the peer can write to the memory of requests that have ended.
        // Therefore abort() is repeated if it fails, for example with ENOMEM. If it fails each
        // time, the device was removed.
        for (int tries = 0; tries < 3 && !attempt([&] { stopped.queue_pair.abort(); }); ++tries) {
        }
        if (!flush_all && stopped.queue.idle()) {
            return true;
        }
        // Post one more work request. It completes at once with IBV_WC_WR_FLUSH_ERR, because the
        // queue pair is in the error state. When its completion arrives, all earlier work requests
        // have completed, including the unsignaled work requests.
        ibv_send_wr last = make_send({});
        return post(rail, last, nullptr, true);
    }
    /// Returns a transfer to its pool if it is posted completely and all its work requests have
    /// succeeded.
    void release_if_done(RdmaTransfer& transfer) noexcept {
        if (transfer.pending != 0 || transfer.lost != 0) {
            return;
        }
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (transfer.shares[i].has_number) {
                std::uint32_t& confirmed = rails_[i].immediates_confirmed;
                const std::uint32_t number = transfer.shares[i].number;
                if (static_cast<std::int32_t>(number - confirmed) > 0) {
                    confirmed = number;
                }
            }
        }
        RdmaTransfer** at = &transfer.request->unconfirmed;
        while (*at != &transfer) {
            at = &(*at)->next_of_request;
        }
        *at = transfer.next_of_request;
        all_transfers_.remove(&transfer);
        shared_.transfers.give_back(&transfer);
    }
    /// Repeats the range of one queue pair; see repeat().
    template <class EndRange>
    [[nodiscard]] bool repeat_range(RdmaTransfer& transfer, std::size_t rail,
                                    const EndRange& end_range) noexcept {
        RdmaTransfer::Share& share = transfer.shares[rail];
        if (!share.repeated) {
            share.repeated = true;
            share.has_number = false;
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

    /// Divides a transfer among the queue pairs. @return the number of queue pairs that are used
    [[nodiscard]] std::uint32_t share(RdmaTransfer& transfer, std::uint64_t length) const noexcept {
        std::uint32_t used = 0;
        std::uint64_t begin = 0;
        std::uint64_t speed_left = speed_;
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (!works(i)) [[unlikely]] {
                transfer.shares[i] = {};
                continue;
            }
            const std::uint64_t speed = shared_.rails[rails_[i].device]->speed;
            const std::uint64_t left = length - begin;
            std::uint64_t part = left;
            if (speed < speed_left) {
                part = static_cast<std::uint64_t>(static_cast<double>(left) *
                                                  static_cast<double>(speed) /
                                                  static_cast<double>(speed_left));
                part = (part + share_alignment - 1) / share_alignment * share_alignment;
                part = std::min(left, std::max<std::uint64_t>(part, shared_.options.min_fragment));
            }
            speed_left -= speed;
            const bool is_used = part > 0 || i == 0;
            transfer.shares[i] = {
                .begin = begin, .next = begin, .end = begin + part, .unposted = is_used};
            used += is_used ? 1 : 0;
            begin += part;
        }
        return used;
    }
    /// Posts work requests of a transfer until the send queues are full. @return true if the
    /// transfer is posted completely
    [[nodiscard]] bool advance(RdmaTransfer& transfer) noexcept {
        bool complete = true;
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            RdmaTransfer::Share& share = transfer.shares[i];
            // repeat() posts the range of a queue pair that was left out.
            while (share.unposted && works(i) && rails_[i].queue.has_room(reserve) &&
                   post_piece(transfer, i, share)) {
            }
            complete = complete && !share.unposted;
            if (i == 0 && !share.unposted && transfer.keeps_order && !transfer.has_fin) {
                transfer.keeps_order = false;
                --ordered_;
            }
        }
        return complete;
    }
    /// Posts the next work request for a range.
    /// @param rail   the queue pair that transfers the range
    /// @param share  the range: that of this queue pair, or one that this queue pair repeats
    [[nodiscard]] bool post_piece(RdmaTransfer& transfer, std::size_t rail,
                                  RdmaTransfer::Share& share) noexcept {
        TransferPiece piece;
        const std::size_t device = rails_[rail].device;
        const rdmabuf::Transfer rest = {.local_address = transfer.local_address + share.next,
                                        .remote_address = transfer.remote_address + share.next,
                                        .length = share.end - share.next};
        if (rest.length > 0) {
            TransferSplitter splitter(transfer.memory->rail(device), transfer.remote.rail(device),
                                      rest, max_message_);
            if (!splitter.next(piece)) {
                fail(ECONNABORTED, "the memory of a request is not registered completely",
                     transfer.request, EFAULT);
                return false;
            }
        } else {
            piece.remote = {.address = transfer.remote_address,
                            .rkey = transfer.remote.regions[device][0].rkey};
        }
        const std::span<const ibv_sge> local(&piece.local, rest.length > 0 ? 1 : 0);
        const bool last = share.next + piece.local.length == share.end;
        const bool immediate =
            last && transfer.has_immediate && !(transfer.has_fin && rail == 0) && !share.repeated;
        ibv_send_wr work = transfer.is_read ? make_read(local, piece.remote)
                           : immediate
                               ? make_write_imm(local, piece.remote, transfer.immediate.encode())
                               : make_write(local, piece.remote);
        if (!post(rail, work, transfer.request)) {
            return false;
        }
        if (rails_.size() > 1) {
            ++transfer.shares[rail].pending;
            ++transfer.pending;
            if (immediate && rail != 0) {
                share.has_number = true;
                share.number = ++rails_[rail].immediates_posted;
            }
        }
        share.next += piece.local.length;
        share.unposted = !last;
        return true;
    }

    SharedState& shared_;
    ChannelLinks& channel_;
    std::vector<ChannelRail> rails_;
    std::uint32_t inline_data_;
    std::uint32_t max_message_;
    std::uint64_t speed_ = 0;
    /// The transfers that are not posted completely.
    Transfers transfers_;
    /// All transfers of a channel with several queue pairs.
    AllTransfers all_transfers_;
    std::uint32_t recovering_ = 0;
    bool suspended_ = false;
    /// The number of transfers that later messages must not overtake, and that are not posted on
    /// the first queue pair.
    std::uint32_t ordered_ = 0;
    HeldBuffers held_;

    int broken_ = 0;
    const char* reason_ = "";
    const RequestState* culprit_ = nullptr;
    int culprit_error_ = 0;
    std::int64_t failed_ns_ = 0;
};

} // namespace rdmabuf::transport::detail
