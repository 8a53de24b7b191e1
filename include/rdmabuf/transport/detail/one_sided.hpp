// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/control_channel.hpp>
#include <rdmabuf/transport/detail/rail_set.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {

/// Starts RDMA writes, reads and atomic operations on memory of the peer, and sends notifications.
/// Requests start in the order in which the program called the functions. A notification is sent
/// after all writes that were started before the notification.
class RDMABUF_EXPORT OneSided {
  public:
    using Requests = List<OneSidedRequest, &OneSidedRequest::link>;

    OneSided(SharedState& shared, RailSet& rails, ControlChannel& control) noexcept
        : shared_(shared), rails_(rails), control_(control) {
        fences_arrived_.fill(last_notification_);
    }

    /// Starts a request. If earlier requests are still queued, the request is queued after them.
    void start(OneSidedRequest& request) noexcept;
    /// Posts a write immediately, without an RdmaTransfer, if no earlier request must be posted
    /// first and the send queue has room. The write must fit into one work request. Its
    /// notification, if it has one, is posted with the same call of ibv_post_send(); if only the
    /// write is posted, OneSidedRequest::notifies remains true, and advance() sends the
    /// notification.
    /// @param data  the bytes to write; if @p inline_data is true, not longer than the maximum
    ///              length of inline data
    /// @return true if the write was posted
    [[nodiscard]] bool put_now(OneSidedRequest& request, const ibv_sge& data, RemoteAddress remote,
                               bool inline_data) noexcept;

    [[nodiscard]] bool has_work() const noexcept { return !queued_.empty() || !notifying_.empty(); }

    /// Starts as many queued requests as the send queues can hold. Sends the notifications of
    /// requests whose data is posted.
    void advance() noexcept;
    /// Ends a request if it is complete. Called when this may have become true, for example when
    /// one of its work requests has completed.
    void settled(OneSidedRequest& request) noexcept;
    /// Ends a transfer list with ECANCELED: immediately if nothing of it is posted, otherwise after
    /// the first entry that is not posted completely. This entry is still posted, because the last
    /// work request of a list must be signaled. An unposted notification is dropped.
    /// @return 0; EALREADY if there is nothing to drop: work requests are posted, at most one entry
    ///         is not posted completely, and no unposted notification may be dropped (see
    ///         OneSidedRequest::unsignaled)
    [[nodiscard]] int cancel(OneSidedRequest& request) noexcept;
    /// Counts a completed work request of a transfer list or of a fence, on a queue pair other than
    /// the first.
    /// @param succeeded  false if the work request failed because its queue pair has failed
    void completed(OneSidedRequest& request, std::size_t rail, bool succeeded) noexcept;
    /// Counts the posted work requests of transfer lists and fences on a failed queue pair as
    /// failed, because its device does not report completions.
    void abandon(std::size_t rail) noexcept;
    /// Called when `rail_down` of the peer has arrived, and the failed queue pair has reported all
    /// its completions. Lists whose entries on this queue pair have all arrived are not posted
    /// again.
    /// @param arrived  the number of RDMA writes with immediate data that had arrived at the peer
    ///                 on the failed queue pair
    void failure_agreed(std::size_t rail, std::uint32_t arrived) noexcept;
    /// Posts again, on the first queue pair, the transfer lists and fences that have failed work
    /// requests. Called until it returns true. The transfers of all failed queue pairs must already
    /// be posted again, because a fence must follow them.
    /// @return true if all of them are posted again
    [[nodiscard]] bool repeat_lost() noexcept;
    /// Called when the peer has posted again, on its first queue pair, all writes that failed with
    /// queue pair @p rail. Notifications then need no fences on this queue pair.
    void recovered_arrived(std::size_t rail) noexcept { recovered_ |= 1U << rail; }
    /// Drops the fences that a failed queue pair would need. Called before the peer is informed of
    /// the new queue pair that replaces it. The failed writes were posted again on the first queue
    /// pair, and need no fence.
    void forget_fences(std::size_t rail) noexcept;
    /// Called before the peer can write on a new queue pair that replaces a failed one. Counts the
    /// fences of all notifications that have arrived as arrived on the new queue pair, because the
    /// data of these notifications is complete.
    void begin_probation(std::size_t rail) noexcept;
    /// Removes all requests from the queues, because the channel has failed.
    void stop() noexcept;

