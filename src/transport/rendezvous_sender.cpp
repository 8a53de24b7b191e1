// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <rdmabuf/transport/detail/rendezvous_sender.hpp>

namespace rdmabuf::transport::detail {

void RendezvousSender::count_message(Tag tag, const CtsRing::Entry* entry) noexcept {
    sent_tags_.add(control_.window.sent(), tag, entry != nullptr);
    control_.window.count_sent();
    if (entry != nullptr) {
        ring_->remove(entry);
    }
}

bool RendezvousSender::write_to(SendRequest& request, const CtsRing::Entry& entry) noexcept {
    RdmaTransfer* const transfer = shared_.transfers.take(request, 0);
    if (transfer == nullptr) {
        return false;
    }
    if (request.bytes > 0) {
        transfer->set_remote(entry.remote, 0);
        // If a queue pair needs several work requests, a FIN must contain the length of the
        // message. Otherwise each queue pair posts one RDMA write, and the receiver adds up their
        // lengths.
        request.needs_fin = request.bytes > rails_.max_message() || entry.remote.chunks != 1 ||
                            request.buffer.memory->rail(0).size() != 1;
    } else {
        // The write has no data. A receive of 0 bytes has no region whose rkey it could use.
        const RemoteAddress target = control_.probe_target(0);
        transfer->remote_address = target.address;
        transfer->remote.regions[0].rkeys[rails_[0].device] = target.rkey;
        request.needs_fin = false;
    }
    request.peer_request = entry.request;
    transfer->has_immediate = true;
    transfer->has_fin = request.needs_fin;
    transfer->keeps_order = true;
    transfer->immediate.request = entry.request;
    request.cts_bytes = request.bytes;
    request.stage = SendRequest::Stage::transferring;
    ring_->remove(&entry);
    rails_.start(*transfer, request.bytes);
    request.fin_rails = static_cast<std::uint8_t>(transfer->immediate.rails);
    return true;
}

bool RendezvousSender::request_to_send(SendRequest& request) noexcept {
    if (unanswered_ == max_unanswered_) {
        return false;
    }
    Header header = {.kind = Kind::rts, .value = request.tag};
    RtsBody body = {.length = request.bytes, .request = SharedState::wire_number(request)};
    const BufferRef& buffer = request.buffer;
    const bool readable = shared_.options.read_long_messages && buffer.length > 0 &&
                          has(buffer.memory->access, Access::remote_read);
    const ChunkTable table = ChunkTable::describe(buffer, 0, readable ? request.bytes : 0);
    if (readable && table.length == request.bytes) {
        body.chunks = table.chunks;
        body.rails = static_cast<std::uint16_t>(buffer.memory->rails);
    }
    if (!control_.send(header, body, table.regions)) {
        return false;
    }
    ++unanswered_;
    request.cts_bytes = 0;
    request.stage = SendRequest::Stage::waiting_for_cts;
    return true;
}

bool RendezvousSender::cts_arrived(std::uint32_t number,
                                   std::span<const std::byte> bytes) noexcept {
    SendRequest* const request = shared_.send_of(channel_, number);
    CtsBody body;
    if (request == nullptr || request->transfer != nullptr ||
        (request->stage != SendRequest::Stage::waiting_for_cts &&
         request->stage != SendRequest::Stage::transferring) ||
        !read_body(bytes, body) || body.rails < rails_.devices() || body.length == 0 ||
        body.length > request->bytes - request->cts_bytes ||
        body.request > Immediate::max_request) {
        return false;
    }
    RdmaTransfer* const transfer = shared_.transfers.take(*request, request->cts_bytes);
    if (transfer == nullptr) {
        rails_.fail(ENOMEM, "no memory for an RDMA transfer");
        return true;
    }
    if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.devices(), body.length,
                            transfer->remote)) {
        shared_.transfers.give_back(transfer);
        return false;
    }
    transfer->remote_address = transfer->remote.regions[0].address;
    transfer->has_immediate = true;
    transfer->immediate.request = body.request;
    request->cts_bytes += body.length;
    if (request->stage == SendRequest::Stage::waiting_for_cts) {
        --unanswered_;
    }
    request->stage = SendRequest::Stage::transferring;
    rails_.start(*transfer, body.length);
    return true;
}

