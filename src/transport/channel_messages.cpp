// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {
namespace {

/// Returns true if a request that uses the loopback queue pairs is copied to GPU memory now, and
/// false if it is flushed.
bool is_copy(const RequestState& request) noexcept {
    return request.type() == RequestType::receive &&
           static_cast<const ReceiveRequest&>(request).stage == ReceiveRequest::Stage::copying;
}
/// Returns true if a request waits for a copy buffer, in SharedState::copies.
bool needs_buffer(const RequestState& request) noexcept {
    return is_copy(request) && static_cast<const ReceiveRequest&>(request).unexpected != nullptr;
}

} // namespace

bool ChannelState::header_arrived(std::byte* bytes, std::uint32_t received) noexcept {
    if (broken() != 0) [[unlikely]] {
        return false;
    }
    if (received < sizeof(Header)) [[unlikely]] {
        protocol_error("the peer has sent a message without a header");
        return false;
    }
    const auto length = static_cast<std::uint32_t>(received - sizeof(Header));
    Header header;
    std::memcpy(&header, bytes, sizeof header);
    if (!control_.credits_arrived(header)) [[unlikely]] {
        protocol_error("the peer has returned more credits than it had");
        return false;
    }
    if (header.kind != Kind::eager) {
        control_message_arrived(header, {bytes + sizeof header, length});
        return false;
    }
    if (length > eager_.limit() || !control_.eager_credits.has_room(length)) [[unlikely]] {
        protocol_error("the peer has sent more eager messages than it had credits for");
        return false;
    }
    return true;
}

void ChannelState::matched(ReceiveRequest& receive) noexcept {
    rendezvous_receiver_.advertisement_used(receive);
    if (receive.channel == nullptr) {
        adopt(receive);
    }
}

void ChannelState::rts_arrived(const Header& header, std::span<std::byte> body) noexcept {
    control_.window.count_received();
    if (!rendezvous_receiver_.rts_is_valid(body)) {
        protocol_error("the peer has sent an invalid message");
        return;
    }
    ReceiveRequest* const receive = shared_.matcher.take_receive(this, header.value);
    if (receive == nullptr) {
        if (++unexpected_rts_ > depth_) {
            protocol_error("the peer has sent more RTS messages than it may have in flight");
            return;
        }
        RtsBody rts;
        std::memcpy(&rts, body.data(), sizeof rts);
        add_unexpected(header.kind, header.value, body, rts.length);
        return;
    }
    matched(*receive);
    rendezvous_receiver_.rts_matched(*receive, body);
}

void ChannelState::add_unexpected(Kind kind, Tag tag, std::span<std::byte> body,
                                  std::uint64_t length) noexcept {
    UnexpectedMessage* const message =
        UnexpectedMessage::make(shared_.blocks, static_cast<std::uint32_t>(body.size()));
    if (message == nullptr) {
        fail(ENOMEM, "no memory for an unexpected message");
        return;
    }
    message->channel = this;
    message->kind = kind;
    message->tag = tag;
    message->length = length;
    std::copy(body.begin(), body.end(), message->body().begin());
    shared_.matcher.add(*message);
}

