// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf {

int detail::DestroyCompChannel::call(ibv_comp_channel* channel) noexcept {
    return ibv_destroy_comp_channel(channel);
}

namespace {

ibv_comp_channel* create(const Context& context) {
    constexpr const char* function = "ibv_create_comp_channel";
    ibv_context* const native = detail::native_of(context, function, "Context");
    errno = 0;
    return detail::check_pointer(ibv_create_comp_channel(native), function);
}

} // namespace

CompletionChannel::CompletionChannel(const Context& context)
    : handle_(detail::CompletionChannelHandle::unique(
          create(context),
          detail::CompletionChannelHandle::unique::deleter_type::holding(context))) {}

ibv_cq* detail::wait_event(ibv_comp_channel* channel, std::chrono::milliseconds timeout) {
    const Deadline deadline(timeout);
    make_nonblocking(channel->fd);
    while (wait_readable(channel->fd, deadline.left())) {
        ibv_cq* cq = nullptr;
        void* cq_context = nullptr;
        errno = 0;
        if (ibv_get_cq_event(channel, &cq, &cq_context) == 0) {
            // The event is acknowledged here, because ibv_destroy_cq(3) waits for that.
            ibv_ack_cq_events(cq, 1);
            return cq;
        }
        // EAGAIN: another thread has read the event since the descriptor became readable.
        check_zero(errno == EAGAIN || errno == EINTR ? 0 : -1, "ibv_get_cq_event");
    }
    return nullptr;
}

ibv_cq* CompletionChannel::wait(std::chrono::milliseconds timeout) const {
    return detail::wait_event(
        detail::native_of(*this, "CompletionChannel::wait", "CompletionChannel"), timeout);
}

int CompletionChannel::fd() const {
    return detail::native_of(*this, "CompletionChannel::fd", "CompletionChannel")->fd;
}

} // namespace rdmabuf
