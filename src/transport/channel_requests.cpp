// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {

int ChannelState::check_send(const BufferRef& buffer) noexcept {
    if (const int error = refusal(); error != 0) [[unlikely]] {
        return error;
    }
    if (const int error = buffer.check(endpoint_); error != 0) [[unlikely]] {
        return error;
    }
    return full() ? EAGAIN : 0;
}

int ChannelState::send_any(const MemoryState* memory, std::uintptr_t address, std::uint64_t bytes,
                           Tag tag, Request& request, void* context) noexcept {
    const BufferRef buffer = {.memory = memory, .address = address, .length = bytes};
    if (const int error = check_send(buffer); error != 0) [[unlikely]] {
        return error;
    }
    // A message whose data is copied, that can be sent at once and that has no `context` needs no
    // SendRequest object.
    if (EagerProtocol::is_copied(buffer) && context == nullptr &&
        !eager_.uses_advertisements(buffer.length) && send_now(buffer.host_bytes(), tag))
        [[likely]] {
        set_fast_sends();
        request = {.channel = number_,
                   .generation = static_cast<std::uint32_t>(buffer.length),
                   .index = Request::completed_index};
        return 0;
    }
    return start_send(buffer, tag, request, context, false);
}

int ChannelState::send_synchronously(const BufferRef& buffer, Tag tag, Request& request,
                                     void* context) noexcept {
    if (const int error = check_send(buffer); error != 0) [[unlikely]] {
        return error;
    }
    return start_send(buffer, tag, request, context, true);
}

int ChannelState::send_copy(std::span<const std::byte> message, Tag tag) noexcept {
    if (const int error = refusal(); error != 0) {
        return error;
    }
    if (message.size() > std::min<std::size_t>(BouncePool::copy_limit, eager_.limit())) {
        return EMSGSIZE;
    }
    if (!send_now(message, tag)) {
        return broken() != 0 ? broken() : EAGAIN;
    }
    return 0;
}

bool ChannelState::send_now(std::span<const std::byte> message, Tag tag) noexcept {
    if (!queued_.empty() || !eager_.fits(message.size()) || !control_.window.available() ||
        !rails_.can_send() || !rails_.order_allows_message()) {
        return false;
    }
    const CtsRing::Entry* const entry = rendezvous_sender_.advertised(tag);
    if (!eager_.send_copied(message, tag)) {
        return false;
    }
    rendezvous_sender_.count_message(tag, entry);
    return true;
}

