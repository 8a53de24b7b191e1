// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf {

int detail::DestroyCq::call(ibv_cq* cq) noexcept {
    return ibv_destroy_cq(cq);
}

/// The threads that wait for one completion queue. Only one of them sleeps on the channel, because
/// an event wakes one thread while there may be completions for several. When that thread returns,
/// the others poll, and one of them sleeps on the channel next.
class detail::CqWaiters {
  public:
    /// The right to sleep on the channel, or nothing when the time has run out or another thread
    /// has given the right up: then the queue must be polled again.
    class Turn {
      public:
        Turn(CqWaiters& waiters, std::chrono::milliseconds timeout) : waiters_(waiters) {
            std::unique_lock lock(waiters_.mutex_);
            if (waiters_.taken_) {
                // Not longer, because the end of a very long wait is not a valid point in time.
                constexpr std::chrono::milliseconds longest = std::chrono::hours(1);
                waiters_.given_up_.wait_for(
                    lock, timeout.count() < 0 ? longest : std::min(timeout, longest));
                return;
            }
            waiters_.taken_ = true;
            owned_ = true;
        }
        ~Turn() {
            if (owned_) {
                const std::scoped_lock lock(waiters_.mutex_);
                waiters_.taken_ = false;
                waiters_.given_up_.notify_all();
            }
        }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        explicit operator bool() const noexcept { return owned_; }

      private:
        CqWaiters& waiters_;
        bool owned_ = false;
    };

  private:
    std::mutex mutex_;
    std::condition_variable given_up_;
    bool taken_ = false;
};

namespace {

using Deleter = detail::HandleDeleter<detail::DestroyCq, Context, detail::CompletionChannelHandle,
                                      std::shared_ptr<detail::CqWaiters>>;

Deleter holding(const Context& context, detail::CompletionChannelHandle channel) {
    return Deleter::holding(context, std::move(channel), std::make_shared<detail::CqWaiters>());
}

std::string explain(const Context& context, const CompletionQueueOptions& options) {
    return "depth " + std::to_string(options.depth) + " of at most " +
           std::to_string(context.attributes().native.orig_attr.max_cqe) + ", vector " +
           std::to_string(options.vector) + " of " +
           std::to_string(context.native()->num_comp_vectors) + " on " + context.device_name();
}

ibv_cq* create(const Context& context, const CompletionQueueOptions& options) {
    constexpr const char* function = "ibv_create_cq";
    ibv_context* const native = detail::native_of(context, function, "Context");
    ibv_comp_channel* const channel =
        options.channel != nullptr
            ? detail::native_of(*options.channel, function, "CompletionChannel")
            : nullptr;
    if (options.depth == 0 ||
        options.depth > static_cast<unsigned>(std::numeric_limits<int>::max())) {
        throw Error(EINVAL, function, explain(context, options));
    }
    errno = 0;
    return detail::check_pointer(
        ibv_create_cq(native, static_cast<int>(options.depth), nullptr, channel, options.vector),
        function, [&](int) { return explain(context, options); });
}

/// Polls, and throws if the queue is broken.
std::size_t poll_checked(ibv_cq* cq, std::span<WorkCompletion> completions) {
    const int count = ibv_poll_cq(cq, static_cast<int>(completions.size()), completions.data());
    detail::check_zero(count < 0 ? EIO : 0, "ibv_poll_cq",
                       "the completion queue is broken; most likely it overran: its depth must "
                       "cover all requests outstanding on its queue pairs");
    return static_cast<std::size_t>(count);
}

/// Sleeps until the channel of @p cq reports an event of it or @p deadline has passed.
/// @return the number of completions that arrived before the event was requested; 0 when the queue
///         must be polled
std::size_t sleep(ibv_cq* cq, std::span<WorkCompletion> completions,
                  const detail::Deadline& deadline) {
    detail::check_zero(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    // A completion that arrived before the request raises no event.
    if (const std::size_t count = poll_checked(cq, completions); count != 0) {
        return count;
    }
    const ibv_cq* const ready = detail::wait_event(cq->channel, deadline.left());
    if (ready != nullptr && ready != cq) {
        throw Error(EINVAL, "ibv_get_cq_event",
                    "the event is of another completion queue on the same channel; with a shared "
                    "channel use CompletionChannel::wait");
    }
    return 0;
}

} // namespace

CompletionQueue::CompletionQueue(const Context& context, const CompletionQueueOptions& options)
    : handle_(Handle::unique(
          create(context, options),
          holding(context, options.channel != nullptr ? options.channel->handle_
                                                      : detail::CompletionChannelHandle()))) {}

CompletionQueue CompletionQueue::adopt(const Context& context, ibv_cq* cq,
                                       const CompletionChannel* channel) {
    return CompletionQueue(Handle(Handle::unique(
        cq, holding(context,
                    channel != nullptr ? channel->handle_ : detail::CompletionChannelHandle()))));
}

CompletionQueue CompletionQueue::borrow(ibv_cq* cq) {
    return CompletionQueue(Handle::borrow(cq, Context::borrow(cq->context), {},
                                          std::make_shared<detail::CqWaiters>()));
}

std::size_t CompletionQueue::wait(std::span<WorkCompletion> completions,
                                  std::chrono::milliseconds timeout) const {
    ibv_cq* const cq = detail::native_of(*this, "CompletionQueue::wait", "CompletionQueue");
    if (completions.empty()) {
        throw Error(EINVAL, "ibv_poll_cq", "there is no room for a completion: the span is empty");
    }
    const detail::Deadline deadline(timeout);
    while (true) {
        if (const std::size_t count = poll_checked(cq, completions); count != 0) {
            return count;
        }
        const std::chrono::milliseconds left = deadline.left();
        if (left.count() == 0) {
            return 0;
        }
        if (cq->channel == nullptr) {
            continue;
        }
        auto& waiters = *handle_.parent<2>("CompletionQueue::wait", "CompletionQueue");
        if (const detail::CqWaiters::Turn turn(waiters, left); turn) {
            if (const std::size_t count = sleep(cq, completions, deadline); count != 0) {
                return count;
            }
        }
    }
}

} // namespace rdmabuf
