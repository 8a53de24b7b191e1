// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/wait.hpp"

namespace rdmabuf {

int detail::DestroyCompChannel::call(ibv_comp_channel* channel) noexcept {
    return ibv_destroy_comp_channel(channel);
}

namespace {

ibv_comp_channel* create(const Context& context) {
    errno = 0;
    return detail::check_pointer(ibv_create_comp_channel(context.native()),
                                 "ibv_create_comp_channel");
}

} // namespace

CompletionChannel::CompletionChannel(const Context& context)
    : handle_(detail::CompletionChannelHandle::unique(
          create(context),
          detail::CompletionChannelHandle::unique::deleter_type::holding(context))) {}

ibv_cq* detail::wait_event(ibv_comp_channel* channel, std::chrono::milliseconds timeout) {
    if (!wait_readable(channel->fd, timeout)) {
        return nullptr;
    }
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    errno = 0;
    check_zero(ibv_get_cq_event(channel, &cq, &cq_context), "ibv_get_cq_event");
    // Acknowledged at once: ibv_destroy_cq waits for it.
    ibv_ack_cq_events(cq, 1);
    return cq;
}

} // namespace rdmabuf
