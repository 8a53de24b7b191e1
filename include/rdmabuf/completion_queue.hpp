// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

namespace detail {
class CqEvents;
struct RDMABUF_EXPORT DestroyCq {
    static constexpr const char* name = "ibv_destroy_cq";
    /// Acknowledges the events that acknowledge_event() has collected, and then destroys the queue.
    /// ibv_destroy_cq(3) would otherwise block, because it waits until all events are acknowledged.
    static int call(ibv_cq* cq, const Context& context, const CompletionChannelHandle& channel,
                    const std::shared_ptr<CqEvents>& events,
                    const std::optional<ProtectionDomain>& parent_domain) noexcept;
};
} // namespace detail

struct CompletionQueueOptions {
    /// The number of completions that the queue can hold; the device may round up this number.
    /// After an overrun the queue cannot be used any more.
    unsigned depth = 256;
    /// The channel that receives the events of the queue; nullptr for a queue that is only polled.
    /// The queue keeps the channel alive.
    const CompletionChannel* channel = nullptr;
    /// The completion vector, from 0 to ibv_context::num_comp_vectors - 1. The vector selects the
    /// interrupt with which the device reports the events of the queue.
    int vector = 0;
    /// A pointer of the program, for example to its connection object. The pointer is stored in
    /// ibv_cq::cq_context. CompletionChannel::wait() and get_event() return the ibv_cq, from which
    /// the program can read the pointer.
    void* cq_context = nullptr;
};

/// A completion queue, which receives the completions of work requests. Copies share the queue. The
/// queue keeps its Context and CompletionChannel alive. See ibv_create_cq(3).
///
/// poll() and request_notification() belong to the data path. The behaviour of these two functions
/// is undefined after close(), release() or a move; builds with assertions abort. The other
/// functions throw Error EBADF in this case.
class RDMABUF_EXPORT CompletionQueue {
  public:
    /// Creates a completion queue.
    /// @throws Error
    ///   - EINVAL: a depth of 0 or above the device's max_cqe, or a completion vector that the
    ///     device does not have
    ///   - EBADF: @p context or the channel was closed, released or moved from
    ///   - ENOMEM: there is not enough memory for the queue
    explicit CompletionQueue(const Context& context, const CompletionQueueOptions& options = {});

    /// Takes ownership of a completion queue that other code has created on @p context.
    /// @param channel  the channel of @p cq, which the returned object keeps alive. If @p cq has a
    ///                 channel but @p channel is null, the program must destroy the queue before
    ///                 the channel.
    [[nodiscard]] static CompletionQueue adopt(const Context& context, ibv_cq* cq,
                                               const CompletionChannel* channel = nullptr);
    /// Returns an object that uses @p cq but does not own it. Other code must destroy @p cq, after
    /// all queue pairs created with the returned object are destroyed. For a null pointer, the
    /// result is like an object that was closed.
    [[nodiscard]] static CompletionQueue borrow(ibv_cq* cq);