bool RendezvousSender::advertisement_arrived(Tag tag, std::span<const std::byte> bytes) noexcept {
    CtsBody body;
    if (!read_body(bytes, body) || body.rails < rails_.devices() ||
        body.request > Immediate::max_request) {
        return false;
    }
    const std::uint32_t sent = control_.window.sent();
    if (sent_tags_.pair(sent - control_.window.unreceived(), sent, tag)) {
        return true;
    }
    if (ring_ == nullptr) {
        ring_.reset(new (std::nothrow) CtsRing);
        if (ring_ == nullptr) {
            rails_.fail(ENOMEM, "no memory for advertisements of posted receives");
            return true;
        }
    }
    if (ring_->full() || ring_->find_request(body.request) != nullptr) {
        return false;
    }
    CtsRing::Entry& entry = ring_->push_back();
    rails_.fast.sends = 0;
    entry.tag = tag;
    entry.length = body.length;
    entry.request = body.request;
    if (!ChunkTable::decode(bytes.subspan(sizeof body), body.chunks, rails_.devices(), body.length,
                            entry.remote)) {
        ring_->remove(&entry);
        return false;
    }
    return true;
}

void RendezvousSender::cancel_arrived(std::uint32_t number) noexcept {
    CtsRing::Entry* const entry = ring_ == nullptr ? nullptr : ring_->find_request(number);
    if (entry != nullptr) {
        ring_->remove(entry);
        cancelled_.at(cancelled_count_++ % cancelled_.size()) = number;
        // Until the confirmation is posted, no message may be sent: the message could match the
        // cancelled receive, and the peer would then report the confirmation as a protocol error.
        rails_.hold_messages();
    }
}

bool RendezvousSender::end_arrived(std::uint32_t number, int error) noexcept {
    SendRequest* const request = shared_.send_of(channel_, number);
    if (request == nullptr || request->stage != SendRequest::Stage::waiting_for_cts) {
        return false;
    }
    --unanswered_;
    shared_.complete(*request, error);
    return true;
}

void RendezvousSender::send_posted(SendRequest& request) noexcept {
    if (request.needs_fin) {
        request.stage = SendRequest::Stage::sending_fin;
        fins_.push_back(&request);
    }
}

void RendezvousSender::send_settled(SendRequest& request) noexcept {
    if (request.pending == 0 && request.transfer == nullptr && request.unconfirmed == nullptr &&
        request.stage == SendRequest::Stage::transferring && request.cts_bytes == request.bytes) {
        shared_.complete(request);
    }
}

void RendezvousSender::advance() noexcept {
    while (cancelled_count_ != cancelled_sent_ && rails_.can_send()) {
        Header header = {.kind = Kind::cancelled,
                         .number = cancelled_.at(cancelled_sent_ % cancelled_.size())};
        if (!control_.send(header, {})) {
            return;
        }
        ++cancelled_sent_;
        rails_.release_messages();
    }
    while (!fins_.empty() && rails_.can_send()) {
        SendRequest& request = *fins_.front();
        Header header = {.kind = Kind::fin,
                         .rails = request.fin_rails,
                         .number = request.peer_request,
                         .value = request.bytes};
        if (!control_.send(header, {}, &request)) {
            return;
        }
        rails_.release_messages();
        fins_.remove(&request);
        request.stage = SendRequest::Stage::transferring;
    }
}

void RendezvousSender::stop() noexcept {
    fins_.clear();
    cancelled_sent_ = cancelled_count_;
}

} // namespace rdmabuf::transport::detail
