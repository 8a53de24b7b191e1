// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/memory_region.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
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

/// The links of a channel in the two lists of its endpoint.
struct ChannelLinks {
    /// The links of the channel in SharedState::busy.
    Link<ChannelLinks> busy{};
    bool is_busy = false;
    /// The links of the channel in the list of all channels of the endpoint.
    Link<ChannelLinks> all{};
    /// The links of the channel in the list of channels that EndpointState::close() closes.
    Link<ChannelLinks> closing{};
    /// True if the close message was sent.
    bool close_sent = false;
};

/// A queue pair that is connected to itself. It performs flush reads and copies messages to GPU
/// memory.
struct Loopback {
    QueuePair queue_pair;
    SendQueue queue;
    /// The length of the receive queue, in receives.
    std::uint32_t receive_depth = 0;
    /// The number of posted receives that have not completed.
    std::uint32_t receives = 0;
};

/// One device of an endpoint, with the queues that all channels of the endpoint share.
struct SharedRail {
    ProtectionDomain pd;
    CompletionChannel events;
    CompletionQueue cq;
    SharedReceiveQueue srq;
    /// The registration of all bounce buffers. Its rkey is not sent to any peer.
    MemoryRegion bounce_buffers;
    /// The registration of a few bytes of memory whose contents are not used. Keepalive writes and
    /// fence reads of peers access this memory.
    MemoryRegion probe_line;
    ReceiveReplenisher replenisher;
    std::optional<Loopback> loopback;
    /// The speed of the port in Mbit/s. It determines the share of the device in striped transfers.
    std::uint32_t speed = 1;
    /// The number of completions that the completion queue can hold.
    std::uint32_t cq_depth = 0;
    /// The number of completion queue entries that are reserved for the queue pairs of all
    /// channels.
    std::uint32_t cq_reserved = 0;
    /// The maximum number of work requests in flight of a queue pair.
    std::uint32_t send_depth = 0;
    /// The channels of the queue pairs of this device. Queue pairs of different devices can have
    /// the same number.
    QueuePairTable queue_pairs{};
    /// The cause of the failure of the device or of a queue that all channels share; nullptr while
    /// the device works.
    const char* failure = nullptr;
    /// True while the port of the device is not active.
    bool port_down = false;
};

/// The queues, buffers and requests that all channels of an endpoint share. Only one thread at a
/// time may use this object.
class SharedState {
  public:
    /// Creates the queues of each device and posts all receives.
    /// @throws Error with the errno value of a failed verbs call, std::bad_alloc
    RDMABUF_EXPORT SharedState(std::span<const ProtectionDomain> pds, const EndpointOptions& used);
    SharedState(const SharedState&) = delete;
    SharedState& operator=(const SharedState&) = delete;
    RDMABUF_EXPORT ~SharedState();

    /// Creates the loopback queue pairs, unless they exist. They are needed for requests with GPU
    /// memory.
    /// @throws Error with the errno value of creating or connecting a queue pair
    RDMABUF_EXPORT void create_loopback();
    /// Reserves @p entries entries of the completion queue of a device.
    /// @throws Error ENOSPC if the device does not support a completion queue that is large enough
    RDMABUF_EXPORT static void reserve_completions(SharedRail& rail, std::uint32_t entries);
    /// Reserves completion queue entries for the queue pairs of another channel. The channel uses
    /// the first @p devices devices, and @p queue_pairs queue pairs on each of them.
    /// @throws Error ENOSPC if a device does not support a completion queue that is large enough
    RDMABUF_EXPORT void reserve_completions(std::size_t devices, std::uint32_t queue_pairs);
    void release_completions(std::size_t devices, std::uint32_t queue_pairs) noexcept {
        for (std::size_t i = 0; i < devices; ++i) {
            rails[i]->cq_reserved -= queue_pairs * rails[i]->send_depth;
        }
    }