void ChannelState::control_message_arrived(const Header& header,
                                           std::span<std::byte> body) noexcept {
    wake();
    bool valid = true;
    switch (header.kind) {
        case Kind::rts:
            rts_arrived(header, body);
            return;
        case Kind::cts:
            valid = rendezvous_sender_.cts_arrived(header.number, body);
            break;
        case Kind::advertisement:
            valid = rendezvous_sender_.advertisement_arrived(header.value, body);
            break;
        case Kind::fin:
            data_arrived(header.number, 0, header.rails, &header.value, 0);
            return;
        case Kind::nack:
            valid = rendezvous_sender_.end_arrived(header.number, EMSGSIZE);
            break;
        case Kind::rget_done:
            valid = rendezvous_sender_.end_arrived(header.number, 0);
            break;
        case Kind::notify:
            notification_arrived(header, body);
            return;
        case Kind::credit:
            break;
        case Kind::cancel:
            rendezvous_sender_.cancel_arrived(header.number);
            break;
        case Kind::cancelled:
            if (ReceiveRequest* const receive =
                    rendezvous_receiver_.cancelled_arrived(header.number);
                receive == nullptr) {
                valid = false;
            } else {
                shared_.matcher.remove(*receive);
                rendezvous_receiver_.advertisement_used(*receive);
                shared_.complete(*receive, ECANCELED);
            }
            break;
        case Kind::rail_down:
            valid = recovery_.down_arrived(header.rails, header.value);
            break;
        case Kind::range_repeated: {
            const RepeatedRails rails = RepeatedRails::decode(header.rails);
            if (recovery_.peer_may_repeat(rails.rail)) {
                data_arrived(header.number, rails.rail, rails.rails, nullptr, header.value);
                return;
            }
            valid = false;
            break;
        }
        case Kind::rail_recovered:
            valid = recovery_.recovered_arrived(header.rails);
            break;
        case Kind::rail_replaced:
            valid = probation_.replaced_arrived(*this, header.rails, body);
            break;
        case Kind::rail_connected:
            valid = probation_.connected_arrived(header.rails);
            break;
        case Kind::close:
            peer_closed();
            return;
        default:
            valid = false;
            break;
    }
    if (!valid) {
        protocol_error("the peer has sent an invalid message");
    }
}

void ChannelState::notification_arrived(const Header& header,
                                        std::span<const std::byte> body) noexcept {
    const auto size = static_cast<std::uint32_t>(body.size());
    if (size > max_notification || !control_.notification_credits.arrived(size)) {
        protocol_error("the peer has sent more notifications than it had credits for");
        return;
    }
    void* const memory = shared_.blocks.take(sizeof(Notification) + size);
    if (memory == nullptr) {
        fail(ENOMEM, "no memory for a notification");
        return;
    }
    auto* const notification = ::new (memory) Notification;
    notification->size = size;
    notification->fences = NotificationFences::decode(header.value);
    one_sided_.notification_arrived(notification->fences.number);
    std::copy(body.begin(), body.end(), notification->bytes());
    notifications_.push_back(notification);
}

void ChannelState::immediate_arrived(std::size_t rail, std::uint32_t value,
                                     std::uint32_t written) noexcept {
    rails_[rail].heard = true;
    // A failed channel ignores the data. There is one exception: if the channel has failed because
    // the peer has closed it, writes on the other queue pairs may complete after the close message
    // on the first queue pair. Such writes are still processed.
    if (broken() != 0 && (!peer_closed_ || ended_)) {
        return;
    }
    if (rail != 0 && !recovery_.immediate_arrived(rail)) {
        return;
    }
    wake();
    const Immediate immediate = Immediate::decode(value);
    if (immediate.fence) {
        if (rail == 0) {
            protocol_error("the peer has sent a fence by the first queue pair");
            return;
        }
        one_sided_.fence_arrived(rail, immediate.request);
    } else {
        data_arrived(immediate.request, rail, immediate.rails, nullptr, written);
    }
}

void ChannelState::data_arrived(std::uint32_t request, std::size_t rail, std::uint32_t rails,
                                const std::uint64_t* length, std::uint64_t written) noexcept {
    bool valid = true;
    ReceiveRequest* const receive =
        rendezvous_receiver_.data_arrived(request, rail, rails, length, written, valid);
    if (!valid) {
        protocol_error("the peer has written to a receive that does not wait for data");
    } else if (receive != nullptr) {
        finish_receive(*receive);
    }
}

void ChannelState::finish_receive(ReceiveRequest& receive) noexcept {
    if (receive.bytes == 0 || !receive.buffer.memory->flush_on_receive) {
        shared_.complete(receive);
        return;
    }
    receive.stage = ReceiveRequest::Stage::flushing;
    queue_loopback(receive);
    start_loopback();
}

int ChannelState::post_loopback(RequestState& request) noexcept {
    if (!is_copy(request)) {
        return loopback_.flush(request, rails_.devices());
    }
    auto& receive = static_cast<ReceiveRequest&>(request);
    return loopback_.copy(receive,
                          shared_.pool.receive_buffer(receive.bounce_buffer) + sizeof(Header));
}

void ChannelState::queue_loopback(RequestState& request) noexcept {
    request.queued = true;
    if (needs_buffer(request)) {
        shared_.copies.push_back(&request);
        give_copy_buffers();
        return;
    }
    if (!is_copy(request)) {
        loopback_.query_ports(rails_.devices());
    }
    loopback_queue_.push_back(&request);
}