    /// Removes up to completions.size() completions from the queue, the oldest first. See
    /// ibv_poll_cq(3).
    /// @return the number of completions written to @p completions; negative if the queue overran
    ///         or the device failed
    [[nodiscard, gnu::always_inline]] int poll(
        std::span<WorkCompletion> completions) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return ibv_poll_cq(handle_.get(), static_cast<int>(completions.size()), completions.data());
    }
    /// Removes the oldest completion from the queue.
    /// @return 1 if @p completion was written, 0 if the queue is empty, negative if the queue
    ///         overran or the device failed
    [[nodiscard, gnu::always_inline]] int poll(WorkCompletion& completion) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return ibv_poll_cq(handle_.get(), 1, &completion);
    }

    /// Requests one event on the channel for the next completion. A completion that arrived before
    /// this call raises no event: poll the queue again after this call and before sleeping. See
    /// ibv_req_notify_cq(3).
    /// @param solicited_only  request the event only for received messages that the peer sent with
    ///                        IBV_SEND_SOLICITED, and for failed completions
    Status request_notification(bool solicited_only = false) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return Status(ibv_req_notify_cq(handle_.get(), solicited_only ? 1 : 0));
    }

    /// Acknowledges one event that CompletionChannel::get_event() has returned for this queue. The
    /// program must call this function once for each such event. ibv_ack_cq_events(3) locks a
    /// mutex, so this function calls it only once for 64 events. The remaining events are
    /// acknowledged before the queue is destroyed. For a borrowed queue, each event is acknowledged
    /// immediately.
    /// @throws Error EBADF if this object was closed, released or moved from
    void acknowledge_event() const;

    /// Changes the number of completions that the queue can hold; the device may round up this
    /// number. Completions that are already in the queue stay in the queue. See ibv_resize_cq(3).
    /// @throws Error
    ///   - EINVAL: a depth of 0, above the device's max_cqe, or less than the number of completions
    ///     in the queue
    ///   - EOPNOTSUPP: the provider cannot resize completion queues
    ///   - EBADF: this object was closed, released or moved from
    void resize(unsigned depth);
    /// Sets the event moderation: after request_notification(), the device raises an event when @p
    /// count completions have arrived, or when @p period has passed since the first of these
    /// completions. A count or period of 0 switches moderation off. See ibv_modify_cq(3).
    /// @param period  at most 65535 us
    /// @throws Error
    ///   - EINVAL: @p count or @p period is above the limit of the device
    ///     (ibv_device_attr_ex::cq_mod_caps)
    ///   - EOPNOTSUPP: the provider has no moderation
    ///   - EBADF: this object was closed, released or moved from
    void moderate(std::uint16_t count, std::chrono::microseconds period);

    /// Waits until the queue has a completion. If the queue has a channel, the calling thread
    /// sleeps on the channel, whose file descriptor becomes non-blocking. If the queue has no
    /// channel, the thread polls. Other queues must not use the same channel: for a shared channel
    /// call CompletionChannel::wait(). Several threads may wait with copies of one CompletionQueue;
    /// each completion is returned to one thread.
    /// @param timeout  0 to poll once, wait_forever for no limit
    /// @return the number of completions written to @p completions; 0 if the timeout has expired
    /// @throws Error
    ///   - EIO: the queue overran or the device failed
    ///   - EINVAL: the span is empty, or the channel reports an event of another queue
    ///   - EBADF: this object was closed, released or moved from
    [[nodiscard]] std::size_t wait(std::span<WorkCompletion> completions,
                                   std::chrono::milliseconds timeout) const;

    [[nodiscard]] ibv_cq* native() const noexcept { return handle_.get(); }
    /// Returns the context on which the queue was created.
    /// @throws Error EBADF if this object was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("CompletionQueue::context", "CompletionQueue");
    }
    /// Transfers ownership to the caller, which must destroy the returned queue.
    /// acknowledge_event() collects events in order to acknowledge many events with one call.
    /// release() acknowledges the collected events.
    [[nodiscard]] ibv_cq* release() noexcept;
    /// Destroys the queue.
    /// @throws Error EBUSY if copies of this object, or queue pairs that use the queue, still
    ///         exist; the queue then stays open
    void close() { handle_.close(); }

    friend bool operator==(const CompletionQueue& a, const CompletionQueue& b) noexcept {
        return a.native() == b.native();
    }

  protected:
    using Handle =
        detail::shared_handle<ibv_cq, detail::DestroyCq, Context, detail::CompletionChannelHandle,
                              std::shared_ptr<detail::CqEvents>, std::optional<ProtectionDomain>>;
    explicit CompletionQueue(Handle handle) noexcept : handle_(std::move(handle)) {}
    /// Returns a handle without a queue, in which the caller then stores a new queue. The handle
    /// keeps the parents of the queue alive: the context, the channel and the parent domain.
    /// @param channel        nullptr for a queue without a channel
    /// @param parent_domain  nullptr for a queue without a parent domain
    [[nodiscard]] static Handle::unique parents_of(const Context& context,
                                                   const CompletionChannel* channel,
                                                   const ProtectionDomain* parent_domain);
    /// Returns a handle that does not own @p cq. borrow() uses this handle; other code destroys the
    /// queue.
    [[nodiscard]] static Handle borrow_handle(ibv_cq* cq);

    Handle handle_;
};

} // namespace rdmabuf
