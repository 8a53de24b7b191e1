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
        if (request.pending == 0 && request.transfer == nullptr && request.posted &&
            !request.notifies) {
            shared_.complete(request);
        }
    }
    /// Removes all requests from the queues, because the channel has failed.
    void stop() noexcept {
        queued_.clear();
        notifying_.clear();
    }

    /// Stores the number of a fence of the peer (a write of 0 bytes with immediate data) that has
    /// arrived on a queue pair; see NotificationFences.
    void fence_arrived(std::size_t rail, std::uint32_t number) noexcept {
        fences_arrived_[rail] = number;
    }
    /// Returns true if all fences that must precede a notification have arrived.
    [[nodiscard]] bool fences_arrived(NotificationFences wanted) const noexcept {
        for (std::size_t i = 1; i < rails_.size(); ++i) {
            if ((wanted.rails >> i & 1U) != 0 && is_before(fences_arrived_[i], wanted.number)) {
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
    /// Returns true if the sequence number of one notification is before that of another. Sequence
    /// numbers wrap around at Immediate::max_request.
    [[nodiscard]] static bool is_before(std::uint32_t number, std::uint32_t other) noexcept {
        return ((number - other) & Immediate::max_request) > Immediate::max_request / 2;
    }
    /// Starts the data of a request.
    /// @return true if all data is posted or is in the RailSet's list of transfers
    [[nodiscard]] bool begin(OneSidedRequest& request) noexcept {
        using Operation = OneSidedRequest::Operation;
        switch (request.operation) {
            case Operation::put:
            case Operation::get:
                return request.list.empty() ? begin_transfer(request) : begin_list(request);
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
    /// @return true if all entries are posted
    [[nodiscard]] bool begin_list(OneSidedRequest& request) noexcept {
        while (!request.list.empty()) {
            const TransferEntry& entry = request.list.front();
            const MemoryState& memory = *entry.memory->state();
            const std::uint64_t done = request.operand; // the bytes of this entry that are posted
            const std::size_t rail = next_rail_ % rails_.size();
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
                if (done + piece.local.length < entry.length) {
                    request.operand += piece.local.length;
                    continue;
                }
            }
            request.operand = 0;
            ++next_rail_;
            request.list = request.list.subspan(1);
        }
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
        if (rails_.has_transfers()) {
            return false;
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            if (!rails_[i].queue.has_room(RailSet::reserve)) {
                return false;
            }
        }
        for (std::size_t i = 0; i < rails_.size(); ++i) {
            ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(shared_.pool.scratch_line()),
                             .length = 1,
                             .lkey = shared_.rails[rails_[i].device]->bounce_buffers.lkey()};
            ibv_send_wr work =
                make_read(std::span<const ibv_sge>(&entry, 1), control_.probe_target(i));
            if (!rails_.post(i, work, &request)) {
                return false;
            }
        }
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
            if (!rails_[i].queue.has_room()) {
                return false;
            }
            const Immediate immediate = {.fence = true, .request = fences_.number};
            ibv_send_wr work = make_write_imm({}, control_.probe_target(i), immediate.encode());
            if (!rails_.post(i, work, nullptr, true)) {
                return false;
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
};

} // namespace rdmabuf::transport::detail
