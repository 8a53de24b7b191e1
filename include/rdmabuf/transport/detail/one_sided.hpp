// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Starts RDMA writes, reads and atomic operations on memory of the peer, and sends notifications.
/// Requests start in the order in which the program called the functions. A notification is sent
/// after all writes that were started before it.
class OneSided {
  public:
    using Requests = List<OneSidedRequest, &OneSidedRequest::link>;

    OneSided(SharedState& shared, RailSet& rails, ControlChannel& control) noexcept
        : shared_(shared), rails_(rails), control_(control), loopback_(shared) {}

    /// Starts a request. If earlier requests are still queued, the request is queued after them.
    void start(OneSidedRequest& request) noexcept {
        request.posted = false;
        if (rails_.size() > 1 && (!request.list.empty() || request.operation == Operation::fence)) {
            request.striped = true;
            request.whole_list = request.list;
            request.pending_on = {};
            striped_.push_back(&request);
        }
        queued_.push_back(&request);
        advance();
    }
    /// Posts a write immediately, without an RdmaTransfer, if no earlier request is queued. The
    /// write must fit into one work request.
    /// @param data  the bytes to write; if @p inline_data is true, not longer than the maximum
    ///              length of inline data
    /// @return true if the write was posted
    [[nodiscard]] bool put_now(OneSidedRequest& request, const ibv_sge& data, RemoteAddress remote,
                               bool inline_data) noexcept {
        if (!queued_.empty() || rails_.has_transfers() || !rails_.can_send()) {
            return false;
        }
        ibv_sge entry = data;
        ibv_send_wr work = make_write(std::span<const ibv_sge>(&entry, 1), remote);
        work.send_flags = inline_data ? unsigned{IBV_SEND_INLINE} : 0U;
        if (!rails_.post(0, work, &request)) {
            return false;
        }
        request.posted = true;
        return true;
    }

    [[nodiscard]] bool has_work() const noexcept { return !queued_.empty() || !notifying_.empty(); }

    /// Starts as many queued requests as the send queues can hold. Sends the notifications of
    /// requests whose data is posted.
    void advance() noexcept {
        while (!queued_.empty() && rails_.broken() == 0) {
            OneSidedRequest& request = *queued_.front();
            if (!begin(request)) {
                break;
            }
            queued_.remove(&request);
            if (request.notifies) {
                notifying_.push_back(&request);
            } else {
                posted_all(request);
            }
        }
        while (!notifying_.empty() && rails_.broken() == 0 && notify(*notifying_.front())) {
            OneSidedRequest& request = *notifying_.pop_front();
            request.notifies = false;
            posted_all(request);
        }
    }
    /// Called when the transfer of a request is posted completely, or when a work request of it has
    /// completed. Ends the request if all its work is done.
    void settled(OneSidedRequest& request) noexcept {
        if (request.pending == 0 && request.transfer == nullptr && request.unconfirmed == nullptr &&
            request.posted && !request.notifies && !request.lost) {
            if (request.striped) {
                request.striped = false;
                striped_.remove(&request);
            }
            shared_.complete(request);
        }
    }
    /// Called when a work request of a list or of a fence has completed on a queue pair other than
    /// the first.
    /// @param succeeded  false if it was lost because its queue pair has failed
    void completed(OneSidedRequest& request, std::size_t rail, bool succeeded) noexcept {
        --request.pending_on[rail];
        if (!succeeded) {
            request.lost = true;
        }
    }
    /// Counts the work requests of lists and fences on a queue pair as lost, because their
    /// completions do not arrive.
    void abandon(std::size_t rail) noexcept {
        for (OneSidedRequest* i = striped_.front(); i != nullptr; i = Striped::next(i)) {
            std::uint32_t& pending = i->pending_on[rail];
            if (pending != 0) {
                i->pending -= pending;
                pending = 0;
                i->lost = true;
            }
        }
    }
    /// Repeats the lists and fences with lost work requests on the first queue pair. Called until
    /// it returns true.
    /// @return true if nothing is left to be repeated
    [[nodiscard]] bool repeat_lost() noexcept {
        // A fence must follow all writes that were started before it.
        for (const bool fences : {false, true}) {
            for (OneSidedRequest* i = striped_.front(); i != nullptr;) {
                OneSidedRequest& request = *i;
                i = Striped::next(i);
                if (!request.lost || fences != (request.operation == Operation::fence)) {
                    continue;
                }
                if (!(fences ? post_fence_read(request, 0) : repeat_list(request))) {
                    return false;
                }
                request.lost = false;
                settled(request);
            }
        }
        return true;
    }
    /// Called when the peer has repeated all writes of a queue pair that was left out.
    void recovered_arrived(std::size_t rail) noexcept { recovered_ |= 1U << rail; }
    /// Removes all requests from the queues, because the channel has failed.
    void stop() noexcept {
        queued_.clear();
        notifying_.clear();
        repeating_ = nullptr;
        while (OneSidedRequest* const request = striped_.pop_front()) {
            request->striped = request->lost = false;
        }
    }

