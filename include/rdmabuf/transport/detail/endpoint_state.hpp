// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

[[nodiscard]] inline ErrorInfo error_info(int error, const char* message) {
    return {error, "", message};
}

/// Checks that only one thread at a time uses an endpoint. In builds without NDEBUG, an assertion
/// fails otherwise.
class OneThread {
  public:
    explicit OneThread(std::atomic<bool>& in_use) noexcept : in_use_(in_use) {
#ifndef NDEBUG
        [[maybe_unused]] const bool other_thread = in_use_.exchange(true);
        assert(!other_thread &&
               "two threads use the same Endpoint, or its channels, at the same time");
#endif
    }
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;
    ~OneThread() {
#ifndef NDEBUG
        in_use_.store(false);
#endif
    }

  private:
    [[maybe_unused]] std::atomic<bool>& in_use_;
};

/// The state that an Endpoint shares with its listeners, connectors and channels.
class EndpointState {
  public:
    /// Checks the options, and creates the queues and buffers of the endpoint.
    RDMABUF_EXPORT static Result<std::shared_ptr<EndpointState>> make(
        std::span<const Context> devices, const Resolver& resolver,
        const EndpointOptions& options) noexcept;

    /// Called by make() only.
    EndpointState(std::vector<ProtectionDomain> protection_domains, Resolver used_resolver,
                  const EndpointOptions& used_options);
    EndpointState(const EndpointState&) = delete;
    EndpointState& operator=(const EndpointState&) = delete;
    RDMABUF_EXPORT ~EndpointState();

    // Channels

    /// Adds a channel whose queue pairs are connected. progress() then also processes the
    /// completions of this channel.
    /// @throws Error, std::bad_alloc
    RDMABUF_EXPORT void attach(ChannelState& channel);
    /// Adds the socket of a channel to the epoll descriptor. The channel fails when the peer closes
    /// the socket.
    /// @throws Error with the errno value of epoll_ctl(2)
    RDMABUF_EXPORT void watch_socket(ChannelState& channel, UniqueFd socket);
    /// Removes a channel from the endpoint without waiting for its requests.
    RDMABUF_EXPORT void detach(ChannelState& channel) noexcept;
    /// Waits until the messages of a channel are acknowledged, for at most EndpointOptions::linger.
    /// Then ends the requests of the channel and removes it.
    /// @return the errno value of ChannelState::broken() before the channel was closed
    RDMABUF_EXPORT int close(ChannelState& channel) noexcept;

    // Progress

    /// Polls the completion queues of all devices, and advances the channels that have work.
    /// @return true if a work request has completed
    bool progress() noexcept {
        const OneThread one_thread(in_use_);
        const bool any = poll();
        if (!any) {
            for (const auto& rail : shared.rails) {
                shared.post_receives(*rail);
            }
        }
        for (ChannelLinks* i = shared.busy.front(); i != nullptr;) {
            auto* const channel = static_cast<ChannelState*>(i);
            i = Busy::next(i);
            channel->advance();
            if (!channel->has_work()) {
                shared.busy.remove(channel);
                channel->is_busy = false;
            }
        }
        if (++calls_ % calls_between_checks == 0) {
            check(now_ns());
        }
        return any;
    }
    /// Waits until a device or a socket reports an event, or a periodic check is due. progress()
    /// must be called afterwards.
    /// @param timeout  maximum time to wait; negative: no limit
    RDMABUF_EXPORT void sleep(std::chrono::milliseconds timeout) noexcept;
    /// Returns the epoll descriptor. After arm() has returned true, it becomes readable when
    /// progress() has something to do.
    [[nodiscard]] int descriptor() const noexcept { return events_.get(); }
    /// Requests an event for the next completion.
    /// @return false if a completion has arrived or a channel has work; the caller must then call
    ///         progress() before sleeping
    RDMABUF_EXPORT bool arm() noexcept;

    // Requests

