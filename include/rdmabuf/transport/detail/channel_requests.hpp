// SPDX-License-Identifier: BSD-3-Clause
// This header defines how ChannelState starts requests.
#pragma once

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {

[[gnu::always_inline]] inline int ChannelState::send(const BufferRef& buffer, Tag tag,
                                                     Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) [[unlikely]] {
        return error;
    }
    if (const int error = check_buffer(buffer); error != 0) [[unlikely]] {
        return error;
    }
    if (full()) [[unlikely]] {
        return EAGAIN;
    }
    // A short message that can be sent at once needs no SendRequest object.
    if (EagerProtocol::is_copied(buffer) && queued_.empty() && eager_.fits(buffer.length) &&
        control_.window.available() && rails_.can_send() && rails_.order_allows_message() &&
        context == nullptr) [[likely]] {
        const CtsRing::Entry* const entry = rendezvous_.advertised(tag);
        if (eager_.send_copied(buffer, tag)) [[likely]] {
            rendezvous_.count_message(tag, entry);
            request = {.channel = number_,
                       .generation = static_cast<std::uint32_t>(buffer.length),
                       .index = Request::completed_index};
            return 0;
        }
    }
    return start_send(buffer, tag, request, context);
}

[[gnu::noinline]] inline int ChannelState::start_send(const BufferRef& buffer, Tag tag,
                                                      Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    wake();
    SendRequest* const taken = begin(shared_.sends.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->tag = tag;
    taken->stage = SendRequest::Stage::queued;
    taken->needs_fin = false;
    taken->cts_bytes = 0;
    queued_.push_back(taken);
    advance();
    return 0;
}

inline void ChannelState::send_queued() noexcept {
    while (!queued_.empty() && rails_.broken() == 0) {
        SendRequest& request = *queued_.front();
        // Remove the request first, because try_send() may complete and free it.
        queued_.remove(&request);
        const EagerProtocol::Sent sent = try_send(request);
        if (sent == EagerProtocol::Sent::no) {
            queued_.push_front(&request);
            return;
        }
        if (sent == EagerProtocol::Sent::completed) {
            shared_.complete(request);
        }
    }
}

inline EagerProtocol::Sent ChannelState::try_send(SendRequest& request) noexcept {
    using Sent = EagerProtocol::Sent;
    if (!rails_.order_allows_message() || !rails_.can_send()) {
        return Sent::no;
    }
    const CtsRing::Entry* const entry = rendezvous_.advertised(request.tag);
    if (request.bytes > eager_.limit() && entry != nullptr && request.bytes <= entry->length) {
        return rendezvous_.write_to(request, *entry) ? Sent::posted : Sent::no;
    }
    if (!control_.window.available()) {
        return Sent::no;
    }
    ibv_sge data{};
    if (eager_.fits(request.bytes)) {
        if (EagerProtocol::is_copied(request.buffer)) {
            if (!eager_.send_copied(request.buffer, request.tag)) {
                return Sent::no;
            }
            rendezvous_.count_message(request.tag, entry);
            return Sent::completed;
        }
        if (EagerProtocol::gather(request.buffer, data)) {
            if (!eager_.send_gathered(request, data)) {
                return Sent::no;
            }
            rendezvous_.count_message(request.tag, entry);
            request.cts_bytes = request.bytes;
            request.stage = SendRequest::Stage::transferring;
            return Sent::posted;
        }
    }
    if (!rendezvous_.request_to_send(request)) {
        return Sent::no;
    }
    rendezvous_.count_message(request.tag, entry);
    return Sent::posted;
}

[[gnu::always_inline]] inline int ChannelState::receive(const BufferRef& buffer, Tag tag, Tag mask,
                                                        Request& request, void* context) noexcept {
    if (broken() != 0 && broken() != ECONNRESET) [[unlikely]] {
        return broken();
    }
    if (const int error = check_buffer(buffer); error != 0) [[unlikely]] {
        return error;
    }
    if (buffer.length > 0 &&
        !has(buffer.memory->access, Access::local_write | Access::remote_write)) [[unlikely]] {
        return EACCES;
    }
    if (full()) [[unlikely]] {
        return EAGAIN;
    }
    UnexpectedMessage* const message = shared_.matcher.find_message(this, tag, mask);
    // After the peer has closed the channel, a receive can only be started if an eager message for
    // it has already arrived.
    if (broken() != 0 && (message == nullptr || message->kind != Kind::eager)) [[unlikely]] {
        return broken();
    }
    ReceiveRequest* const taken = begin(shared_.receives.take(), buffer, request, context);
    if (taken == nullptr) [[unlikely]] {
        return ENOMEM;
    }
    taken->start(tag, mask);
    if (message != nullptr) {
        shared_.matcher.remove(*message);
        receive_unexpected(*taken, *message);
        return 0;
    }
    if (buffer.length > eager_.limit() && mask == full_mask) {
        rendezvous_.advertise(*taken);
    }
    shared_.matcher.post(*taken);
    return 0;
}

inline void ChannelState::receive_unexpected(ReceiveRequest& receive,
                                             UnexpectedMessage& message) noexcept {
    receive.tag = message.tag;
    wake();
    if (message.kind == Kind::rts) {
        --unexpected_rts_;
        rendezvous_.rts_matched(receive, message.body());
        UnexpectedMessage::destroy(&message);
        advance();
        return;
    }
    control_.eager_credits.consumed(message.stored);
    if (eager_.deliver(receive, message.body().data(), message.length)) {
        UnexpectedMessage::destroy(&message);
        return;
    }
    receive.unexpected = &message;
    receive.stage = ReceiveRequest::Stage::copying;
    copies_.push_back(&receive);
    start_copies();
}

inline int ChannelState::start_one_sided(OneSidedRequest& request, const RemoteMemory& remote,
                                         std::uint64_t offset) noexcept {
    const bool is_read = request.operation == OneSidedRequest::Operation::get;
    if (request.bytes > 0) {
        RdmaTransfer* const transfer = shared_.transfers.take();
        if (transfer == nullptr) {
            return ENOMEM;
        }
        transfer->is_read = is_read;
        transfer->has_immediate = transfer->has_fin = transfer->keeps_order = false;
        transfer->immediate = {};
        transfer->request = &request;
        transfer->memory = request.buffer.memory;
        transfer->local_address = request.buffer.device_address();
        transfer->remote_address = remote.address() + offset;
        const RemoteTable& table = remote.table();
        transfer->remote.chunks = table.chunks;
        transfer->remote.rails = table.rails;
        for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
            std::copy_n(table.regions[rail].begin(), table.chunks,
                        transfer->remote.regions[rail].begin());
        }
        request.transfer = transfer;
    }
    one_sided_.start(request);
    advance();
    wake();
    return 0;
}

