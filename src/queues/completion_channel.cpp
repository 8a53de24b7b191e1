// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <rdmabuf/completion_channel.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "queues/cq_events.hpp"

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
          detail::CompletionChannelHandle::unique::deleter_type::holding(context))) {
    detail::make_nonblocking(native()->fd);
}

ibv_cq* CompletionChannel::wait(std::chrono::milliseconds timeout) const {
    ibv_cq* const cq = detail::wait_event(
        detail::native_of(*this, "CompletionChannel::wait", "CompletionChannel"), timeout);
    if (cq != nullptr) {
        // The event is acknowledged at once, because ibv_destroy_cq(3) waits until all events are
        // acknowledged.
        ibv_ack_cq_events(cq, 1);
    }
    return cq;
}

ibv_cq* CompletionChannel::get_event() const {
    return detail::take_event(
        detail::native_of(*this, "CompletionChannel::get_event", "CompletionChannel"));
}

int CompletionChannel::fd() const {
    return detail::native_of(*this, "CompletionChannel::fd", "CompletionChannel")->fd;
}

} // namespace rdmabuf
