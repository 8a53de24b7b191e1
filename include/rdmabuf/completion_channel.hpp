// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <chrono>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>

namespace rdmabuf {

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
    /// raises one event for each CompletionQueue::request_notification(). Several threads may wait;
    /// each event is returned to one thread.
    /// @param timeout  0 to return at once, wait_forever for no limit
    /// @return the queue that has completions; nullptr if the timeout has expired
    /// @throws Error EBADF if the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* wait(std::chrono::milliseconds timeout) const;

    /// Reads the next event and does not acknowledge the event. The program must call
    /// CompletionQueue::acknowledge_event() of the returned queue. Destroying a queue blocks until
    /// all events of the queue are acknowledged (ibv_destroy_cq(3)), so the returned queue exists
    /// until the program acknowledges the event.
    ///
    /// The function calls ibv_get_cq_event(3) once. It does not wait while fd() is non-blocking,
    /// which the constructor sets. If the program clears O_NONBLOCK of fd() or of a duplicate of
    /// fd(), the function waits for the next event without a time limit: a loop
    /// `while (channel.get_event())` then blocks in its last call. Call wait() to wait with a
    /// timeout. Also with a non-blocking descriptor, a loop that arms the queues ends only when no
    /// event is pending. While completions arrive continuously, it does not end, so a thread that
    /// has other work must limit the number of iterations.
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

} // namespace rdmabuf