inline int ChannelState::put(const BufferRef& buffer, const RemoteMemory& remote,
                             std::uint64_t offset, std::span<const std::byte> notification,
                             bool notifies, Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    if (const int error = check_buffer(buffer); error != 0) {
        return error;
    }
    if (const int error = check_remote(remote, offset, buffer.length, Access::remote_write);
        error != 0) {
        return error;
    }
    if (notification.size() > max_notification) {
        return EMSGSIZE;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = OneSidedRequest::Operation::put;
    taken->list = {};
    set_notification(*taken, notification, notifies);
    if (!notifies && buffer.length > 0 && buffer.length <= BouncePool::copy_limit) {
        // A short write is posted without an RdmaTransfer.
        const RemoteRegion* const region =
            rdmabuf::detail::find_chunk(remote.table().rail(0), remote.address() + offset);
        ibv_sge data{};
        if (EagerProtocol::gather(buffer, data) && region != nullptr &&
            buffer.length <= region->length - (remote.address() + offset - region->address)) {
            const bool inline_data = buffer.memory->host && rails_.fits_inline(buffer.length);
            if (inline_data) {
                data.addr = buffer.address;
            }
            if (one_sided_.put_now(*taken, data,
                                   {.address = remote.address() + offset, .rkey = region->rkey},
                                   inline_data)) {
                return 0;
            }
        }
    }
    if (const int error = start_one_sided(*taken, remote, offset); error != 0) {
        give_back(*taken);
        return error;
    }
    return 0;
}

inline int ChannelState::get(const BufferRef& buffer, const RemoteMemory& remote,
                             std::uint64_t offset, Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    if (const int error = check_buffer(buffer); error != 0) {
        return error;
    }
    if (const int error = check_remote(remote, offset, buffer.length, Access::remote_read);
        error != 0) {
        return error;
    }
    if (buffer.length > 0 && !has(buffer.memory->access, Access::local_write)) {
        return EACCES;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = OneSidedRequest::Operation::get;
    taken->list = {};
    taken->notifies = false;
    if (const int error = start_one_sided(*taken, remote, offset); error != 0) {
        give_back(*taken);
        return error;
    }
    return 0;
}

inline int ChannelState::transfer_list(std::span<const TransferEntry> entries, bool is_read,
                                       std::span<const std::byte> notification, bool notifies,
                                       Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    std::uint64_t bytes = 0;
    for (const TransferEntry& entry : entries) {
        if (entry.memory == nullptr || entry.remote == nullptr) {
            return EINVAL;
        }
        const BufferRef local = {.memory = entry.memory->state(),
                                 .address = reinterpret_cast<std::uintptr_t>(entry.address),
                                 .length = entry.length};
        if (const int error = check_buffer(local); error != 0) {
            return error;
        }
        if (const int error = check_remote(*entry.remote, entry.offset, entry.length,
                                           is_read ? Access::remote_read : Access::remote_write);
            error != 0) {
            return error;
        }
        if (is_read && entry.length > 0 && !has(local.memory->access, Access::local_write)) {
            return EACCES;
        }
        bytes += entry.length;
    }
    if (notification.size() > max_notification) {
        return EMSGSIZE;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), {}, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = is_read ? OneSidedRequest::Operation::get : OneSidedRequest::Operation::put;
    taken->bytes = bytes;
    taken->list = entries;
    taken->operand = 0;
    set_notification(*taken, notification, notifies);
    one_sided_.start(*taken);
    wake();
    return 0;
}

inline int ChannelState::atomic(OneSidedRequest::Operation operation, const BufferRef& result,
                                const RemoteMemory& remote, std::uint64_t offset,
                                std::uint64_t operand, std::uint64_t compare, Request& request,
                                void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    if (const int error = check_buffer(result); error != 0) {
        return error;
    }
    if (const int error =
            check_remote(remote, offset, sizeof(std::uint64_t), Access::remote_atomic);
        error != 0) {
        return error;
    }
    ibv_sge data{};
    const RemoteRegion* const region =
        rdmabuf::detail::find_chunk(remote.table().rail(0), remote.address() + offset);
    if ((remote.address() + offset) % sizeof(std::uint64_t) != 0 || region == nullptr ||
        !EagerProtocol::gather(result, data)) {
        return EINVAL;
    }
    if (!has(result.memory->access, Access::local_write)) {
        return EACCES;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), result, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = operation;
    taken->list = {};
    taken->notifies = false;
    taken->operand = operand;
    taken->compare = compare;
    taken->remote = {.address = remote.address() + offset, .rkey = region->rkey};
    one_sided_.start(*taken);
    wake();
    return 0;
}

inline int ChannelState::flush(const BufferRef& buffer, Request& request, void* context) noexcept {
    // A flush uses only the loopback queue pairs. Therefore received data can still be flushed
    // after the peer has closed the channel.
    const int closed = broken();
    if (closed != 0 && closed != ECONNRESET) {
        return closed;
    }
    if (const int error = check_buffer(buffer); error != 0) {
        return error;
    }
    if (!buffer.is_host() && !has(buffer.memory->access, Access::remote_read)) {
        return EACCES;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = OneSidedRequest::Operation::flush;
    taken->list = {};
    taken->notifies = false;
    if (closed == 0) {
        one_sided_.start(*taken);
        wake();
        return 0;
    }
    if (taken->buffer.is_host()) {
        shared_.complete(*taken);
        return 0;
    }
    const int failure = loopback_.flush(*taken, rails_.size());
    if (failure != 0 && taken->pending == 0) {
        give_back(*taken);
        return failure;
    }
    taken->error = failure;
    return 0;
}

inline int ChannelState::fence(Request& request, void* context) noexcept {
    if (const int error = broken(); error != 0) {
        return error;
    }
    if (full()) {
        return EAGAIN;
    }
    OneSidedRequest* const taken = begin(shared_.one_sided.take(), {}, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = OneSidedRequest::Operation::fence;
    taken->list = {};
    taken->notifies = false;
    one_sided_.start(*taken);
    wake();
    return 0;
}

inline int ChannelState::take_notification(std::span<std::byte> bytes) noexcept {
    if (notifications_ == nullptr || !one_sided_.fences_arrived(notifications_->fences)) {
        return -EAGAIN;
    }
    if (notifications_->size > bytes.size()) {
        return -EMSGSIZE;
    }
    const std::uint32_t size = notifications_->size;
    std::copy_n(notifications_->bytes(), size, bytes.begin());
    drop_notification();
    wake();
    control_.notification_credits.consumed(size);
    return static_cast<int>(size);
}

inline int ChannelState::cancel(ReceiveRequest& receive) noexcept {
    if (receive.stage != ReceiveRequest::Stage::posted || receive.cancel_requested) {
        return EALREADY;
    }
    if (receive.advertised) {
        rendezvous_.cancel(receive);
        advance();
        wake();
        return 0;
    }
    shared_.matcher.remove(receive);
    shared_.complete(receive, ECANCELED);
    return 0;
}

} // namespace rdmabuf::transport::detail