void ChannelState::give_copy_buffers() noexcept {
    while (!shared_.copies.empty()) {
        const std::uint32_t buffer = shared_.pool.take_copy_buffer();
        if (buffer == BouncePool::none) {
            return;
        }
        auto& receive = static_cast<ReceiveRequest&>(*shared_.copies.pop_front());
        receive.bounce_buffer = buffer;
        std::ranges::copy(receive.unexpected->body(),
                          shared_.pool.receive_buffer(buffer) + sizeof(Header));
        ChannelState& channel = *receive.channel;
        channel.consumed(*std::exchange(receive.unexpected, nullptr));
        channel.loopback_queue_.push_back(&receive);
        channel.wake();
    }
}

void ChannelState::start_loopback() noexcept {
    for (RequestState& request : loopback_queue_) {
        request.flushed = false;
        const int error = post_loopback(request);
        if (error == EAGAIN) {
            return;
        }
        if (error == 0) {
            request.queued = false;
            loopback_queue_.remove(&request);
        } else {
            const bool is_missing = std::ranges::any_of(
                shared_.rails, [](const auto& rail) noexcept { return rail->loopback_error != 0; });
            fail(error == EIO ? EIO : ECONNABORTED,
                 is_missing ? "the loopback queue pair of a device of this side cannot be created"
                 : is_copy(request) ? "a message cannot be copied to device memory"
                                    : "a flush read cannot be posted",
                 &request, error);
            drop_loopback(request, error);
        }
    }
}

void ChannelState::drop_loopback(RequestState& request, int error) noexcept {
    for (const auto& rail : shared_.rails) {
        rail->suspects = 0; // This request may be one of them, and is not repeated.
    }
    request.error = error;
    request.queued = false;
    (needs_buffer(request) ? shared_.copies : loopback_queue_).remove(&request);
    if (request.pending == 0) { // Otherwise its posted work requests end the request.
        loopback_ended(request);
    }
}

void ChannelState::drop_loopback(int error) noexcept {
    // First those without a copy buffer, so that none of them gets a buffer of the others.
    for (RequestList* const queue : {&shared_.copies, &loopback_queue_}) {
        for (RequestState& request : *queue) {
            if (request.channel == this && (request.error != 0 || error != 0)) {
                drop_loopback(request, request.error != 0 ? request.error : error);
            }
        }
    }
}

void ChannelState::loopback_completed(RequestState& request, ibv_wc_status status) noexcept {
    --request.pending;
    wake();
    if (status == IBV_WC_WR_FLUSH_ERR) {
        request.flushed = request.suspect = true; // Repeat it, because another one may have failed.
    } else if (status == IBV_WC_RETRY_EXC_ERR) {
        fail(EHOSTUNREACH, "a device of this side does not deliver to its own port", &request,
             EHOSTUNREACH);
        request.error = EHOSTUNREACH;
    } else if (status != IBV_WC_SUCCESS) {
        fail(ECONNABORTED, "this side's device could not access the memory of a request", &request,
             EFAULT);
        request.error = EFAULT;
    }
    // A queued request has not posted all its work requests. It has not ended, even if no work
    // request is pending now.
    if (request.pending != 0 || request.queued) {
        return;
    }
    if (request.flushed && request.error == 0) {
        // Before the requests that wait: the cause of the failure must be found soon.
        request.queued = true;
        loopback_queue_.push_front(&request);
        return;
    }
    request.suspect = false;
    loopback_ended(request);
}

void ChannelState::loopback_ended(RequestState& request) noexcept {
    if (is_copy(request)) {
        auto& receive = static_cast<ReceiveRequest&>(request);
        if (receive.unexpected != nullptr) {
            consumed(*std::exchange(receive.unexpected, nullptr));
        } else if (shared_.pool.give_back_copy_buffer(receive.bounce_buffer)) {
            give_copy_buffers();
        } else {
            shared_.repost(0, receive.bounce_buffer);
        }
        if (receive.error == 0) {
            finish_receive(receive);
            return;
        }
    }
    shared_.complete(request, request.error);
}

} // namespace rdmabuf::transport::detail