    /// Stores the number of a fence of the peer (a write of 0 bytes with immediate data) that has
    /// arrived on a queue pair; see NotificationFences.
    void fence_arrived(std::size_t rail, std::uint32_t number) noexcept {
        fences_arrived_[rail] = number;
    }
    /// Returns true if all fences that must precede a notification have arrived. After
    /// `rail_recovered` has arrived, fences on the failed queue pair are not needed.
    [[nodiscard]] bool fences_arrived(NotificationFences wanted) const noexcept;
    /// Stores the sequence number of the last notification that has arrived.
    void notification_arrived(std::uint32_t number) noexcept { last_notification_ = number; }
    /// Called when the notification with this sequence number was returned to the program. All its
    /// fences have arrived, so its number replaces older numbers in fences_arrived_. An older
    /// number would be compared wrongly after a wraparound.
    void notification_reported(std::uint32_t number) noexcept;

  private:
    using Operation = OneSidedRequest::Operation;

    /// Returns true if @p number is before @p other. Both are sequence numbers of notifications,
    /// which wrap around at Immediate::max_request.
    [[nodiscard]] static bool is_before(std::uint32_t number, std::uint32_t other) noexcept {
        return ((number - other) & Immediate::max_request) > Immediate::max_request / 2;
    }
    /// Starts the data transfer of a request, or continues to post its list.
    /// @return true if all data is posted or is in the RailSet's list of transfers. If false,
    ///         advance() calls this function again later, unless the channel has failed
    [[nodiscard]] bool begin(OneSidedRequest& request) noexcept;
    /// Adds RequestState::transfer to the RailSet's list of transfers. A request of 0 bytes has no
    /// transfer.
    /// @return always true, which is the result of begin()
    [[nodiscard]] bool begin_transfer(OneSidedRequest& request) noexcept;
    /// Posts work requests for the entries of a transfer list, until all are posted or the send
    /// queues are full. Each registered chunk of an entry needs at least one work request.
    /// @param entries  the entries that are not posted completely
    /// @param done     the number of bytes of the first of these entries that are already posted
    /// @param repeats  true if the list is posted again after a failure: on the first queue pair
    ///                 only
    /// @return true if all entries are posted
    [[nodiscard]] bool post_list(OneSidedRequest& request, std::span<const TransferEntry>& entries,
                                 std::uint64_t& done, bool repeats) noexcept;
    struct ListPosition {
        /// The entries that are not posted completely.
        std::span<const TransferEntry> entries{};
        /// The number of bytes of the first entry in `entries` that are already posted.
        std::uint64_t done = 0;

