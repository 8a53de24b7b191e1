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
    /// Acknowledges the counted events first, because ibv_destroy_cq(3) waits for that.
    static int call(ibv_cq* cq, const Context& context, const CompletionChannelHandle& channel,
                    const std::shared_ptr<CqEvents>& events,
                    const std::optional<ProtectionDomain>& parent_domain) noexcept;
};
} // namespace detail

struct CompletionQueueOptions {
    /// Completions it must hold at once; the device may round up. A queue that overruns is lost.
    unsigned depth = 256;
    /// The channel for events; nullptr for a queue that is only polled.
    const CompletionChannel* channel = nullptr;
    /// The interrupt of the device that raises the events, from 0 to num_comp_vectors - 1.
    int vector = 0;
    /// The program's own pointer, such as that of its connection. It becomes ibv_cq::cq_context of
    /// the queue that CompletionChannel::wait() and get_event() return.
    void* cq_context = nullptr;
};

/// The queue that receives the completions of work requests. Copies share it; it holds its Context
/// and CompletionChannel. ibv_create_cq(3).
///
/// poll() and request_notification() are calls of the data path. They must not be called after
/// close(), release() or a move: an assertion where assertions are enabled, undefined where they
/// are not. The other functions throw Error EBADF then.
class RDMABUF_EXPORT CompletionQueue {
  public:
    /// @throws Error EINVAL for a depth of 0, above the device's max_cqe, or a vector it does not
    /// have;
    ///         ENOMEM.
    explicit CompletionQueue(const Context& context, const CompletionQueueOptions& options = {});

    /// Takes over a completion queue created elsewhere on @p context.
    /// @param channel  the channel with which the queue was created, which the queue then keeps
    ///                 alive. A channel that is not passed must outlive the queue.
    [[nodiscard]] static CompletionQueue adopt(const Context& context, ibv_cq* cq,
                                               const CompletionChannel* channel = nullptr);
    /// Uses a completion queue that other code destroys, after every queue pair created with this
    /// object is gone.
    [[nodiscard]] static CompletionQueue borrow(ibv_cq* cq);

    /// Takes up to completions.size() completions, oldest first. ibv_poll_cq(3).
    /// @return how many were written; negative when the queue is broken (it overran)
    [[nodiscard, gnu::always_inline]] int poll(
        std::span<WorkCompletion> completions) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return ibv_poll_cq(handle_.get(), static_cast<int>(completions.size()), completions.data());
    }
    /// Takes one completion. @return 1, 0 or negative, as for a span.
    [[nodiscard, gnu::always_inline]] int poll(WorkCompletion& completion) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return ibv_poll_cq(handle_.get(), 1, &completion);
    }

    /// Requests one event on the channel, for the next completion. A completion that arrived before
    /// this call raises no event, so poll once more before sleeping. ibv_req_notify_cq(3).
    Status request_notification(bool solicited_only = false) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return Status(ibv_req_notify_cq(handle_.get(), solicited_only ? 1 : 0));
    }

    /// Acknowledges one event of this queue that CompletionChannel::get_event() returned. Must be
    /// called once for each such event. The events are counted: ibv_ack_cq_events(3), which takes a
    /// mutex, is called for 64 events together, and for the rest before this object destroys the
    /// queue. Events of a borrowed queue are acknowledged at once.
    /// @throws Error EBADF when this was closed, released or moved from.
    void acknowledge_event() const;

    /// Changes the number of completions that the queue can hold; the device may round up.
    /// Completions in the queue stay there. ibv_resize_cq(3).
    /// @throws Error EINVAL for a depth of 0, above the device's max_cqe or below the number of
    ///         completions in the queue; EOPNOTSUPP where the provider cannot; EBADF when this was
    ///         closed, released or moved from
    void resize(unsigned depth);
    /// Moderates events: the device raises an event when @p count completions have arrived since
    /// the request, or @p period has passed since the first of them. A count or period of 0 ends
    /// the moderation. ibv_modify_cq(3).
    /// @param period  in whole microseconds, at most 65535
    /// @throws Error EOPNOTSUPP where the provider cannot; EINVAL above the limits of the device,
    ///         which are ibv_device_attr_ex::cq_mod_caps; EBADF when this was closed, released or
    ///         moved from
    void moderate(std::uint16_t count, std::chrono::microseconds period);

    /// Waits until there is a completion. If the queue has a channel, the thread sleeps, and the
    /// descriptor of the channel becomes non-blocking; otherwise it polls. The channel must not be
    /// shared with other queues: use CompletionChannel::wait() for those. Several threads may wait
    /// through copies of one CompletionQueue; each completion goes to one of them.
    /// @param timeout  zero polls once, wait_forever waits
    /// @return how many completions were written; 0 when the time has run out
    /// @throws Error EIO when the queue is broken; EINVAL for an empty span, and when the channel
    ///         reports an event of another queue; EBADF when this was closed, released or moved
    ///         from
    [[nodiscard]] std::size_t wait(std::span<WorkCompletion> completions,
                                   std::chrono::milliseconds timeout) const;

    [[nodiscard]] ibv_cq* native() const noexcept { return handle_.get(); }
    /// @throws Error EBADF when this was closed, released or moved from.
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("CompletionQueue::context", "CompletionQueue");
    }
    /// The caller destroys it from now on. All events that were passed to acknowledge_event() are
    /// acknowledged.
    [[nodiscard]] ibv_cq* release() noexcept;
    /// @throws Error EBUSY while copies, or queue pairs made with it, exist.
    void close() { handle_.close(); }

    friend bool operator==(const CompletionQueue& a, const CompletionQueue& b) noexcept {
        return a.native() == b.native();
    }

  protected:
    using Handle =
        detail::shared_handle<ibv_cq, detail::DestroyCq, Context, detail::CompletionChannelHandle,
                              std::shared_ptr<detail::CqEvents>, std::optional<ProtectionDomain>>;
    explicit CompletionQueue(Handle handle) noexcept : handle_(std::move(handle)) {}
    /// An owner without a queue, which holds the objects that a new queue is created from.
    /// @param channel        may be nullptr
    /// @param parent_domain  may be nullptr
    [[nodiscard]] static Handle::unique parents_of(const Context& context,
                                                   const CompletionChannel* channel,
                                                   const ProtectionDomain* parent_domain);
    /// As borrow().
    [[nodiscard]] static Handle borrow_handle(ibv_cq* cq);

    Handle handle_;
};

} // namespace rdmabuf