    /// Posts a receive with this receive buffer again, after its message was processed.
    void repost(std::size_t rail, std::uint32_t buffer) noexcept {
        SharedRail& shared = *rails[rail];
        const std::uint64_t id = WorkId{.work = Work::receive, .number = buffer}.encode();
        if (rail == 0) {
            shared.replenisher.add(
                id, {.addr = reinterpret_cast<std::uintptr_t>(pool.receive_buffer(buffer)),
                     .length = pool.receive_size(),
                     .lkey = shared.bounce_buffers.lkey()});
        } else {
            shared.replenisher.add(id);
        }
        if (shared.replenisher.full()) {
            post_receives(shared);
        }
    }
    void post_receives(SharedRail& rail) noexcept {
        if (rail.replenisher.post(rail.srq.native()) != 0) {
            fail(rail, "ibv_post_srq_recv failed on the shared receive queue of a device");
        }
    }
    /// Marks a device as failed. progress() then ends the channels that use the device.
    /// @param reason  a constant text
    void fail(SharedRail& rail, const char* reason) noexcept {
        if (rail.failure == nullptr) {
            rail.failure = reason;
            rail_failed = true;
        }
    }

    /// Initializes a request that was taken from its pool.
    /// @param channel         nullptr for a receive from any channel
    /// @param channel_number  see RequestState::channel_number
    /// @param request         set to identify the request
    void begin(RequestState& state, ChannelState* channel, std::uint32_t channel_number,
               const BufferRef& buffer, Request& request, void* context) const noexcept {
        state.buffer = buffer;
        state.bytes = buffer.length;
        state.context = context;
        state.deadline = options.timeout.count() > 0
                             ? now_ns() + std::chrono::nanoseconds(options.timeout).count()
                             : 0;
        state.channel = channel;
        state.channel_number = channel_number;
        request = {.channel = channel_number, .generation = state.generation, .index = state.index};
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
    /// Makes a request the owner of the memory that it uses. If the request has already completed,
    /// the lease of the memory ends at once.
    void hold(RequestState& request, LeasedMemory* memory) noexcept {
        if (request.done) {
            leases.give_back(memory);
            return;
        }
        memory->context = std::exchange(request.context, memory);
        request.leased = true;
    }
    /// Ends the lease that a request holds, if any.
    void end_lease(RequestState& request) noexcept {
        if (request.leased) {
            auto* const memory = static_cast<LeasedMemory*>(request.context);
            request.leased = false;
            request.context = memory->context;
            leases.give_back(memory);
        }
    }
    /// Returns the request with this RequestState::index; nullptr if there is no such request.
    [[nodiscard]] RequestState* request(std::uint32_t index) const noexcept {
        const std::uint32_t position = index & position_mask;
        switch (static_cast<RequestType>(index >> RequestState::type_shift)) {
            case RequestType::send:
                return sends.at(position);
            case RequestType::receive:
                return receives.at(position);
            case RequestType::one_sided:
                return one_sided.at(position);
        }
        return nullptr;
    }
    void give_back(RequestState& request) noexcept {
        switch (request.type()) {
            case RequestType::send:
                sends.give_back(static_cast<SendRequest*>(&request));
                break;
            case RequestType::receive:
                receives.give_back(static_cast<ReceiveRequest*>(&request));
                break;
            case RequestType::one_sided:
                one_sided.give_back(static_cast<OneSidedRequest*>(&request));
                break;
        }
    }
    /// Returns the number that identifies a receive or a send in messages of the protocol. It
    /// contains the position of the request in its pool, and the lower bits of its generation.
    [[nodiscard]] static std::uint32_t wire_number(const RequestState& request) noexcept {
        return (request.index & position_mask) | (request.generation & generation_mask)
                                                     << RequestState::type_shift;
    }
    /// Returns the receive of @p channel that a message of the peer identifies by its
    /// wire_number(); nullptr if there is no such receive.
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
    /// The memory of the requests that were started without a Memory.
    LeasePool leases;
    /// Makes progress() call ChannelState::advance() of a channel.
    void wake(ChannelLinks& channel) noexcept {
        if (!channel.is_busy) {
            channel.is_busy = true;
            busy.push_back(&channel);
        }
    }
    /// The channels for which progress() calls ChannelState::advance().
    List<ChannelLinks, &ChannelLinks::busy> busy;
    /// The completed requests that were started with a `context` pointer. They are reported by
    /// Endpoint::poll_completions().
    List<RequestState, &RequestState::completed> completed;
    /// True if a device has failed and the channels that use it were not ended yet.
    bool rail_failed = false;

  private:
    /// The bits of RequestState::index, and of wire_number(), that are the position of the request
    /// in its pool.
    static constexpr std::uint32_t position_mask = (1U << RequestState::type_shift) - 1;
    /// The bits of RequestState::generation that wire_number() contains.
    static constexpr std::uint32_t generation_mask =
        Immediate::max_request >> RequestState::type_shift;

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