    /// Sets @p completion to the state of a request.
    /// @return 0; EINVAL for a request of another channel; ESTALE if the completion of the request
    ///         was reported before
    int test(std::uint32_t channel, Request& request, Completion& completion) noexcept {
        if (request.index == Request::completed_index) {
            if (request.channel != channel) {
                return EINVAL;
            }
            completion = {.done = true, .bytes = request.generation};
            request = {};
            return 0;
        }
        if (request.index == Request::empty_index) {
            return ESTALE;
        }
        RequestState* const state = shared.request(request.index);
        if (request.channel != channel || state == nullptr) {
            return EINVAL;
        }
        if (!state->in_use || state->generation != request.generation) {
            return ESTALE;
        }
        if (!state->done) {
            progress();
        }
        if (state->done) {
            if (state->context != nullptr) {
                shared.completed.remove(state);
            }
            report(*state, completion);
            request = {};
        }
        return 0;
    }
    /// Reports completed requests that were started with a `context` pointer.
    std::size_t poll_completions(std::span<Completion> completions) noexcept {
        std::size_t count = 0;
        while (count < completions.size() && !shared.completed.empty()) {
            report(*shared.completed.pop_front(), completions[count++]);
        }
        return count;
    }
    /// Starts a receive from any channel.
    int receive_any(const BufferRef& buffer, Tag tag, Tag mask, Request& request,
                    void* context) noexcept;
    [[nodiscard]] const UnexpectedMessage* probe(const ChannelState* channel, Tag tag,
                                                 Tag mask) noexcept {
        progress();
        return shared.matcher.find_message(channel, tag, mask);
    }
    /// Cancels a receive.
    /// @return 0; EALREADY if the message of the receive has already arrived; EINVAL for a request
    ///         that is not a receive; ESTALE if the completion of the receive was reported before
    int cancel(const Request& request) noexcept {
        RequestState* const state = shared.request(request.index);
        if (state == nullptr || state->type() != RequestType::receive) {
            return EINVAL;
        }
        if (!state->in_use || state->generation != request.generation) {
            return ESTALE;
        }
        auto& receive = static_cast<ReceiveRequest&>(*state);
        if (receive.done) {
            return EALREADY;
        }
        if (receive.channel == nullptr) {
            shared.matcher.remove(receive);
            shared.complete(receive, ECANCELED);
            return 0;
        }
        const int error = receive.channel->cancel(receive);
        return error;
    }

    const EndpointOptions options;
    Resolver resolver;
    std::vector<ProtectionDomain> pds;
    std::optional<RegistrationCache> cache;
    /// The smallest DeviceAttributes::max_mr_size of all devices, in bytes.
    std::uint64_t max_mr_size = std::numeric_limits<std::uint64_t>::max();
    /// The smallest max_msg_sz (maximum message length) of the ports of all devices, in bytes.
    std::uint64_t max_message = std::numeric_limits<std::uint64_t>::max();
    SharedState shared;

    /// The value of Request::channel for receives from any channel.
    static constexpr std::uint32_t any_channel = 0;

  private:
    using Busy = List<ChannelLinks, &ChannelLinks::busy>;
    using All = List<ChannelLinks, &ChannelLinks::all>;
    static constexpr std::uint32_t calls_between_checks = 256;

    void report(RequestState& state, Completion& completion) noexcept {
        completion = {.done = true,
                      .error = {state.error, std::system_category()},
                      .bytes = static_cast<std::size_t>(state.bytes),
                      .tag = state.tag,
                      .channel = state.channel_number,
                      .context = state.context};
        if (state.channel != nullptr) {
            state.channel->give_back(state);
        } else {
            shared.give_back(state);
        }
    }

