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
/// Waits for one event and acknowledges it; nullptr when the time has run out. Makes the descriptor
/// of @p channel non-blocking.
[[nodiscard]] RDMABUF_EXPORT ibv_cq* wait_event(ibv_comp_channel* channel,
                                                std::chrono::milliseconds timeout);
} // namespace detail

/// Reports events of completion queues to threads that sleep. Queues created with a channel keep it
/// alive. ibv_create_comp_channel(3).
class RDMABUF_EXPORT CompletionChannel {
  public:
    /// @throws Error EMFILE at the process's limit of descriptors.
    explicit CompletionChannel(const Context& context);
    CompletionChannel(CompletionChannel&&) noexcept = default;
    CompletionChannel& operator=(CompletionChannel&&) noexcept = default;
    CompletionChannel(const CompletionChannel&) = delete;
    CompletionChannel& operator=(const CompletionChannel&) = delete;
    ~CompletionChannel() = default;

    /// Waits for an event of any queue of this channel and acknowledges it. A queue sends one event
    /// for each CompletionQueue::request_notification(). Several threads may wait; each event goes
    /// to one of them. Makes the descriptor of the channel non-blocking.
    /// @param timeout  zero polls, wait_forever waits
    /// @return the queue that has completions, nullptr when the time has run out
    /// @throws Error EBADF when the channel was closed, released or moved from
    [[nodiscard]] ibv_cq* wait(std::chrono::milliseconds timeout) const;

    /// The descriptor, which is readable when there is an event: for epoll(7). The channel owns it.
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
