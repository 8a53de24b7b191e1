// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Starts RDMA writes, reads and atomic operations on memory of the peer, and sends notifications.
/// Requests start in the order in which the program called the functions. A notification is sent
/// after all writes that were started before the notification.
class OneSided {
  public:
    using Requests = List<OneSidedRequest, &OneSidedRequest::link>;

    OneSided(SharedState& shared, RailSet& rails, ControlChannel& control) noexcept
        : shared_(shared), rails_(rails), control_(control), loopback_(shared) {
        fences_arrived_.fill(last_notification_);
    }

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
    /// write must fit into one work request. Its notification, if it has one, is posted with the
    /// same call of ibv_post_send(); if this fails, OneSidedRequest::notifies remains true, and
    /// advance() sends the notification.
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
        if (request.notifies) {
            return put_and_notify(request, work);
        }
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
    /// Called when the transfer of a request is posted completely, or when one of its work requests
    /// has completed. Ends the request if it is complete.
    void settled(OneSidedRequest& request) noexcept {
        if (request.pending == 0 && request.transfer == nullptr && request.unconfirmed == nullptr &&
            request.posted && !request.notifies && request.lost == 0) {
            if (request.striped) {
                request.striped = false;
                striped_.remove(&request);
            }
            shared_.complete(request, request.error);
        }
    }
    /// Ends a transfer list with ECANCELED after the first entry that is not posted completely.
    /// This entry is still posted, because the last work request of a list must be signaled.
    [[nodiscard]] int cancel(OneSidedRequest& request) noexcept {
        if (request.list.size() < 2) {
            return EALREADY;
        }
        if (request.striped) {
            request.whole_list =
                request.whole_list.first(request.whole_list.size() - request.list.size() + 1);
        }
        if (repeating_ == &request) {
            repeating_ = nullptr;
        }
        request.list = request.list.first(1);
        request.notifies = false;
        request.error = ECANCELED;
        return 0;
    }
    /// Posts the flush reads of a request again, because another request has failed on their
    /// loopback queue pair.
    void repeat_flush(OneSidedRequest& flush) noexcept {
        flush.posted = false;
        queued_.push_front(&flush);
    }
    /// Called when a work request of a transfer list or of a fence has completed on a queue pair
    /// other than the first.
    /// @param succeeded  false if the work request failed because its queue pair has failed
    void completed(OneSidedRequest& request, std::size_t rail, bool succeeded) noexcept {
        --request.pending_on[rail];
        if (!succeeded) {
            request.lost |= 1U << rail;
        }
    }
    /// Called when the device of a failed queue pair does not report completions. The posted work
    /// requests of transfer lists and fences on this queue pair then count as failed.
    void abandon(std::size_t rail) noexcept {
        for (OneSidedRequest* i = striped_.front(); i != nullptr; i = Striped::next(i)) {
            std::uint32_t& pending = i->pending_on[rail];
            if (pending != 0) {
                i->pending -= pending;
                pending = 0;
                i->lost |= 1U << rail;
            }
        }
    }
    /// Called after a failed queue pair has reported all its completions, and the peer has counted
    /// what has arrived. Lists whose entries on this queue pair have all arrived need not be posted
    /// again.
    /// @param arrived  see RailSet::repeat()
    void failure_agreed(std::size_t rail, std::uint32_t arrived) noexcept {
        for (OneSidedRequest* i = striped_.front(); i != nullptr;) {
            OneSidedRequest& request = *i;
            i = Striped::next(i);
            if (request.operation == Operation::put && (request.lost >> rail & 1U) != 0 &&
                !RailSet::is_before(arrived, request.covered_by[rail])) {
                request.lost &= ~(1U << rail);
                settled(request);
            }
        }
    }
    /// Posts again, on the first queue pair, the transfer lists and fences that have failed work
    /// requests. Called until it returns true. The transfers of all failed queue pairs must already
    /// be posted again: a fence must follow them.
    /// @return true if all of them are posted again
    [[nodiscard]] bool repeat_lost() noexcept {
        // Post the lists first: a fence must follow all writes that were started before the fence.
        for (const bool fences : {false, true}) {
            for (OneSidedRequest* i = striped_.front(); i != nullptr;) {
                OneSidedRequest& request = *i;
                i = Striped::next(i);
                if (request.lost == 0 || fences != (request.operation == Operation::fence)) {
                    continue;
                }
                if (!(fences ? post_fence_read(request, 0) : repeat_list(request))) {
                    return false;
                }
                request.lost = 0;
                settled(request);
            }
        }
        return true;
    }
    /// Called when the peer has posted again, on its first queue pair, all writes that failed with
    /// queue pair @p rail.
    void recovered_arrived(std::size_t rail) noexcept { recovered_ |= 1U << rail; }
    /// Called before the peer is informed of a new queue pair that replaces a failed one. The
    /// writes that failed with the old queue pair were posted again on the first one, and need no
    /// fence.
    void forget_fences(std::size_t rail) noexcept {
        used_since_notification_ &= ~(1U << rail);
        fences_.rails &= ~(1U << rail);
    }
    /// Called before the peer can write on a new queue pair that replaces a failed one. The data
    /// that precedes all notifications so far has arrived, so their fences on this queue pair count
    /// as arrived.
    void begin_probation(std::size_t rail) noexcept {
        recovered_ &= ~(1U << rail);
        if (is_before(fences_arrived_[rail], last_notification_)) {
            fences_arrived_[rail] = last_notification_;
        }
    }
    /// Removes all requests from the queues, because the channel has failed.
    void stop() noexcept {
        queued_.clear();
        notifying_.clear();
        repeating_ = nullptr;
        while (OneSidedRequest* const request = striped_.pop_front()) {
            request->striped = false;
            request->lost = 0;
        }
    }