        /// Skips entries of 0 bytes. @return false at the end of the list
        [[nodiscard]] bool skip_empty() noexcept {
            while (!entries.empty() && entries.front().length == 0) {
                entries = entries.subspan(1);
            }
            return !entries.empty();
        }
    };
    /// Returns the maximum number of work requests of one ibv_post_send() call: an equal part of @p
    /// entries for each queue pair in use, but at most @p most.
    [[nodiscard]] std::uint32_t share_of_list(std::size_t entries,
                                              std::uint32_t most) const noexcept;
    /// Counts work requests of a list that were posted on queue pair @p rail.
    /// @param signaled  true if all of them were posted, so that the last one is signaled.
    ///                  Otherwise the queue pair has failed, unless it is the first one.
    void list_posted(OneSidedRequest& request, std::size_t rail, bool signaled) noexcept;
    /// Makes the next work request of a transfer list, and advances the position @p at past its
    /// data.
    /// @param rail   the index of the queue pair that will transfer the data
    /// @param local  set to the local memory; @p work refers to it
    /// @return false if the memory of the list is not registered completely; the channel has then
    ///         failed
    [[nodiscard]] bool take_work(OneSidedRequest& request, ListPosition& at, std::size_t rail,
                                 ibv_sge& local, ibv_send_wr& work) noexcept;
    /// Makes the work requests of the next entries with the same memories as @p like, if these are
    /// one region each, and as long as each entry is one work request. This is faster than
    /// take_work().
    /// @param rail   the index of the queue pair that will transfer the data
    /// @param local  set to the local memory of the work requests. The call makes at most as many
    ///               work requests as this span has elements.
    /// @param works  the work requests; ibv_send_wr::next of each is set to the next element
    /// @return the number of work requests
    std::uint32_t take_alike(const OneSidedRequest& request, ListPosition& at,
                             const TransferEntry& like, std::size_t rail, std::span<ibv_sge> local,
                             ibv_send_wr* works) const noexcept;
    /// Returns the index of the queue pair for the next ibv_post_send() call of a transfer list.
    [[nodiscard]] std::size_t next_rail() noexcept;
    /// Counts a posted work request of a transfer list or of a fence, except on the first queue
    /// pair.
    static void count_striped(OneSidedRequest& request, std::size_t rail) noexcept;
    /// Posts all entries of a transfer list again on the first queue pair, after another queue pair
    /// has failed.
    /// @return true if all entries are posted
    [[nodiscard]] bool repeat_list(OneSidedRequest& request) noexcept;
    [[nodiscard]] bool begin_atomic(OneSidedRequest& request) noexcept;
    /// Posts a read of one byte on each queue pair for which RailSet::is_used() is true. Each read
    /// completes after all earlier writes of its queue pair. Posts nothing while a transfer is not
    /// posted completely, a failed queue pair recovers, or a send queue has no room.
    /// @return true if all these reads are posted
    [[nodiscard]] bool begin_fence(OneSidedRequest& request) noexcept;
    [[nodiscard]] bool post_fence_read(OneSidedRequest& request, std::size_t rail) noexcept;
    /// Sends the notification of a request. @return false if it cannot be sent now
    [[nodiscard]] bool notify(OneSidedRequest& request) noexcept;
    /// Posts the write of a request and, behind it, the notification of the request.
    /// @return true if the write is posted
    [[nodiscard]] bool put_and_notify(OneSidedRequest& request, ibv_send_wr& write) noexcept;
    [[nodiscard]] Header notification_header() const noexcept {
        return {.kind = Kind::notify, .value = fences_.encode()};
    }
    [[nodiscard]] static std::span<const std::byte> notification_of(
        const OneSidedRequest& request) noexcept {
        return std::span(request.notification).first(request.notification_size);
    }
    void notification_sent(const OneSidedRequest& request) noexcept;
    void next_number() noexcept;
    /// Posts a fence (a write of 0 bytes with immediate data) on each queue pair that has written
    /// data since its last fence. The first queue pair needs no fence, because it also sends the
    /// notification.
    /// @return false if a fence cannot be posted now
    [[nodiscard]] bool fence() noexcept;
    void posted_all(OneSidedRequest& request) noexcept;

    SharedState& shared_;
    RailSet& rails_;
    ControlChannel& control_;
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
    /// For each queue pair, NotificationFences::number of the last notification that needs no
    /// further fence of this queue pair.
    std::array<std::uint32_t, max_channel_rails> fences_arrived_{};
    std::size_t next_rail_ = 0;
    /// On a channel with several queue pairs: the transfer lists and fences that have not ended, in
    /// the order in which they were started.
    List<OneSidedRequest, &OneSidedRequest::striped_link> striped_;
    /// The transfer list that is being posted again on the first queue pair, or nullptr.
    const OneSidedRequest* repeating_ = nullptr;
    /// The entries of the list `repeating_` whose work requests are not all posted again yet.
    std::span<const TransferEntry> repeat_list_{};
    /// The number of bytes of the first entry of repeat_list_ that are already posted again.
    std::uint64_t repeat_done_ = 0;
    /// Bit i is set if queue pair i has failed, and the peer has posted its failed writes again on
    /// the first queue pair.
    std::uint32_t recovered_ = 0;
};

} // namespace rdmabuf::transport::detail
