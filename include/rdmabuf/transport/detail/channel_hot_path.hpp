// SPDX-License-Identifier: BSD-3-Clause
// The member functions of ChannelState that run for each short message. The others are in
// src/transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {

[[gnu::always_inline]] inline int ChannelState::send(const BufferRef& buffer, Tag tag,
                                                     Request& request, void* context) noexcept {
    // A short message that can be sent at once and has no `context` needs no SendRequest object.
    const auto length = static_cast<std::uint32_t>(buffer.length);
    if (eager_.is_short(buffer.length) && buffer.is_inside_host_memory(endpoint_) &&
        context == nullptr && rails_.fast.sends != 0) [[likely]] {
        if (rails_.send_prepared(eager_.short_message().set(control_, rails_.queue().next(), tag,
                                                            buffer.address, length))) [[likely]] {
            control_.credits_sent(Kind::eager);
            control_.eager_credits.sent(length);
            rendezvous_sender_.count_unpaired(control_.window.sent(), tag);
            control_.window.count_sent();
            request = {.channel = number_, .generation = length, .index = Request::completed_index};
            return 0;
        }
    }
    return send_any(buffer.memory, buffer.address, buffer.length, tag, request, context);
}

[[gnu::always_inline]] inline int ChannelState::receive(const BufferRef& buffer, Tag tag, Tag mask,
                                                        Request& request, void* context) noexcept {
    // The most frequent case: a receive of an eager message that has not arrived yet.
    if (buffer.length - 1 < eager_.limit() && buffer.is_inside_host_memory(endpoint_) &&
        buffer.allows(Access::local_write | Access::remote_write) && context == nullptr &&
        in_flight_ < rails_.fast.requests && !shared_.matcher.has_messages()) [[likely]] {
        if (ReceiveRequest* const taken = shared_.receives.take({.in_use = true, .simple = true}))
            [[likely]] {
            ++in_flight_;
            shared_.begin(*taken, this, number_, buffer, request);
            taken->tag = tag;
            taken->mask = mask;
            shared_.matcher.post(*taken, this, tag, mask);
            return 0;
        }
    }
    return receive_any_length(buffer.memory, buffer.address, buffer.length, tag, mask, request,
                              context);
}

// Inlined into EndpointState::poll(), which saves a function call for each short message.
[[gnu::always_inline]] inline bool ChannelState::message_arrived(const WorkCompletion& completion,
                                                                 std::byte* bytes) noexcept {
    heard_ = true;
    // For a message that is shorter than a header, the difference wraps around, so that it is above
    // every limit.
    const auto length = static_cast<std::uint32_t>(completion.byte_len - sizeof(Header));
    if ((length >= rails_.fast.arrivals || !control_.repeats_credits(bytes)) &&
        !header_arrived(bytes, completion.byte_len)) {
        return true;
    }
    control_.window.count_received();
    if (control_.window.due()) [[unlikely]] {
        wake();
    }
    Tag tag = 0;
    std::memcpy(&tag, bytes + offsetof(Header, value), sizeof tag);
    ReceiveRequest* const receive = shared_.matcher.take_receive(this, tag);
    if (receive == nullptr) [[unlikely]] {
        control_.eager_credits.waits(length);
        set_fast_arrivals();
        add_unexpected(Kind::eager, tag, {bytes + sizeof(Header), length}, length);
        return true;
    }
    control_.eager_credits.consumed_at_once(length);
    if (control_.eager_credits.due()) [[unlikely]] {
        wake();
    }
    if (receive->simple && length <= receive->buffer.length) [[likely]] {
        EagerProtocol::deliver_simple(*receive, bytes + sizeof(Header), length);
        return true;
    }
    matched(*receive);
    if (eager_.deliver(*receive, bytes + sizeof(Header), length)) {
        return true;
    }
    wake();
    receive->bounce_buffer = ReceiveReplenisher::number_of(completion.wr_id);
    receive->stage = ReceiveRequest::Stage::copying;
    queue_loopback(*receive);
    start_loopback();
    return false;
}

} // namespace rdmabuf::transport::detail