    /// Stores the number of a fence of the peer (a write of 0 bytes with immediate data) that has
    /// arrived on a queue pair; see NotificationFences.
    void fence_arrived(std::size_t rail, std::uint32_t number) noexcept {
        fences_arrived_[rail] = number;
    }
    /// Returns true if all fences that must precede a notification have arrived. A fence on a
    /// failed queue pair is not needed after `rail_recovered` has arrived.
    [[nodiscard]] bool fences_arrived(NotificationFences wanted) const noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if (((wanted.rails & ~recovered_) >> i & 1U) != 0 &&
                is_before(fences_arrived_[i], wanted.number)) {
                return false;
            }
        }
        return true;
    }
    /// Called when the notification with this sequence number has arrived.
    void notification_arrived(std::uint32_t number) noexcept { last_notification_ = number; }
    /// Called when the notification with this sequence number was returned to the program. All
    /// fences that precede this notification have arrived.
    void notification_reported(std::uint32_t number) noexcept {
        // Update the entries of queue pairs that had no fence for a long time. Otherwise their old
        // numbers would be compared wrongly after the numbers have wrapped around.
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
    /// Starts the data transfer of a request.
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
            const std::uint32_t used = rails_.start(*request.transfer, request.bytes);
            if (request.operation == Operation::put) {
                used_since_notification_ |= used;
            }
        }
        return true;
    }
    /// Posts work requests for the entries of a transfer list, until all are posted or the send
    /// queues are full. Each registered chunk of an entry needs one work request.
    /// @param entries  the entries that are not posted completely
    /// @param done     the number of bytes of the first of these entries that are already posted
    /// @param repeats  true if the list is posted again after a failure: on the first queue pair
    ///                 only
    /// @return true if all entries are posted
    [[nodiscard]] bool post_list(OneSidedRequest& request, std::span<const TransferEntry>& entries,
                                 std::uint64_t& done, bool repeats) noexcept {
        if (rails_.size() == 1) {
            return post_list_on_one(request, entries, done);
        }
        ListPosition at = {.entries = entries, .done = done};
        while (at.skip_empty()) {
            const std::size_t rail = repeats ? 0 : next_rail();
            ibv_sge local{};
            ibv_send_wr work{};
            if (!rails_[rail].queue.has_room(RailSet::reserve) ||
                !take_work(request, at, rail, local, work) || !rails_.post(rail, work, &request)) {
                return false;
            }
            if (request.operation == Operation::put) {
                used_since_notification_ |= 1U << rail;
            }
            count_striped(request, rail);
            request.covered_by[rail] = rails_.next_immediate(rail);
            next_rail_ += at.done == 0 && !repeats ? 1 : 0;
            entries = at.entries;
            done = at.done;
        }
        entries = {};
        return true;
    }
    /// Does the same as post_list() for a channel with one queue pair. Posts several work requests
    /// by one call of ibv_post_send().
    [[nodiscard]] bool post_list_on_one(OneSidedRequest& request,
                                        std::span<const TransferEntry>& entries,
                                        std::uint64_t& done) noexcept {
        constexpr std::uint32_t batch = 16;
        // Set below.
        std::array<ibv_send_wr, batch> works; // NOLINT(*-member-init)
        std::array<ibv_sge, batch> local;     // NOLINT(*-member-init)
        std::array<ListPosition, batch + 1> positions;
        ListPosition at = {.entries = entries, .done = done};
        bool more = at.skip_empty();
        while (more) {
            std::uint32_t count = 0;
            while (more && count < batch && rails_[0].queue.has_room(RailSet::reserve + count)) {
                positions[count] = at;
                if (!take_work(request, at, 0, local[count], works[count])) {
                    return false;
                }
                if (count > 0) {
                    works[count - 1].next = &works[count];
                }
                ++count;
                more = at.skip_empty();
            }
            positions[count] = at;
            const std::size_t posted = count > 0 ? rails_.post_chain(works[0], request) : 0;
            entries = positions[posted].entries;
            done = positions[posted].done;
            if (posted < count || count == 0) {
                return false;
            }
        }
        entries = {};
        return true;
    }
    /// A position in a transfer list.
    struct ListPosition {
        /// The entries that are not posted completely.
        std::span<const TransferEntry> entries{};
        /// The number of bytes of the first of these entries that are already posted.
        std::uint64_t done = 0;

        /// Skips entries of 0 bytes. @return false at the end of the list
        [[nodiscard]] bool skip_empty() noexcept {
            while (!entries.empty() && entries.front().length == 0) {
                entries = entries.subspan(1);
            }
            return !entries.empty();
        }
    };
    /// Makes the next work request of a transfer list, and advances the position behind it.
    /// @param rail   the index of the queue pair that will transfer the data
    /// @param local  set to the local memory; @p work refers to it
    /// @return false if the memory of the list is not registered completely; the channel has then
    ///         failed
    [[nodiscard]] bool take_work(OneSidedRequest& request, ListPosition& at, std::size_t rail,
                                 ibv_sge& local, ibv_send_wr& work) noexcept {
        const TransferEntry& entry = at.entries.front();
        const MemoryState& memory = *entry.memory->state();
        const std::size_t device = rails_[rail].device;
        const rdmabuf::Transfer rest = {
            .local_address =
                memory.device_address(reinterpret_cast<std::uintptr_t>(entry.address)) + at.done,
            .remote_address = entry.remote->address() + entry.offset + at.done,
            .length = entry.length - at.done};
        TransferPiece piece;
        if (!first_piece(memory, entry.remote->table(), device, rest, rails_.max_message(),
                         piece)) {
            rails_.fail(ECONNABORTED, "the memory of a list is not registered completely", &request,
                        EFAULT);
            return false;
        }
        local = piece.local;
        const std::span<const ibv_sge> data(&local, 1);
        work = request.operation == OneSidedRequest::Operation::get
                   ? make_read(data, piece.remote)
                   : make_write(data, piece.remote);
        at.done += piece.local.length;
        if (at.done == entry.length) {
            at.done = 0;
            at.entries = at.entries.subspan(1);
        }
        return true;
    }
    /// Returns the index of the queue pair for the next entry of a transfer list.
    [[nodiscard]] std::size_t next_rail() noexcept {
        while (!rails_.is_used(next_rail_ % rails_.size())) {
            ++next_rail_;
        }
        return next_rail_ % rails_.size();
    }
    /// Counts a posted work request of a transfer list or of a fence, except on the first queue
    /// pair.
    static void count_striped(OneSidedRequest& request, std::size_t rail) noexcept {
        if (rail != 0) {
            ++request.pending_on[rail];
        }
    }
    /// Posts all entries of a transfer list again on the first queue pair, after another one has
    /// failed.
    /// @return true if all entries are posted
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
            request.error = error; // A flush read of another device may be in flight.
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
        // The fence must follow all earlier writes. Those that failed with a queue pair must first
        // be posted again.
        if (rails_.has_transfers() || rails_.recovering() != 0) {
            return false;
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (rails_.is_used(i) && !rails_[i].queue.has_room(RailSet::reserve)) {
                return false;
            }
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (rails_.is_used(i) && !post_fence_read(request, i)) {
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
            !control_.notification_credits.available(request.notification_size) || !fence() ||
            !control_.send(notification_header(), notification_of(request), &request)) {
            return false;
        }
        notification_sent(request);
        return true;
    }
    /// Posts the write of a request and, behind it, the notification of the request.
    /// @return true if the write is posted
    [[nodiscard]] bool put_and_notify(OneSidedRequest& request, ibv_send_wr& write) noexcept {
        // In these cases, the notification must wait: for an earlier notification, for credits, for
        // a fence, or for room in the send queue.
        if (!notifying_.empty() || used_since_notification_ >> 1U != 0 || !rails_.can_send(2) ||
            !control_.notification_credits.available(request.notification_size)) {
            return false;
        }
        switch (control_.write_and_send(write, notification_header(), notification_of(request),
                                        request)) {
            case RailSet::Posted::none:
                return false;
            case RailSet::Posted::write:
                notifying_.push_back(&request);
                return true;
            case RailSet::Posted::both:
                break;
        }
        notification_sent(request);
        request.notifies = false;
        request.posted = true;
        return true;
    }
    [[nodiscard]] Header notification_header() const noexcept {
        return {.kind = Kind::notify, .value = fences_.encode()};
    }
    [[nodiscard]] static std::span<const std::byte> notification_of(
        const OneSidedRequest& request) noexcept {
        return std::span(request.notification).first(request.notification_size);
    }
    void notification_sent(const OneSidedRequest& request) noexcept {
        control_.notification_credits.sent(request.notification_size);
        fences_ = {.number = (fences_.number + 1) & Immediate::max_request, .rails = 0};
    }
    /// Posts a fence (a write of 0 bytes with immediate data) on each queue pair that has written
    /// data since its last fence. The first queue pair needs no fence, because it also sends the
    /// notification.
    [[nodiscard]] bool fence() noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            // An earlier call for the same notification may already have posted the fence. Writes
            // after this fence only need a fence for the next notification.
            if (((used_since_notification_ & ~fences_.rails) >> i & 1U) == 0) {
                continue;
            }
            // A failed queue pair needs no fence: the peer waits for the message `rail_recovered`
            // instead.
            if (rails_.is_used(i)) {
                if (!rails_[i].queue.has_room()) {
                    return false;
                }
                const Immediate immediate = {.fence = true, .request = fences_.number};
                ibv_send_wr work = make_write_imm({}, control_.probe_target(i), immediate.encode());
                if (!rails_.post_fence(i, work)) {
                    return false;
                }
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
    NotificationFences fences_{.number = (test_first_count + 1) & Immediate::max_request};
    /// NotificationFences::number of the last notification that has arrived.
    std::uint32_t last_notification_ = test_first_count & Immediate::max_request;
    /// For each queue pair, NotificationFences::number of the last fence that has arrived.
    std::array<std::uint32_t, max_channel_rails> fences_arrived_{};
    std::size_t next_rail_ = 0;
    /// On a channel with several queue pairs: the transfer lists and fences that have not ended, in
    /// the order in which they were started.
    Striped striped_;
    /// The transfer list that is being posted again on the first queue pair, or nullptr.
    const OneSidedRequest* repeating_ = nullptr;
    /// The entries of the list repeating_ that are not posted again completely.
    std::span<const TransferEntry> repeat_list_{};
    /// The number of bytes of the first entry of repeat_list_ that are already posted again.
    std::uint64_t repeat_done_ = 0;
    /// Bit i is set if queue pair i has failed, and the peer has posted its failed writes again on
    /// the first queue pair.
    std::uint32_t recovered_ = 0;
};

} // namespace rdmabuf::transport::detail
