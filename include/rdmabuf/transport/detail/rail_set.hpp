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
};

/// The queue pairs of a channel. Each device has the same number of queue pairs, and the queue
/// pairs of a device have consecutive indices. Messages use the first queue pair. Long transfers
/// are striped over all queue pairs, in proportion to the speed of the ports.
///
/// If a work request fails, the channel fails: all queue pairs are moved to the error state. The
/// requests of the channel end after all posted work requests have completed, because until then a
/// device may still access the memory of these requests.
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
    /// Returns true if an asynchronous event is an event of one of the queue pairs.
    [[nodiscard]] bool has_queue_pair(const AsyncEvent& event) const noexcept {
        return std::ranges::any_of(
            rails_, [&](const ChannelRail& rail) { return event.is_of(rail.queue_pair); });
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
            if (error != ENOMEM) {
                fail(EIO, "ibv_post_send failed", request, error);
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
    ///                   the transfer was returned to its pool
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
            shared_.transfers.give_back(transfer);
            on_posted(request);
        }
    }
    /// Called after the FIN of a transfer with RdmaTransfer::keeps_order was sent. Later messages
    /// need not wait for this transfer any longer; see order_allows_message().
    void fin_sent() noexcept { --ordered_; }

    // Set-up

    /// After suspend(), can_send() and SendQueue::has_room() return false until resume(), so that
    /// nothing is posted except the work requests of fail().
    void suspend() noexcept {
        for (ChannelRail& rail : rails_) {
            rail.queue.suspend();
        }
    }
    void resume() noexcept {
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
            ChannelRail& rail = rails_[i];
            // An error of abort() is ignored, because abort() fails only if the device was removed.
            static_cast<void>(attempt([&] { rail.queue_pair.abort(); }));
            if (flush_all || !rail.queue.idle()) {
                // Post one more work request. It completes at once with IBV_WC_WR_FLUSH_ERR,
                // because the queue pair is in the error state. When its completion arrives, all
                // earlier work requests have completed, including the unsignaled work requests.
                ibv_send_wr last = make_send({});
                post(i, last, nullptr, true);
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
            shared_.transfers.give_back(transfer);
        }
        ordered_ = 0;
        held_.release_all();
    }

    /// The number of send queue entries that only credit messages and keepalive writes may use.
    static constexpr std::uint32_t reserve = 4;
    static constexpr std::size_t max_inline = 512;

  private:
    using Transfers = List<RdmaTransfer, &RdmaTransfer::link>;
    static constexpr std::int64_t drain_limit_ns = 1'000'000'000;
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

    /// Divides a transfer among the queue pairs. @return the number of queue pairs that are used
    [[nodiscard]] std::uint32_t share(RdmaTransfer& transfer, std::uint64_t length) const noexcept {
        std::uint32_t used = 0;
        std::uint64_t begin = 0;
        std::uint64_t speed_left = speed_;
        for (std::size_t i = 0; i < rails_.size(); ++i) {
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
            transfer.shares[i] = {.next = begin, .end = begin + part, .unposted = is_used};
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
            while (share.unposted && rails_[i].queue.has_room(reserve) &&
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
    /// Posts the next work request for the bytes that one queue pair transfers.
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
        const bool immediate = last && transfer.has_immediate && !(transfer.has_fin && rail == 0);
        ibv_send_wr work = transfer.is_read ? make_read(local, piece.remote)
                           : immediate
                               ? make_write_imm(local, piece.remote, transfer.immediate.encode())
                               : make_write(local, piece.remote);
        if (!post(rail, work, transfer.request)) {
            return false;
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
    Transfers transfers_;
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
