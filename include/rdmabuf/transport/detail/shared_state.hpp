// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/shared_receive_queue.hpp>
#include <rdmabuf/transport/detail/block_pool.hpp>
#include <rdmabuf/transport/detail/bounce_pool.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/leased_memory.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/queue_pair_table.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/receive_replenisher.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>
#include <rdmabuf/transport/detail/tag_matcher.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

/// The links of a channel in the lists of its endpoint.
struct ChannelLinks {
    /// The links of the channel in SharedState::busy.
    Link<ChannelLinks> busy{};
    bool is_busy = false;
    /// The links of the channel in the list of all channels of the endpoint.
    Link<ChannelLinks> all{};
    /// The links of the channel in SharedState::failed.
    Link<ChannelLinks> failed{};
    bool is_failed = false;
    /// The links of the channel in the list of channels that EndpointState::close() closes.
    Link<ChannelLinks> closing{};
    bool close_sent = false;
    /// True if the channel was closed after EndpointOptions::linger, although the peer's device had
    /// not acknowledged all messages.
    bool unacknowledged = false;
    /// The time until which EndpointState::close() waits for acknowledgements, in nanoseconds of
    /// now_ns(); 0 before close().
    std::int64_t linger_end_ns = 0;
    /// The time until which close() waits for the requests to end, in nanoseconds of now_ns(); 0
    /// before this wait begins.
    std::int64_t drain_end_ns = 0;
};

/// A queue pair that is connected to itself. It performs flush reads and copies messages to GPU
/// memory.
struct Loopback {
    QueuePair queue_pair;
    SendQueue queue;
    /// The number of entries of the receive queue.
    std::uint32_t receive_depth = 0;
    /// The number of posted receives that have not completed.
    std::uint32_t receives = 0;
    /// True if the queue pair is in the error state. Requests wait until it is replaced.
    bool failed = false;
    /// True if the work request that has caused the failure has completed, or if no work request
    /// has caused it.
    bool cause_known = false;
    /// True if abort() must be called again.
    bool must_abort = false;
    /// RequestState::index of the request to which all work requests in flight belong;
    /// WorkId::no_request if they belong to several requests or to none.
    std::uint32_t owner = WorkId::no_request;

    /// Returns true if no work request is in flight.
    [[nodiscard]] bool idle() const noexcept { return queue.idle() && receives == 0; }
    /// Moves the queue pair to the error state, so that all its work requests are flushed and
    /// another queue pair can replace it. Sets `must_abort` if this is not possible now.
    void abort() noexcept {
        failed = cause_known = true;
        must_abort = !attempt([this] { queue_pair.abort(); });
    }
};

/// One device of an endpoint, with the queues that all channels of the endpoint share.
struct SharedRail {
    ProtectionDomain pd;
    CompletionChannel events;
    CompletionQueue cq;
    SharedReceiveQueue srq;
    /// The registration of all bounce buffers. Its rkey is not sent to any peer.
    MemoryRegion bounce_buffers;
    /// The registration of a few bytes of memory whose contents are not used. The keepalive writes,
    /// fences and fence reads of peers access this memory.
    MemoryRegion probe_line;
    ReceiveReplenisher replenisher;
    /// Created by create_loopback() if the port is active. Empty before that. Also empty after the
    /// queue pair was destroyed, until create_loopback() creates another one. Stays empty after the
    /// device has failed.
    std::optional<Loopback> loopback;
    /// The time of the first of successive failures to create `loopback`, in nanoseconds of
    /// now_ns(); 0 if the last attempt has succeeded.
    std::int64_t loopback_failed_ns = 0;
    /// The errno value of the last of these failures, if they have lasted for
    /// SharedState::detection_ns(): the requests that need `loopback` then end with it. 0 while
    /// these requests wait for the next attempt.
    int loopback_error = 0;
    /// The speed of the port in Mbit/s; 1 if it is unknown. A faster device transfers a longer part
    /// of each striped transfer.
    std::uint32_t speed = 1;
    /// The number of completions that the completion queue can hold.
    std::uint32_t cq_depth = 0;
    /// The largest depth to which the completion queue can be resized: max_cqe, or cq_depth if the
    /// provider cannot resize completion queues.
    std::uint32_t cq_largest_depth = 0;
    /// The number of completion queue entries that are reserved: for the shared receive queue, the
    /// loopback queue pair, the SetupQueuePair, and the queue pairs of all channels.
    std::uint32_t cq_reserved = 0;
    /// The number of entries of the send queue of each queue pair.
    std::uint32_t send_depth = 0;
    /// Finds the channel of each queue pair of this device. Each device has its own table, because
    /// queue pairs of different devices can have the same number.
    QueuePairTable queue_pairs{};
    /// Why the device or one of its shared queues has failed, as a constant text; nullptr while
    /// they work.
    const char* failure = nullptr;
    /// True while the port of the device is not active, as of the last asynchronous event that was
    /// read or the last SharedState::query_port().
    bool port_down = false;
    /// The time at which port_down became true, in nanoseconds of now_ns().
    std::int64_t down_since_ns = now_ns();
    /// True if a completion on a queue pair of a channel is overdue, so that the device may have
    /// failed. EndpointState::test_silent_devices() then tests the device.
    bool silent = false;
    /// True if the work request of a test is posted.
    bool test_posted = false;
    /// The time at which the time limit of the last test began, in nanoseconds of now_ns().
    std::int64_t test_ns = 0;
    /// True while a test of the device runs: until a work request of the loopback queue pair
    /// completes, or the test is abandoned.
    bool tested = false;
    /// The number of loopback queue pairs in succession that have failed with IBV_WC_RETRY_EXC_ERR
    /// while the port was active.
    unsigned undelivered = 0;
    /// The number of work requests that were flushed with a failed loopback queue pair, of which
    /// any may have caused the failure, and that have not succeeded since then. While it is not 0,
    /// the requests are repeated one at a time, so that the cause fails alone.
    std::uint32_t suspects = 0;

