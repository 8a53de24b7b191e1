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

/// Reports events of completion queues to threads that sleep. Several queues may use one channel.
/// Queues created with a channel keep it alive. ibv_create_comp_channel(3).
///
/// wait() sleeps until there is an event. A program with its own event loop adds fd() to epoll(7)
/// instead, and takes the events with get_event():
///
///     while (ibv_cq* ready = channel.get_event()) {
///         Connection& connection = *static_cast<Connection*>(ready->cq_context);
///         connection.cq.acknowledge_event();
///         connection.cq.request_notification();  // arm before polling
///         while (connection.cq.poll(completion) > 0) { ... }
///     }
///     epoll_wait(...);
///
/// A completion that arrives before request_notification() raises no event, so the program polls
/// the queue until it is empty after each request, also after the first.
class RDMABUF_EXPORT CompletionChannel {
  public:
    /// The file descriptor of the channel is non-blocking.
    /// @throws Error EMFILE at the process's limit of descriptors.
    explicit CompletionChannel(const Context& context);
    CompletionChannel(CompletionChannel&&) noexcept = default;
    CompletionChannel& operator=(CompletionChannel&&) noexcept = default;
    CompletionChannel(const CompletionChannel&) = delete;
    CompletionChannel& operator=(const CompletionChannel&) = delete;
    ~CompletionChannel() = default;

    /// Waits for an event of any queue of this channel and acknowledges it. A queue sends one event
    /// for each CompletionQueue::request_notification(). Several threads may wait; each event goes
    /// to one of them.
    /// @param timeout  zero polls, wait_forever waits
    /// @return the queue that has completions, nullptr when the time has run out
    /// @throws Error EBADF when the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* wait(std::chrono::milliseconds timeout) const;

    /// Takes the next event without waiting, and does not acknowledge it: the program calls
    /// CompletionQueue::acknowledge_event() of the returned queue. Destroying a queue blocks while
    /// an event of it is not acknowledged (ibv_destroy_cq(3)), so the returned queue exists until
    /// then.
    /// @return the queue that has completions, nullptr when there is no event
    /// @throws Error EBADF when the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* get_event() const;

    /// The file descriptor, which is readable when there is an event: for epoll(7). It is
    /// non-blocking. The channel owns it.
    /// @throws Error EBADF when the channel was closed, released or moved from
    [[nodiscard]] int fd() const;

    [[nodiscard]] ibv_comp_channel* native() const noexcept { return handle_.get(); }
    /// The caller destroys the channel from now on.
    [[nodiscard]] ibv_comp_channel* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while completion queues use it.
    void close() { handle_.close(); }

  private:
    friend class CompletionQueue;
    detail::CompletionChannelHandle handle_;
};

} // namespace rdmabuf
