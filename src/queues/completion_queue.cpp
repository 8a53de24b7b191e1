// SPDX-License-Identifier: BSD-3-Clause
#include <limits>
#include <string>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/deadline.hpp"

namespace rdmabuf {

int detail::DestroyCq::call(ibv_cq* cq) noexcept {
    return ibv_destroy_cq(cq);
}

namespace {

using Deleter = detail::HandleDeleter<detail::DestroyCq, Context, detail::CompletionChannelHandle>;

std::string explain(const Context& context, const CompletionQueueOptions& options) {
    return "depth " + std::to_string(options.depth) + " of at most " +
           std::to_string(context.attributes().native.orig_attr.max_cqe) + ", vector " +
           std::to_string(options.vector) + " of " +
           std::to_string(context.native()->num_comp_vectors) + " on " + context.device_name();
}

ibv_cq* create(const Context& context, const CompletionQueueOptions& options) {
    if (options.depth == 0 ||
        options.depth > static_cast<unsigned>(std::numeric_limits<int>::max())) {
        throw Error(EINVAL, "ibv_create_cq", explain(context, options));
    }
    errno = 0;
    return detail::check_pointer(
        ibv_create_cq(context.native(), static_cast<int>(options.depth), nullptr,
                      options.channel != nullptr ? options.channel->native() : nullptr,
                      options.vector),
        "ibv_create_cq", [&](int) { return explain(context, options); });
}

} // namespace

CompletionQueue::CompletionQueue(const Context& context, const CompletionQueueOptions& options)
    : handle_(Handle::unique(create(context, options),
                             Deleter::holding(context, options.channel != nullptr
                                                           ? options.channel->handle_
                                                           : detail::CompletionChannelHandle()))) {}

CompletionQueue CompletionQueue::adopt(const Context& context, ibv_cq* cq) {
    return CompletionQueue(Handle(Handle::unique(cq, Deleter::holding(context, {}))));
}

CompletionQueue CompletionQueue::borrow(ibv_cq* cq) {
    return CompletionQueue(Handle::borrow(cq, Context::borrow(cq->context), {}));
}

std::size_t CompletionQueue::wait(std::span<WorkCompletion> completions,
                                  std::chrono::milliseconds timeout) const {
    if (completions.empty()) {
        throw Error(EINVAL, "ibv_poll_cq", "there is no room for a completion: the span is empty");
    }
    const detail::Deadline deadline(timeout);
    const detail::CompletionChannelHandle& channel = handle_.parent<1>();
    bool armed = false;
    while (true) {
        const int count = poll(completions);
        if (count > 0) {
            return static_cast<std::size_t>(count);
        }
        detail::check_zero(count < 0 ? EIO : 0, "ibv_poll_cq",
                           "the completion queue is broken; most likely it overran: its depth must "
                           "cover all requests outstanding on its queue pairs");
        const std::chrono::milliseconds left = deadline.left();
        if (left.count() == 0) {
            return 0;
        }
        if (!channel) {
            continue;
        }
        if (!armed) {
            // Then poll once more: what came before the request raises no event.
            request_notification().throw_if_failed("ibv_req_notify_cq");
            armed = true;
            continue;
        }
        const ibv_cq* const ready = detail::wait_event(channel.get(), left);
        if (ready != nullptr && ready != native()) {
            throw Error(
                EINVAL, "ibv_get_cq_event",
                "the event is of another completion queue on the same channel; with a shared "
                "channel use CompletionChannel::wait");
        }
        armed = ready == nullptr;
    }
}

} // namespace rdmabuf