    /// Stores the number of a fence of the peer (a write of 0 bytes with immediate data) that has
    /// arrived on a queue pair; see NotificationFences.
    void fence_arrived(std::size_t rail, std::uint32_t number) noexcept {
        fences_arrived_[rail] = number;
    }
    /// Returns true if all fences that must precede a notification have arrived.
    [[nodiscard]] bool fences_arrived(NotificationFences wanted) const noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (((wanted.rails & ~recovered_) >> i & 1U) != 0 &&
                is_before(fences_arrived_[i], wanted.number)) {
                return false;
            }
        }
        return true;
    }
    /// Called when the notification with this sequence number was returned to the program. All
    /// fence writes that must arrive before it have arrived.
    void notification_reported(std::uint32_t number) noexcept {
        // Update the numbers of queue pairs that had no fence for a long time. Otherwise a number
        // would be compared wrongly after the numbers have wrapped around.
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (is_before(fences_arrived_[i], number)) {
                fences_arrived_[i] = number;
            }
        }
    }

  private:
    using Operation = OneSidedRequest::Operation;
    using Striped = List<OneSidedRequest, &OneSidedRequest::striped_link>;

    /// Returns true if the sequence number of one notification is before that of another. Sequence
    /// numbers wrap around at Immediate::max_request.
    [[nodiscard]] static bool is_before(std::uint32_t number, std::uint32_t other) noexcept {
        return ((number - other) & Immediate::max_request) > Immediate::max_request / 2;
    }
    /// Starts the data of a request.
    /// @return true if all data is posted or is in the RailSet's list of transfers
    [[nodiscard]] bool begin(OneSidedRequest& request) noexcept {
        switch (request.operation) {
            case Operation::put:
            case Operation::get:
                return request.list.empty()
                           ? begin_transfer(request)
                           : post_list(request, request.list, request.operand, false);
            case Operation::flush:
                return begin_flush(request);
            case Operation::fetch_add:
            case Operation::compare_swap:
                return begin_atomic(request);
            case Operation::fence:
                return begin_fence(request);
        }
        return true;
    }
    /// Adds the transfer of a request to the RailSet's list of transfers. The transfer was prepared
    /// by the channel; a request of 0 bytes has no transfer.
    [[nodiscard]] bool begin_transfer(OneSidedRequest& request) noexcept {
        if (request.transfer != nullptr) {
            if (!request.transfer->is_read && rails_.size() > 1) {
                used_since_notification_ = ~std::uint32_t{0};
            }
            rails_.start(*request.transfer, request.bytes);
        }
        return true;
    }
    /// Posts work requests for the entries of the list of a request, until all are posted or the
    /// send queues are full. Each registered chunk of an entry needs one work request.
    /// @param entries  the entries that are not posted completely
    /// @param done     the number of bytes of the first of them that are posted
    /// @param repeats  true to post on the first queue pair only
    /// @return true if all entries are posted
    [[nodiscard]] bool post_list(OneSidedRequest& request, std::span<const TransferEntry>& entries,
                                 std::uint64_t& done, bool repeats) noexcept {
        while (!entries.empty()) {
            const TransferEntry& entry = entries.front();
            const MemoryState& memory = *entry.memory->state();
            const std::size_t rail = repeats ? 0 : next_rail();
            if (entry.length > 0) {
                if (!rails_[rail].queue.has_room(RailSet::reserve)) {
                    return false;
                }
                const rdmabuf::Transfer rest = {
                    .local_address =
                        memory.device_address(reinterpret_cast<std::uintptr_t>(entry.address)) +
                        done,
                    .remote_address = entry.remote->address() + entry.offset + done,
                    .length = entry.length - done};
                const std::size_t device = rails_[rail].device;
                TransferSplitter splitter(memory.rail(device), entry.remote->table().rail(device),
                                          rest, rails_.max_message());
                TransferPiece piece;
                if (!splitter.next(piece)) {
                    rails_.fail(ECONNABORTED, "the memory of a list is not registered completely",
                                &request, EFAULT);
                    return false;
                }
                const std::span<const ibv_sge> local(&piece.local, 1);
                ibv_send_wr work = request.operation == OneSidedRequest::Operation::get
                                       ? make_read(local, piece.remote)
                                       : make_write(local, piece.remote);
                if (!rails_.post(rail, work, &request)) {
                    return false;
                }
                used_since_notification_ |= 1U << rail;
                count_striped(request, rail);
                done += piece.local.length;
                if (done < entry.length) {
                    continue;
                }
            }
            done = 0;
            next_rail_ += repeats ? 0 : 1;
            entries = entries.subspan(1);
        }
        return true;
    }
    /// Returns the queue pair for the next entry of a list.
    [[nodiscard]] std::size_t next_rail() noexcept {
        while (!rails_.works(next_rail_ % rails_.size())) {
            ++next_rail_;
        }
        return next_rail_ % rails_.size();
    }
    /// Counts a posted work request of a list or of a fence.
    static void count_striped(OneSidedRequest& request, std::size_t rail) noexcept {
        if (rail != 0) {
            ++request.pending_on[rail];
        }
    }
    /// Repeats a list on the first queue pair. @return true if all its entries are posted
    [[nodiscard]] bool repeat_list(OneSidedRequest& request) noexcept {
        if (repeating_ != &request) {
            repeating_ = &request;
            repeat_list_ = request.whole_list;
            repeat_done_ = 0;
        }
        if (!post_list(request, repeat_list_, repeat_done_, true)) {
            return false;
        }
        repeating_ = nullptr;
        return true;
    }
    [[nodiscard]] bool begin_flush(OneSidedRequest& request) noexcept {
        if (request.buffer.is_host()) {
            return true;
        }
        const int error = loopback_.flush(request, rails_.devices());
        if (error != 0 && error != EAGAIN) {
            rails_.fail(ECONNABORTED, "a flush read cannot be posted", &request, error);
        }
        return error == 0;
    }
    [[nodiscard]] bool begin_atomic(OneSidedRequest& request) noexcept {
        if (!rails_.can_send()) {
            return false;
        }
        const std::uint64_t at = request.buffer.device_address();
        const LocalChunk* chunk = rdmabuf::detail::find_chunk(request.buffer.memory->rail(0), at);
        ibv_sge entry = {.addr = at, .length = sizeof(std::uint64_t), .lkey = chunk->lkey};
        const std::span<const ibv_sge> local(&entry, 1);
        ibv_send_wr work =
            request.operation == OneSidedRequest::Operation::fetch_add
                ? make_fetch_add(local, request.remote, request.operand)
                : make_compare_swap(local, request.remote, request.compare, request.operand);
        return rails_.post(0, work, &request);
    }
    /// Posts a read of one byte on each queue pair. The read completes after all earlier writes of
    /// this queue pair.
    [[nodiscard]] bool begin_fence(OneSidedRequest& request) noexcept {
        // The writes that a failed queue pair has lost must be repeated first.
        if (rails_.has_transfers() || rails_.recovering() != 0) {
            return false;
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (rails_.works(i) && !rails_[i].queue.has_room(RailSet::reserve)) {
                return false;
            }
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (rails_.works(i) && !post_fence_read(request, i)) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] bool post_fence_read(OneSidedRequest& request, std::size_t rail) noexcept {
        if (!rails_[rail].queue.has_room(RailSet::reserve)) {
            return false;
        }
        ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(shared_.pool.scratch_line()),
                         .length = 1,
                         .lkey = shared_.rails[rails_[rail].device]->bounce_buffers.lkey()};
        ibv_send_wr work =
            make_read(std::span<const ibv_sge>(&entry, 1), control_.probe_target(rail));
        if (!rails_.post(rail, work, &request)) {
            return false;
        }
        count_striped(request, rail);
        return true;
    }
    /// Sends the notification of a request. @return false if it cannot be sent now
    [[nodiscard]] bool notify(OneSidedRequest& request) noexcept {
        // The notification must be posted after all earlier transfers, so that it arrives after
        // their data.
        if (rails_.has_transfers() || !rails_.can_send() ||
            !control_.notification_credits.available(request.notification_size) || !fence()) {
            return false;
        }
        Header header = {.kind = Kind::notify, .value = fences_.encode()};
        if (!control_.send(header, std::span(request.notification).first(request.notification_size),
                           &request)) {
            return false;
        }
        control_.notification_credits.sent(request.notification_size);
        fences_ = {.number = (fences_.number + 1) & Immediate::max_request, .rails = 0};
        return true;
    }
    /// Posts a fence on each queue pair that has written data since its last fence. The first queue
    /// pair needs no fence, because it also sends the notification.
    [[nodiscard]] bool fence() noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if ((used_since_notification_ >> i & 1U) == 0) {
                continue;
            }
            // For a queue pair that was left out, `rail_recovered` replaces the fence.
            if (rails_.works(i)) {
                if (!rails_[i].queue.has_room()) {
                    return false;
                }
                const Immediate immediate = {.fence = true, .request = fences_.number};
                ibv_send_wr work = make_write_imm({}, control_.probe_target(i), immediate.encode());
                if (!rails_.post(i, work, nullptr, true)) {
                    return false;
                }
                ++rails_[i].immediates_posted;
            }
            used_since_notification_ &= ~(1U << i);
            fences_.rails |= 1U << i;
        }
        return true;
    }
    void posted_all(OneSidedRequest& request) noexcept {
        request.posted = true;
        settled(request);
    }

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
    LoopbackCopy loopback_;
    /// The requests whose data is not posted yet.
    Requests queued_;
    /// The requests whose notification is not sent yet. Their data is already posted, or is in the
    /// RailSet's list of transfers.
    Requests notifying_;
    /// Bit i is set if queue pair i has written since its last fence.
    std::uint32_t used_since_notification_ = 0;
    /// The number of the next notification, and the fences that were posted for it.
    NotificationFences fences_{.number = 1};
    /// For each queue pair, NotificationFences::number of the last fence that has arrived.
    std::array<std::uint32_t, max_channel_rails> fences_arrived_{};
    std::size_t next_rail_ = 0;
    /// On a channel with several queue pairs: the lists and fences that have not ended, in the
    /// order in which they were started.
    Striped striped_;
    /// The list that is being repeated, or nullptr; its entries that are not posted completely; and
    /// the number of bytes of the first of them that are posted.
    const OneSidedRequest* repeating_ = nullptr;
    std::span<const TransferEntry> repeat_list_{};
    std::uint64_t repeat_done_ = 0;
    /// Bit i is set if the peer has repeated all writes of queue pair i, which was left out.
    std::uint32_t recovered_ = 0;
};

} // namespace rdmabuf::transport::detail
