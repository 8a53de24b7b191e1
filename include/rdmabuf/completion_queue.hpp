// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf {

/// A completion, which is the unchanged ibv_wc of the provider. wr_id, status, vendor_err and
/// qp_num are always valid. The other members are only valid if status is IBV_WC_SUCCESS; imm_data
/// is only valid if wc_flags also has IBV_WC_WITH_IMM, and is in network byte order: immediate()
/// converts it. See ibv_poll_cq(3).
using WorkCompletion = ibv_wc;

[[nodiscard]] inline bool succeeded(const WorkCompletion& completion) noexcept {
    return completion.status == IBV_WC_SUCCESS;
}

/// Returns the immediate data of @p completion in host byte order: the value that the sender
/// passed, for example to QueuePair::post_send_imm(). The result is valid only if the completion
/// succeeded and wc_flags has IBV_WC_WITH_IMM. See CompletionBatch::immediate() for a batch.
[[nodiscard]] inline std::uint32_t immediate(const WorkCompletion& completion) noexcept {
    return be32toh(completion.imm_data);
}

/// Returns the usual cause of a failed completion with @p status. The text is empty for success,
/// and for a status whose name is sufficient. See ibv_poll_cq(3), and section 11.6.2 of the
/// InfiniBand specification.
[[nodiscard]] RDMABUF_EXPORT const char* completion_hint(ibv_wc_status status) noexcept;

/// Returns a text such as "wr_id 7 on QP 17: remote access error (vendor error 0x88): hint". The
/// function allocates memory, so do not call it on the data path.
[[nodiscard]] RDMABUF_EXPORT std::string describe(const WorkCompletion& completion);

namespace detail {
struct RDMABUF_EXPORT DestroyCompChannel {
    static constexpr const char* name = "ibv_destroy_comp_channel";
    static int call(ibv_comp_channel* channel) noexcept;
};
using CompletionChannelHandle = shared_handle<ibv_comp_channel, DestroyCompChannel, Context>;
} // namespace detail

/// A completion event channel, on which a thread can sleep until a completion queue has
/// completions. Several queues may use one channel. A queue created with a channel keeps the
/// channel alive. See ibv_create_comp_channel(3).
///
/// wait() sleeps until an event arrives. A program with its own event loop adds fd() to epoll(7)
/// instead, and reads the events with get_event():
///
///     while (ibv_cq* ready = channel.get_event()) {
///         Connection& connection = *static_cast<Connection*>(ready->cq_context);
///         connection.cq.acknowledge_event();
///         connection.cq.request_notification();  // arm before polling
///         while (connection.cq.poll(completion) > 0) { ... }
///     }
///     epoll_wait(...);
///
/// A completion that arrives before request_notification() raises no event. Therefore the program
/// must poll the queue until it is empty after each call of request_notification(), including the
/// first call.
class RDMABUF_EXPORT CompletionChannel {
  public:
    /// Creates a completion channel with a non-blocking file descriptor.
    /// @throws Error EMFILE if the process has reached its limit of descriptors; EBADF if
    ///         @p context was closed, released or moved from
    explicit CompletionChannel(const Context& context);
    CompletionChannel(CompletionChannel&&) noexcept = default;
    CompletionChannel& operator=(CompletionChannel&&) noexcept = default;
    CompletionChannel(const CompletionChannel&) = delete;
    CompletionChannel& operator=(const CompletionChannel&) = delete;
    ~CompletionChannel() = default;

    /// Waits for the next event of the queues of this channel and acknowledges the event. A queue
    /// raises at most one event for each CompletionQueue::request_notification(). Several threads
    /// may wait; each event is returned to one thread.
    /// @param timeout  0 to return at once, wait_forever for no limit
    /// @return the queue that has completions; nullptr if the timeout has expired
    /// @throws Error EBADF if the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* wait(std::chrono::milliseconds timeout) const;

    /// Reads the next event and does not acknowledge the event. The program must call
    /// CompletionQueue::acknowledge_event() of the returned queue. Destroying a queue blocks until
    /// all events of the queue are acknowledged (ibv_destroy_cq(3)), so the returned queue exists
    /// until the program acknowledges the event.
    ///
    /// The function calls ibv_get_cq_event(3) once. The constructor makes fd() non-blocking, so the
    /// function does not wait. If the program clears O_NONBLOCK of fd() or of a duplicate of fd(),
    /// the function waits for the next event without a time limit. A loop that calls get_event()
    /// until it returns nullptr then blocks in its last call. Call wait() to wait with a timeout. A
    /// loop that also arms the queues does not end while completions arrive continuously, so a
    /// thread that has other work must limit the number of iterations.
    /// @return the queue that has completions; nullptr if no event is pending, or if a signal
    ///         handler interrupted the call
    /// @throws Error EBADF if the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* get_event() const;

    /// Returns the file descriptor for epoll(7), which is readable when an event is pending. The
    /// descriptor is non-blocking. The channel owns the descriptor.
    /// @throws Error EBADF if the channel was closed, released or moved from
    [[nodiscard]] int fd() const;

    [[nodiscard]] ibv_comp_channel* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must destroy the returned channel.
    [[nodiscard]] ibv_comp_channel* release() noexcept { return handle_.release(); }
    /// Destroys the channel.
    /// @throws Error EBUSY if completion queues still use the channel; the channel then stays open
    void close() { handle_.close(); }

  private:
    friend class CompletionQueue;
    detail::CompletionChannelHandle handle_;
};

namespace detail {
class CqEvents;
struct RDMABUF_EXPORT DestroyCq {
    static constexpr const char* name = "ibv_destroy_cq";
    /// Acknowledges the events that acknowledge_event() and wait() have counted, and then destroys
    /// the queue. ibv_destroy_cq(3) would otherwise block, because it waits until all events are
    /// acknowledged.
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
    /// The queue keeps the ibv_comp_channel open; the CompletionChannel object need not outlive the
    /// constructor of the queue.
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
/// is undefined after close(), release() or a move; builds with assertions abort. In this case, the
/// functions below that are not noexcept throw Error EBADF, except close().
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
    CallStatus request_notification(bool solicited_only = false) const noexcept {
        assert(handle_ && "the CompletionQueue was closed, released or moved from");
        return {Status(ibv_req_notify_cq(handle_.get(), solicited_only ? 1 : 0)),
                "ibv_req_notify_cq"};
    }

    /// Acknowledges one event that CompletionChannel::get_event() has returned for this queue. The
    /// program must call this function once for each such event. ibv_ack_cq_events(3) locks a
    /// mutex, so this function calls it only for every 64th event. release() and the destruction of
    /// the queue acknowledge the remaining events. For a borrowed queue, each event is acknowledged
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
    /// Waits for the oldest completion, as wait() does.
    /// @return the completion; std::nullopt if the timeout has expired
    [[nodiscard]] std::optional<WorkCompletion> wait_one(std::chrono::milliseconds timeout) const {
        WorkCompletion completion{};
        return wait({&completion, 1}, timeout) == 1 ? std::optional(completion) : std::nullopt;
    }

    [[nodiscard]] ibv_cq* native() const noexcept { return handle_.get(); }
    /// Returns the context on which the queue was created.
    /// @throws Error EBADF if this object was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("CompletionQueue::context", "CompletionQueue");
    }
    /// Transfers ownership to the caller, which must destroy the returned queue. If the queue was
    /// borrowed, only its owner may destroy it. Acknowledges the events that acknowledge_event()
    /// and wait() have counted.
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