int ChannelState::start_send(const BufferRef& buffer, Tag tag, Request& request, void* context,
                             bool synchronous) noexcept {
    wake();
    SendRequest* const taken = begin(shared_.sends.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->tag = tag;
    taken->stage = SendRequest::Stage::queued;
    taken->needs_fin = false;
    taken->synchronous = synchronous;
    taken->cts_bytes = 0;
    queued_.push_back(taken);
    rails_.fast.sends = 0;
    advance();
    return 0;
}

void ChannelState::send_queued() noexcept {
    while (!queued_.empty() && rails_.broken() == 0) {
        SendRequest& request = *queued_.front();
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

EagerProtocol::Sent ChannelState::try_send(SendRequest& request) noexcept {
    using Sent = EagerProtocol::Sent;
    if (!rails_.order_allows_message() || !rails_.can_send()) {
        return Sent::no;
    }
    const CtsRing::Entry* const entry = rendezvous_sender_.advertised(request.tag);
    if (eager_.uses_advertisements(request.bytes) && entry != nullptr &&
        request.bytes <= entry->length) {
        return rendezvous_sender_.write_to(request, *entry) ? Sent::posted : Sent::no;
    }
    if (!control_.window.available()) {
        return Sent::no;
    }
    ibv_sge data{};
    if (eager_.fits(request.bytes) && !request.synchronous) {
        if (EagerProtocol::is_copied(request.buffer)) {
            if (!eager_.send_copied(request.buffer.host_bytes(), request.tag)) {
                return Sent::no;
            }
            rendezvous_sender_.count_message(request.tag, entry);
            return Sent::completed;
        }
        if (EagerProtocol::gather(request.buffer, data)) {
            if (!eager_.send_gathered(request, data)) {
                return Sent::no;
            }
            rendezvous_sender_.count_message(request.tag, entry);
            request.cts_bytes = request.bytes;
            request.stage = SendRequest::Stage::transferring;
            return Sent::posted;
        }
    }
    if (!rendezvous_sender_.request_to_send(request)) {
        return Sent::no;
    }
    rendezvous_sender_.count_message(request.tag, entry);
    return Sent::posted;
}

int ChannelState::check_receive(const BufferRef& buffer) noexcept {
    if (broken() == EBADF) [[unlikely]] {
        return EBADF;
    }
    if (const int error = buffer.check_receive(endpoint_); error != 0) [[unlikely]] {
        return error;
    }
    return full() ? EAGAIN : 0;
}

int ChannelState::receive_any_length(const MemoryState* memory, std::uintptr_t address,
                                     std::uint64_t bytes, Tag tag, Tag mask, Request& request,
                                     void* context) noexcept {
    const BufferRef buffer = {.memory = memory, .address = address, .length = bytes};
    if (const int error = check_receive(buffer); error != 0) [[unlikely]] {
        return error;
    }
    return start_receive(buffer, shared_.matcher.find_message(this, tag, mask), tag, mask, request,
                         context);
}

int ChannelState::receive_claimed(const BufferRef& buffer, std::uint64_t claim, Request& request,
                                  void* context) noexcept {
    if (const int error = check_receive(buffer); error != 0) {
        return error;
    }
    UnexpectedMessage* const message = shared_.matcher.find_claimed(this, claim);
    if (message == nullptr) {
        return broken() != 0 ? broken() : ESTALE;
    }
    return start_receive(buffer, message, message->tag, full_mask, request, context);
}

int ChannelState::start_receive(const BufferRef& buffer, UnexpectedMessage* message, Tag tag,
                                Tag mask, Request& request, void* context) noexcept {
    // After a failure, a receive starts only if its message has already arrived completely, which
    // is true of an eager message.
    if (broken() != 0 && (message == nullptr || message->kind != Kind::eager)) [[unlikely]] {
        return broken();
    }
    ReceiveRequest* const taken = begin(shared_.receives.take(), buffer, request, context);
    if (taken == nullptr) [[unlikely]] {
        return ENOMEM;
    }
    taken->tag = tag;
    taken->mask = mask;
    if (message != nullptr) {
        receive_unexpected(*taken, *message);
        return 0;
    }
    if (eager_.uses_advertisements(buffer.length) && mask == full_mask) {
        rendezvous_receiver_.advertise(*taken);
        if (rendezvous_receiver_.has_work()) [[unlikely]] {
            wake(); // The advertisement may not be posted yet.
        }
    }
    shared_.matcher.post(*taken);
    return 0;
}

void ChannelState::receive_unexpected(ReceiveRequest& receive,
                                      UnexpectedMessage& message) noexcept {
    const bool has_data = message.kind == Kind::eager;
    match_unexpected(receive, message);
    if (!has_data) {
        advance();
    }
}

void ChannelState::deliver_held_messages() noexcept {
    shared_.matcher.release(this);
    shared_.matcher.for_each_message(this, [this](UnexpectedMessage& message) {
        // After a failure, the data of an RTS can no longer be transferred.
        if (broken() != 0 && message.kind == Kind::rts) {
            return;
        }
        if (ReceiveRequest* const receive = shared_.matcher.take_receive(this, message.tag)) {
            adopt(*receive);
            match_unexpected(*receive, message);
        }
    });
}

void ChannelState::match_unexpected(ReceiveRequest& receive, UnexpectedMessage& message) noexcept {
    shared_.matcher.remove(message);
    receive.tag = message.tag;
    wake();
    if (message.kind == Kind::rts) {
        --unexpected_rts_;
        rendezvous_receiver_.rts_matched(receive, message.body());
        UnexpectedMessage::destroy(&message);
        return;
    }
    if (eager_.deliver(receive, message.body().data(), message.length)) {
        consumed(message);
        return;
    }
    receive.unexpected = &message;
    receive.stage = ReceiveRequest::Stage::copying;
    queue_loopback(receive);
    start_loopback();
}

void ChannelState::consumed(UnexpectedMessage& message) noexcept {
    control_.eager_credits.consumed(message.stored);
    set_fast_arrivals();
    UnexpectedMessage::destroy(&message);
}

int ChannelState::begin_one_sided(OneSidedRequest::Operation operation, const BufferRef& buffer,
                                  Request& request, void* context,
                                  OneSidedRequest*& taken) noexcept {
    taken = nullptr;
    if (full()) {
        return EAGAIN;
    }
    taken = begin(shared_.one_sided.take(), buffer, request, context);
    if (taken == nullptr) {
        return ENOMEM;
    }
    taken->operation = operation;
    taken->list = {};
    taken->notifies = false;
    taken->unsignaled = false;
    return 0;
}

int ChannelState::start(OneSidedRequest& request) noexcept {
    one_sided_.start(request);
    wake();
    return 0;
}

int ChannelState::start_transfer(OneSidedRequest& request, const RemoteMemory& remote,
                                 std::uint64_t offset) noexcept {
    if (request.bytes > 0) {
        request.transfer = shared_.transfers.take(request, 0);
        if (request.transfer == nullptr) {
            give_back(request);
            return ENOMEM;
        }
        request.transfer->is_read = request.operation == OneSidedRequest::Operation::get;
        request.transfer->set_remote(remote.table(), offset);
    }
    one_sided_.start(request);
    advance();
    wake();
    return 0;
}

int ChannelState::put(const BufferRef& buffer, const RemoteMemory& remote, std::uint64_t offset,
                      std::span<const std::byte> notification, bool notifies, Request& request,
                      void* context) noexcept {
    if (const int error = check_transfer(buffer, remote, offset, Access::remote_write);
        error != 0) {
        return error;
    }
    if (notification.size() > max_notification) {
        return EMSGSIZE;
    }
    OneSidedRequest* put = nullptr;
    if (const int error =
            begin_one_sided(OneSidedRequest::Operation::put, buffer, request, context, put);
        error != 0) {
        return error;
    }
    set_notification(*put, notification, notifies);
    if (buffer.length > 0 && buffer.length <= rails_.max_message() &&
        !rails_.is_striped(buffer.length)) {
        // A write that fits into one work request is posted without an RdmaTransfer.
        const KeyedChunk* const region = remote.table().find(remote.iova() + offset);
        ibv_sge data{};
        if (EagerProtocol::gather(buffer, data) && region != nullptr &&
            buffer.length <= region->length - (remote.iova() + offset - region->address)) {
            const bool inline_data = buffer.memory->host && rails_.fits_inline(buffer.length);
            if (inline_data) {
                data.addr = buffer.address;
            }
            if (one_sided_.put_now(*put, data,
                                   {.address = remote.iova() + offset, .rkey = region->rkeys[0]},
                                   inline_data)) {
                if (put->notifies) [[unlikely]] {
                    wake(); // The notification is not posted yet.
                }
                return 0;
            }
        }
    }
    return start_transfer(*put, remote, offset);
}

int ChannelState::get(const BufferRef& buffer, const RemoteMemory& remote, std::uint64_t offset,
                      Request& request, void* context) noexcept {
    if (const int error = check_transfer(buffer, remote, offset, Access::remote_read); error != 0) {
        return error;
    }
    OneSidedRequest* get = nullptr;
    if (const int error =
            begin_one_sided(OneSidedRequest::Operation::get, buffer, request, context, get);
        error != 0) {
        return error;
    }
    return start_transfer(*get, remote, offset);
}

int ChannelState::prepare_list(std::span<const TransferEntry> entries, bool is_read,
                               PreparedList& list) const noexcept {
    if (const int error = refusal(); error != 0) {
        return error;
    }
    std::uint64_t bytes = 0;
    // The local and the remote memory of the last entry, not of 0 bytes, that was checked
    // completely. Most entries of a list have the same two memories, so only the ranges of these
    // entries are checked.
    const Memory* memory = nullptr;
    const RemoteMemory* remote = nullptr;
    std::uintptr_t begin = 0;
    std::uint64_t length = 0;
    std::uint64_t remote_length = 0;
    for (const TransferEntry& entry : entries) {
        bytes += entry.length;
        if (entry.memory == memory && entry.remote == remote && entry.length != 0 &&
            memory != nullptr) {
            // If the address is less than `begin`, the difference wraps around and is greater than
            // every valid offset.
            if (entry.length > length || entry.length > remote_length ||
                reinterpret_cast<std::uintptr_t>(entry.address) - begin > length - entry.length ||
                entry.offset > remote_length - entry.length) {
                return ERANGE;
            }
            continue;
        }
        if (entry.memory == nullptr || entry.remote == nullptr) {
            return EINVAL;
        }
        const BufferRef local = {.memory = entry.memory->state(),
                                 .address = reinterpret_cast<std::uintptr_t>(entry.address),
                                 .length = entry.length};
        if (const int error = check_transfer(local, *entry.remote, entry.offset,
                                             is_read ? Access::remote_read : Access::remote_write);
            error != 0) {
            return error;
        }
        if (entry.length != 0) {
            memory = entry.memory;
            remote = entry.remote;
            begin = memory->state()->address;
            length = memory->state()->length;
            remote_length = remote->length();
        }
    }
    list.entries_ = entries;
    list.bytes_ = bytes;
    list.channel_ = number_;
    list.is_read_ = is_read;
    return 0;
}

int ChannelState::start_list(const PreparedList& list, bool is_read,
                             std::span<const std::byte> notification, bool notifies,
                             Request& request, void* context) noexcept {
    if (const int error = refusal(); error != 0) {
        return error;
    }
    if (list.channel_ != number_ || list.is_read_ != is_read) {
        return EINVAL;
    }
    if (notification.size() > max_notification) {
        return EMSGSIZE;
    }
    OneSidedRequest* started = nullptr;
    if (const int error = begin_one_sided(
            is_read ? OneSidedRequest::Operation::get : OneSidedRequest::Operation::put, {},
            request, context, started);
        error != 0) {
        return error;
    }
    started->bytes = list.bytes_;
    started->list = list.entries_;
    started->operand = 0;
    set_notification(*started, notification, notifies);
    return start(*started);
}

int ChannelState::atomic(OneSidedRequest::Operation operation, const BufferRef& result,
                         const RemoteMemory& remote, std::uint64_t offset, std::uint64_t operand,
                         std::uint64_t compare, Request& request, void* context) noexcept {
    if (const int error = check_transfer(result, remote, offset, Access::remote_atomic);
        error != 0) {
        return error;
    }
    ibv_sge data{};
    const KeyedChunk* const region = remote.table().find(remote.iova() + offset);
    if ((remote.iova() + offset) % sizeof(std::uint64_t) != 0 || region == nullptr ||
        !EagerProtocol::gather(result, data)) {
        return EINVAL;
    }
    OneSidedRequest* atomic = nullptr;
    if (const int error = begin_one_sided(operation, result, request, context, atomic);
        error != 0) {
        return error;
    }
    atomic->operand = operand;
    atomic->compare = compare;
    atomic->remote = {.address = remote.iova() + offset, .rkey = region->rkeys[0]};
    return start(*atomic);
}

int ChannelState::flush(const BufferRef& buffer, Request& request, void* context) noexcept {
    // A flush uses only the loopback queue pairs. Therefore received data can still be flushed
    // after the channel has failed.
    if (broken() == EBADF) {
        return EBADF;
    }
    if (const int error = buffer.check(endpoint_); error != 0) {
        return error;
    }
    if (!buffer.is_host() && !buffer.allows(Access::remote_read)) {
        return EACCES;
    }
    OneSidedRequest* flush = nullptr;
    if (const int error =
            begin_one_sided(OneSidedRequest::Operation::flush, buffer, request, context, flush);
        error != 0) {
        return error;
    }
    if (buffer.is_host()) {
        shared_.complete(*flush);
        return 0;
    }
    queue_loopback(*flush);
    start_loopback();
    wake();
    return 0;
}

int ChannelState::fence(Request& request, void* context) noexcept {
    if (const int error = refusal(); error != 0) {
        return error;
    }
    OneSidedRequest* fence = nullptr;
    if (const int error =
            begin_one_sided(OneSidedRequest::Operation::fence, {}, request, context, fence);
        error != 0) {
        return error;
    }
    return start(*fence);
}

int ChannelState::take_notification(std::span<std::byte> bytes) noexcept {
    Notification* const first = notifications_.front();
    if (first == nullptr || !one_sided_.fences_arrived(first->fences)) {
        return -EAGAIN;
    }
    const std::uint32_t size = first->size;
    if (size > bytes.size()) {
        return -EMSGSIZE;
    }
    std::copy_n(first->bytes(), size, bytes.begin());
    one_sided_.notification_reported(first->fences.number);
    drop_notification();
    wake();
    control_.notification_credits.consumed(size);
    return static_cast<int>(size);
}

Result<std::size_t> ChannelState::notification(std::span<std::byte> bytes) noexcept {
    const int size = take_notification(bytes);
    if (size >= 0) {
        return static_cast<std::size_t>(size);
    }
    if (size == -EAGAIN) {
        return ErrorInfo(EAGAIN, "", "no notification has arrived");
    }
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "the notification has %u bytes, and the buffer has %zu",
                  notifications_.front()->size, bytes.size());
    return ErrorInfo(EMSGSIZE, "", text.data());
}

int ChannelState::cancel(ReceiveRequest& receive) noexcept {
    if (receive.stage != ReceiveRequest::Stage::posted || receive.cancel_requested) {
        return EALREADY;
    }
    if (receive.advertised) {
        rendezvous_receiver_.cancel(receive);
        advance();
        wake();
        return 0;
    }
    shared_.matcher.remove(receive);
    shared_.complete(receive, ECANCELED);
    return 0;
}

} // namespace rdmabuf::transport::detail