    /// Sets port_down, and down_since_ns if the port has gone down.
    void set_port_down(bool down) noexcept {
        if (down && !port_down) {
            down_since_ns = now_ns();
        }
        port_down = down;
    }
};

/// The queues, buffers and requests that all channels of an endpoint share. Only one thread at a
/// time may use this object.
class RDMABUF_EXPORT SharedState {
  public:
    /// Creates the queues of each device and posts all receives.
    /// @throws Error with the errno value of a failed verbs call, std::bad_alloc
    SharedState(std::span<const ProtectionDomain> pds, const EndpointOptions& used);
    SharedState(const SharedState&) = delete;
    SharedState& operator=(const SharedState&) = delete;
    ~SharedState();

    /// Creates the loopback queue pairs, which requests with GPU memory need, on each working
    /// device whose port is active, unless they exist. After the first call without an error,
    /// EndpointState::check() creates those that are missing.
    /// @throws Error with the errno value of query_port(), or of creating or connecting a queue
    ///         pair, for the first device for which this has failed
    void create_loopback();
    /// Queries whether the port of a device is active, and sets SharedRail::port_down.
    /// @throws Error with the errno value of the query. After EIO, the device has failed.
    void query_port(SharedRail& rail);
    /// Reserves @p entries entries of the completion queue of a device.
    /// @throws Error ENOSPC if the device does not support a completion queue that is large enough,
    ///         or the errors of CompletionQueue::resize()
    static void reserve_completions(SharedRail& rail, std::uint32_t entries);
    /// Reserves completion queue entries for the queue pairs of another channel. The channel uses
    /// the first @p devices devices, and @p queue_pairs queue pairs on each of them.
    /// @throws Error: those of the overload above
    void reserve_completions(std::size_t devices, std::uint32_t queue_pairs);
    void release_completions(std::size_t devices, std::uint32_t queue_pairs) noexcept;

    /// Posts receive buffer number @p buffer again, after its message was processed.
    void repost(std::size_t rail, std::uint32_t buffer) noexcept {
        repost(*rails[rail], rails[rail]->replenisher[buffer]);
    }
    /// Adds a receive to the batch of its device, which is posted to the shared receive queue when
    /// it is full; see ReceiveReplenisher.
    void repost(SharedRail& rail, ReceiveReplenisher::Receive& receive) noexcept {
        rail.replenisher.add(receive);
        if (rail.replenisher.full()) [[unlikely]] {
            post_receives(rail);
        }
    }
    void post_receives(SharedRail& rail) noexcept;
    /// Marks a device as failed. progress() then stops using the queue pairs of the device, and
    /// ends the channels whose first queue pair is on the device.
    /// @param reason  a constant text
    void fail(SharedRail& rail, const char* reason) noexcept;