    bool poll() noexcept {
        bool any = false;
        for (std::size_t r = 0; r < shared.rails.size(); ++r) {
            std::array<WorkCompletion, 16> completions; // NOLINT(*-member-init): poll writes it
            const int count = shared.rails[r]->cq.poll(completions);
            if (count <= 0) {
                if (count < 0) {
                    shared.error = EIO;
                }
                continue;
            }
            any = true;
            for (const WorkCompletion& completion :
                 std::span(completions).first(static_cast<std::size_t>(count))) {
                complete(r, completion);
            }
        }
        if (shared.error != 0) {
            fail_all(shared.error);
        }
        return any;
    }
    [[gnu::always_inline]] void complete(std::size_t rail,
                                         const WorkCompletion& completion) noexcept {
        const WorkId id = WorkId::decode(completion.wr_id);
        if (id.work == Work::loopback || id.work == Work::loopback_receive) {
            loopback_completed(rail, id, completion.status);
            return;
        }
        ChannelState* const channel = shared.queue_pairs.find(completion.qp_num);
        if (id.work == Work::receive) {
            bool reusable = true;
            if (channel != nullptr) {
                if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
                    channel->receive_failed(completion.status);
                } else if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
                    channel->immediate_arrived(rail, be32toh(completion.imm_data),
                                               completion.byte_len);
                } else if (rail == 0) {
                    reusable = channel->message_arrived(id.number, completion.byte_len);
                } else {
                    channel->fail(EPROTO,
                                  "the peer has sent a message by another device than the first");
                }
            }
            if (reusable) {
                shared.repost(rail, id.number);
            }
        } else if (channel != nullptr) {
            channel->send_completed(rail, id, completion.status);
        }
    }
    [[gnu::noinline]] void loopback_completed(std::size_t rail, const WorkId& id,
                                              ibv_wc_status status) noexcept {
        SharedRail& shared_rail = *shared.rails[rail];
        if (id.work == Work::loopback_receive) {
            --shared_rail.loopback->receives;
        } else if (shared_rail.loopback) {
            shared_rail.loopback->queue.completed(id.sequence);
        }
        RequestState* const request = shared.request(id.number);
        if (request != nullptr && request->in_use && request->channel != nullptr) {
            ChannelState& channel = *request->channel;
            channel.loopback_completed(*request, status);
        }
        if (status != IBV_WC_SUCCESS) {
            loopback_failed_ = true;
        }
    }
    /// Creates new loopback queue pairs after the current ones have failed.
    RDMABUF_EXPORT void restore_loopback() noexcept;
    RDMABUF_EXPORT void fail_all(int error) noexcept;
    /// Checks the sockets of the channels, sends keepalive writes, and ends requests whose deadline
    /// has passed.
    RDMABUF_EXPORT void check(std::int64_t now) noexcept;
    void check_sockets() noexcept;
    void end_late_requests(std::int64_t now) noexcept;

    All channels_;
    std::uint32_t calls_ = 0;
    bool loopback_failed_ = false;
    std::int64_t checked_ns_ = 0;
    /// The epoll descriptor for the completion channels of the devices and the sockets of the
    /// channels.
    UniqueFd events_;
    std::atomic<bool> in_use_{false};
    rdmabuf::detail::CreatorProcess creator_;
};

inline int EndpointState::receive_any(const BufferRef& buffer, Tag tag, Tag mask, Request& request,
                                      void* context) noexcept {
    if (!creator_.is_current()) {
        return EBADF;
    }
    if (buffer.length > 0) {
        if (buffer.memory == nullptr || buffer.memory->endpoint != this) {
            return EINVAL;
        }
        if (!buffer.memory->holds(buffer.address, buffer.length)) {
            return ERANGE;
        }
        if (!has(buffer.memory->access, Access::local_write | Access::remote_write)) {
            return EACCES;
        }
    }
    ReceiveRequest* const taken = shared.receives.take();
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->from_any = true;
    taken->channel = nullptr;
    taken->channel_number = any_channel;
    taken->buffer = buffer;
    taken->bytes = buffer.length;
    taken->context = context;
    taken->deadline = options.timeout.count() > 0
                          ? now_ns() + std::chrono::nanoseconds(options.timeout).count()
                          : 0;
    taken->start(tag, mask);
    request = {.channel = any_channel, .generation = taken->generation, .index = taken->index};
    if (UnexpectedMessage* const message = shared.matcher.find_message(nullptr, tag, mask)) {
        shared.matcher.remove(*message);
        ChannelState& channel = *message->channel;
        channel.adopt(*taken);
        channel.receive_unexpected(*taken, *message);
        return 0;
    }
    shared.matcher.post(*taken);
    return 0;
}

} // namespace rdmabuf::transport::detail
