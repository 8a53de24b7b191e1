// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/rendezvous_receiver.hpp>

namespace rdmabuf::transport::detail {

void RendezvousReceiver::advertise(ReceiveRequest& receive) noexcept {
    if (!can_advertise(receive.tag, 1)) {
        return;
    }
    const ChunkTable table = ChunkTable::describe(receive.buffer, 0, receive.buffer.length);
    if (table.length != receive.buffer.length) {
        return;
    }
    receive.advertised = true;
    ++advertised_;
    if (!unsent_.empty() || !send_advertisement(receive, table)) {
        receive.advertisement_unsent = true;
        unsent_.push_back(&receive);
    }
}

bool RendezvousReceiver::can_advertise(Tag tag, std::size_t count) const noexcept {
    return count <= CtsRing::capacity - advertised_ &&
           rails_.can_send(static_cast<std::uint32_t>(count)) &&
           !shared_.matcher.has_unadvertised(channel_, tag);
}

bool RendezvousReceiver::send_advertisement(const ReceiveRequest& receive,
                                            const ChunkTable& table) noexcept {
    return rails_.can_send() && control_.send({.kind = Kind::advertisement, .value = receive.tag},
                                              cts_body(receive, table), table.regions);
}

bool RendezvousReceiver::send_advertisements() noexcept {
    while (!unsent_.empty()) {
        auto& receive = static_cast<ReceiveRequest&>(*unsent_.front());
        if (!send_advertisement(receive,
                                ChunkTable::describe(receive.buffer, 0, receive.buffer.length))) {
            return false;
        }
        receive.advertisement_unsent = false;
        unsent_.remove(&receive);
    }
    return true;
}

void RendezvousReceiver::advertisement_used(ReceiveRequest& receive) noexcept {
    if (receive.advertised) {
        receive.advertised = false;
        --advertised_;
        if (receive.advertisement_unsent) {
            receive.advertisement_unsent = false;
            unsent_.remove(&receive);
        }
    }
}

ReceiveRequest* RendezvousReceiver::data_arrived(std::uint32_t number, std::size_t rail,
                                                 std::uint32_t rails, const std::uint64_t* length,
                                                 std::uint64_t written, bool& valid) noexcept {
    ReceiveRequest* const receive = shared_.receive_of(channel_, number);
    const std::uint32_t bit = 1U << rail;
    valid = receive != nullptr && rails >= 1 && rails <= rails_.size() &&
            (receive->rails_arrived & bit) == 0 && written <= receive->buffer.length &&
            take_advertised(*receive, length);
    if (!valid) {
        return nullptr;
    }
    if (length != nullptr) {
        receive->bytes = *length;
        receive->fin_arrived = true;
    }
    receive->written += written;
    receive->rails_arrived |= bit;
    if (rails != 1 && std::popcount(receive->rails_arrived) < static_cast<int>(rails)) {
        return nullptr;
    }
    if (receive->written_by_advertisement && !receive->fin_arrived) {
        receive->bytes = receive->written;
        valid = receive->written <= receive->buffer.length;
        if (!valid) {
            return nullptr;
        }
    }
    receive->rails_arrived = 0;
    if (receive->cts_bytes < receive->bytes) {
        queue(*receive, ReceiveRequest::Stage::sending_cts);
        return nullptr;
    }
    return receive;
}

void RendezvousReceiver::cancel(ReceiveRequest& receive) noexcept {
    receive.cancel_requested = true;
    ++cancels_;
}

ReceiveRequest* RendezvousReceiver::cancelled_arrived(std::uint32_t number) const noexcept {
    ReceiveRequest* const receive = shared_.receive_of(channel_, number);
    return receive != nullptr && receive->stage == ReceiveRequest::Stage::posted &&
                   receive->advertised && receive->cancel_requested
               ? receive
               : nullptr;
}

void RendezvousReceiver::stop() noexcept {
    answers_.clear();
    while (RequestState* const receive = unsent_.pop_front()) {
        // Not in the list any more: see advertisement_used().
        static_cast<ReceiveRequest*>(receive)->advertisement_unsent = false;
    }
    cancels_ = 0;
}

CtsBody RendezvousReceiver::cts_body(const ReceiveRequest& receive,
                                     const ChunkTable& table) const noexcept {
    return {.length = table.length,
            .request = SharedState::wire_number(receive),
            .chunks = table.chunks,
            .rails = static_cast<std::uint16_t>(rails_.devices())};
}

bool RendezvousReceiver::start_read(ReceiveRequest& receive, const RtsBody& body,
                                    std::span<const std::byte> bytes) noexcept {
    RdmaTransfer* const transfer = shared_.transfers.take(receive, 0);
    if (transfer == nullptr) {
        return false;
    }
    static_cast<void>(ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.devices(),
                                         body.length, transfer->remote));
    transfer->is_read = true;
    transfer->remote_address = transfer->remote.regions[0].address;
    receive.stage = ReceiveRequest::Stage::transferring;
    rails_.start(*transfer, body.length);
    return true;
}

void RendezvousReceiver::queue(ReceiveRequest& receive, ReceiveRequest::Stage stage) noexcept {
    receive.stage = stage;
    answers_.push_back(&receive);
}

bool RendezvousReceiver::answer(ReceiveRequest& receive) noexcept {
    if (receive.stage == ReceiveRequest::Stage::sending_cts) {
        const ChunkTable table = ChunkTable::describe(receive.buffer, receive.cts_bytes,
                                                      receive.bytes - receive.cts_bytes);
        Header header = {.kind = Kind::cts, .number = receive.peer_request};
        if (!control_.send(header, cts_body(receive, table), table.regions)) {
            return false;
        }
        receive.cts_bytes += table.length;
        return true;
    }
    Header header = {
        .kind = receive.stage == ReceiveRequest::Stage::sending_nack ? Kind::nack : Kind::rget_done,
        .number = receive.peer_request};
    return control_.send(header, {});
}

bool RendezvousReceiver::take_advertised(ReceiveRequest& receive,
                                         const std::uint64_t* length) noexcept {
    if (receive.stage == ReceiveRequest::Stage::waiting_for_data) {
        // A FIN (@p length is not nullptr) is valid only for an advertised receive. Data for a
        // CTS ends with immediate data.
        return length == nullptr ||
               (receive.written_by_advertisement && *length <= receive.buffer.length);
    }
    if (receive.stage != ReceiveRequest::Stage::posted || !receive.advertised ||
        (length != nullptr && *length > receive.buffer.length)) {
        return false;
    }
    shared_.matcher.remove(receive);
    advertisement_used(receive);
    receive.stage = ReceiveRequest::Stage::waiting_for_data;
    receive.written_by_advertisement = true;
    receive.bytes = receive.cts_bytes = receive.buffer.length;
    return true;
}

void RendezvousReceiver::send_cancels() noexcept {
    // Count the necessary cancellation messages again: receives that have ended since cancel() need
    // none.
    cancels_ = 0;
    shared_.receives.for_each([this](ReceiveRequest& receive) {
        if (receive.channel != channel_ || !receive.cancel_requested || receive.cancel_sent ||
            receive.done) {
            return;
        }
        Header header = {.kind = Kind::cancel, .number = SharedState::wire_number(receive)};
        if (rails_.can_send() && control_.send(header, {})) {
            receive.cancel_sent = true;
        } else {
            ++cancels_;
        }
    });
}

} // namespace rdmabuf::transport::detail
