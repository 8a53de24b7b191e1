// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <span>

#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DestroyCq {
    static constexpr const char* name = "ibv_destroy_cq";
    static int call(ibv_cq* cq) noexcept;
};
} // namespace detail

struct CompletionQueueOptions {
    /// Completions it must hold at once; the device may round up. A queue that overruns is lost.
    unsigned depth = 256;
    /// Where to announce completions; nullptr for a queue that is only polled.
    const CompletionChannel* channel = nullptr;
    /// Which interrupt of the device announces them, from 0 to num_comp_vectors - 1.
    int vector = 0;
};

/// Where finished work is reported. Copies share it; it holds its Context and CompletionChannel.
/// ibv_create_cq(3).
class RDMABUF_EXPORT CompletionQueue {
  public:
    /// @throws Error EINVAL for a depth of 0, above the device's max_cqe, or a vector it does not
    /// have;
    ///         ENOMEM.
    explicit CompletionQueue(const Context& context, const CompletionQueueOptions& options = {});

    /// Takes over a completion queue made elsewhere on @p context.
    [[nodiscard]] static CompletionQueue adopt(const Context& context, ibv_cq* cq);
    /// Uses one that somebody else destroys, after every queue pair made with this one is gone.
    [[nodiscard]] static CompletionQueue borrow(ibv_cq* cq);

    /// Takes up to completions.size() completions, oldest first. ibv_poll_cq(3).
    /// @return how many were written; negative when the queue is broken (it overran)
    [[nodiscard, gnu::always_inline]] int poll(
        std::span<WorkCompletion> completions) const noexcept {
        return ibv_poll_cq(handle_.get(), static_cast<int>(completions.size()), completions.data());
    }
    /// Takes one completion. @return 1, 0 or negative, as for a span.
    [[nodiscard, gnu::always_inline]] int poll(WorkCompletion& completion) const noexcept {
        return ibv_poll_cq(handle_.get(), 1, &completion);
    }

    /// Asks for one event on the channel at the next completion. Completions that came before do
    /// not count, so poll once more before sleeping. ibv_req_notify_cq(3).
    Status request_notification(bool solicited_only = false) const noexcept {
        return Status(ibv_req_notify_cq(handle_.get(), solicited_only ? 1 : 0));
    }

    /// Waits until there is something to poll: asleep when the queue has a channel of its own,
    /// otherwise by polling. The channel must not be shared with other queues: use
    /// CompletionChannel::wait() for those.
    /// @return how many were written; 0 when the time ran out
    /// @throws Error EIO when the queue is broken; EINVAL for an empty span, and when the channel
    /// brings another queue's event
    [[nodiscard]] std::size_t wait(std::span<WorkCompletion> completions,
                                   std::chrono::milliseconds timeout) const;

    [[nodiscard]] ibv_cq* native() const noexcept { return handle_.get(); }
    [[nodiscard]] const Context& context() const noexcept { return handle_.parent<0>(); }
    /// The caller destroys it from now on.
    [[nodiscard]] ibv_cq* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or queue pairs made with it, exist.
    void close() { handle_.close(); }

    friend bool operator==(const CompletionQueue& a, const CompletionQueue& b) noexcept {
        return a.native() == b.native();
    }

  private:
    using Handle =
        detail::shared_handle<ibv_cq, detail::DestroyCq, Context, detail::CompletionChannelHandle>;
    explicit CompletionQueue(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