    /// Returns the time in nanoseconds after which, at the latest, a device reports that its peer
    /// does not respond.
    [[nodiscard]] std::int64_t retransmission_ns() const noexcept;
    /// Returns the time in nanoseconds after which, at the latest, a keepalive write of a channel
    /// with requests in flight has failed if the peer does not respond.
    [[nodiscard]] std::int64_t detection_ns() const noexcept;
    /// Initializes a request that was taken from its pool.
    /// @param channel         nullptr for a receive from any channel
    /// @param channel_number  the value for RequestState::channel_number
    /// @param request         output: the handle by which the program identifies the request
    void begin(RequestState& state, ChannelState* channel, std::uint32_t channel_number,
               const BufferRef& buffer, Request& request, void* context) const noexcept {
        state.bytes = buffer.length;
        state.context = context;
        begin(state, channel, channel_number, buffer, request);
    }
    /// Like the overload above, but does not set `bytes` and `context`.
    void begin(RequestState& state, ChannelState* channel, std::uint32_t channel_number,
               const BufferRef& buffer, Request& request) const noexcept {
        state.buffer = buffer;
        set_deadline(state);
        state.channel = channel;
        state.channel_number = channel_number;
        request = {.channel = channel_number, .generation = state.generation, .index = state.index};
    }
    /// Sets the deadline of a request to EndpointOptions::timeout from now, unless this timeout is
    /// 0.
    void set_deadline(RequestState& state) const noexcept {
        if (options.timeout.count() > 0) [[unlikely]] {
            state.deadline = now_ns() + to_ns(options.timeout);
        }
    }
    /// Ends a request. Its completion can then be reported to the program.
    void complete(RequestState& request, int request_error = 0) noexcept {
        request.done = true;
        request.error = request_error;
        // If the message is longer than the receive buffer, the completion reports the length of
        // the message.
        if (request_error != 0 &&
            (request_error != EMSGSIZE || request.type() != RequestType::receive)) {
            request.bytes = 0;
        }
        if (request.context != nullptr) {
            end_lease(request);
            if (request.context != nullptr) {
                completed.push_back(&request);
            }
        }
    }
    /// Makes a request the owner of the registration lease of its memory. If the request has
    /// already completed, ends the lease at once.
    void hold(RequestState& request, LeasedMemory* memory) noexcept;
    /// Ends the lease that a request holds, if any.
    void end_lease(RequestState& request) noexcept;
    /// Returns the request with this RequestState::index; nullptr if there is no such request.
    [[nodiscard]] RequestState* request(std::uint32_t index) const noexcept {
        if (ReceiveRequest* const found = receive(index)) {
            return found;
        }
        if (SendRequest* const found = sends.at(index - first_index(RequestType::send))) {
            return found;
        }
        return one_sided.at(index - first_index(RequestType::one_sided));
    }
    /// Returns the position of a receive in its pool.
    [[nodiscard]] static std::uint32_t position_of_receive(std::uint32_t index) noexcept {
        return index - first_index(RequestType::receive);
    }
    [[nodiscard]] ReceiveRequest* receive(std::uint32_t index) const noexcept {
        return receives.at(position_of_receive(index));
    }
    void give_back(RequestState& request) noexcept;
    /// Returns the number that identifies a receive or a send in messages of the protocol. It
    /// contains the position of the request in its pool, and the lower bits of its generation.
    [[nodiscard]] static std::uint32_t wire_number(const RequestState& request) noexcept;
    /// Returns the receive of @p channel that has this wire_number(); nullptr if there is no such
    /// receive.
    [[nodiscard]] ReceiveRequest* receive_of(const ChannelState* channel,
                                             std::uint32_t wire) const noexcept {
        return named(receives, channel, wire);
    }
    [[nodiscard]] SendRequest* send_of(const ChannelState* channel,
                                       std::uint32_t wire) const noexcept {
        return named(sends, channel, wire);
    }

    const EndpointOptions options;
    BouncePool pool;
    std::vector<std::unique_ptr<SharedRail>> rails;
    /// Allocates the memory of unexpected messages and notifications.
    BlockPool blocks;
    TagMatcher matcher;
    RequestPool<SendRequest, RequestType::send> sends;
    RequestPool<ReceiveRequest, RequestType::receive> receives;
    RequestPool<OneSidedRequest, RequestType::one_sided> one_sided;
    TransferPool transfers;
    /// The memory of the requests that the program started without a Memory object.
    LeasePool leases;
    /// Marks a channel, so that the next call of progress() calls ChannelState::advance() for it.
    void wake(ChannelLinks& channel) noexcept;
    /// The channels for which progress() calls ChannelState::advance().
    List<ChannelLinks, &ChannelLinks::busy> busy;
    /// The channels that have failed and that Endpoint::poll_failed() has not reported.
    List<ChannelLinks, &ChannelLinks::failed> failed;
    /// The receives of unexpected messages for GPU memory that wait for a copy buffer, in the order
    /// in which they will get one, whatever their channels.
    RequestList copies;
    /// The completed requests that were started with a `context` pointer and that
    /// Endpoint::poll_completions() has not reported.
    RequestList completed;
    /// True if a device has failed and its queue pairs are still in use.
    bool rail_failed = false;
    /// The last time at which check() polled all completions; see RailSet::drain().
    std::int64_t polled_ns = 0;
    /// True if a queue pair has failed and its channel may still be recovering.
    bool recovers = false;
    /// True if the endpoint has several devices.
    bool several_rails = false;
    /// True after create_loopback() has succeeded once.
    bool needs_loopback = false;

  private:
    /// The bits of RequestState::index and wire_number() that contain the position of the request
    /// in its pool.
    static constexpr std::uint32_t position_mask = (1U << RequestState::type_shift) - 1;
    /// The bits of RequestState::generation that wire_number() contains.
    static constexpr std::uint32_t generation_mask =
        Immediate::max_request >> RequestState::type_shift;

    /// Returns RequestState::index of the first object of a type.
    [[nodiscard]] static constexpr std::uint32_t first_index(RequestType type) noexcept {
        return static_cast<std::uint32_t>(type) << RequestState::type_shift;
    }
    template <class T, RequestType Type>
    [[nodiscard]] static T* named(const RequestPool<T, Type>& pool, const ChannelState* channel,
                                  std::uint32_t wire) noexcept {
        T* const request = pool.at(wire & position_mask);
        return request != nullptr && request->in_use && !request->done &&
                       request->channel == channel && wire_number(*request) == wire
                   ? request
                   : nullptr;
    }
};

} // namespace rdmabuf::transport::detail
