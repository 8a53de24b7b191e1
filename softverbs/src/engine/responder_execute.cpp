// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <cstring>

#include "engine/responder.hpp"

// What a queue pair does for each kind of request.

namespace softverbs {

namespace {

std::uint64_t capacity(const RecvRequest& request) noexcept {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < request.entries; ++i) {
        sum += request.entry[i].length;
    }
    return sum;
}

/// What is written before a datagram that came by GID: the beginning of an IPv6 header.
std::array<std::byte, grh_length> make_grh(const PacketHeader& header) noexcept {
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6U << 28U);
    grh.paylen = htobe16(static_cast<std::uint16_t>(header.length));
    grh.next_hdr = 0x1b; // an InfiniBand header follows
    grh.hop_limit = 1;
    grh.sgid = header.source_gid;
    grh.dgid = header.destination_gid;
    std::array<std::byte, grh_length> bytes{};
    static_assert(sizeof grh == grh_length);
    std::memcpy(bytes.data(), &grh, sizeof grh);
    return bytes;
}

} // namespace

void InboundRequest::send() {
    if (!sums_up() || !have_receive()) {
        return;
    }
    const RecvRequest& request = responder_.current;
    if (header_.length > capacity(request)) {
        if (reliable()) {
            complete(IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 0);
        }
        send_nak(NakCode::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    {
        EntryList entries;
        if (entries.open(qp_.receive_pd(), {request.entry.data(), request.entries}, header_.length,
                         true) != Denied::no) {
            complete(IBV_WC_RECV, IBV_WC_LOC_PROT_ERR, 0);
            send_nak(NakCode::remote_operation);
            enter_error(qp_);
            return;
        }
        if (!store(entries)) {
            return;
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (!is_last()) {
        return;
    }
    if ((header_.flags & PacketHeader::has_invalidate) != 0 &&
        !invalidate(qp_, header_.imm_or_key)) {
        send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    complete(IBV_WC_RECV, IBV_WC_SUCCESS, header_.length);
    done();
}

void InboundRequest::write() {
    Window window{};
    if (!sums_up() || !permitted(IBV_ACCESS_REMOTE_WRITE, window)) {
        return;
    }
    const bool with_immediate = (header_.flags & PacketHeader::has_immediate) != 0;
    if (with_immediate && is_last() && !have_receive()) {
        return;
    }
    {
        EntryList target;
        target.open(window, true);
        if (!store(target)) {
            return;
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (!is_last()) {
        return;
    }
    if (with_immediate) {
        complete(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, header_.length);
    }
    done();
}

void InboundRequest::read() {
    Window window{};
    if (!permitted(IBV_ACCESS_REMOTE_READ, window)) {
        return;
    }
    Outgoing data = make_response(Kind::read_data);
    data.header.length = header_.length;
    data.header.offset = header_.offset;
    data.header.rkey = header_.rkey;
    data.header.remote_address = header_.remote_address;
    EntryList source;
    if ((header_.flags & PacketHeader::to_fetch) != 0) {
        if (header_.offset != 0 || engine_.describe(from_, fabric::Lane::responses,
                                                    std::span(&window, 1), data.segments) == 0) {
            send_nak(NakCode::resend_as_records);
            return;
        }
        data.set_segments(1);
        if (from_ != nullptr) {
            engine_.peers[from_].may_fetch_responses = true;
        }
    } else {
        if (header_.payload > record_payload) {
            send_nak(NakCode::invalid_request, IBV_EVENT_QP_REQ_ERR);
            return;
        }
        source.open(window, false);
        data.header.payload = header_.payload;
        const auto parts =
            source.parts(header_.offset, header_.payload, std::span(data.parts).subspan(1));
        if (!parts) {
            send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
            return;
        }
        data.count = 1 + *parts;
    }
    if (header_.psn == responder_.expected_psn &&
        header_.offset + header_.payload == header_.length) {
        responder_.expected_psn = (header_.psn + 1) & psn_mask;
    }
    send_response(data);
}

void InboundRequest::atomic() {
    Window window{};
    if (header_.length != sizeof(std::uint64_t) || header_.offset != 0 ||
        header_.remote_address % sizeof(std::uint64_t) != 0) {
        send_nak(NakCode::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    if (!permitted(IBV_ACCESS_REMOTE_ATOMIC, window)) {
        return;
    }
    if (reinterpret_cast<std::uintptr_t>(window.data) % sizeof(std::uint64_t) != 0) {
        send_nak(NakCode::invalid_request, IBV_EVENT_QP_REQ_ERR);
        return;
    }
    const auto before = change(window);
    if (!before) {
        send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    responder_.atomics[responder_.atomics_done++ % responder_.atomics.size()] = {header_.psn,
                                                                                 *before};
    responder_.expected_psn = (header_.psn + 1) & psn_mask;
    Outgoing result = make_response(Kind::atomic_result);
    result.header.compare_add = *before;
    send_response(result);
}

std::optional<std::uint64_t> InboundRequest::change(const Window& window) const {
    if (window.data == nullptr) {
        return 0;
    }
    const bool adds = header_.kind == Kind::fetch_add;
    std::uint64_t before = header_.compare_add;
    if (is_unmapped(window)) {
        // Atomic for devices of this process, which share its lock.
        if (!copy_from(window, 0, std::as_writable_bytes(std::span(&before, 1)))) {
            return std::nullopt;
        }
        const std::uint64_t after = adds                            ? before + header_.compare_add
                                    : before == header_.compare_add ? header_.swap
                                                                    : before;
        return copy_to(window, 0, std::as_bytes(std::span(&after, 1))) ? std::optional(before)
                                                                       : std::nullopt;
    }
    EntryList target;
    target.open(window, true);
    const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(window.data));
    if (adds) {
        return value.fetch_add(header_.compare_add);
    }
    value.compare_exchange_strong(before, header_.swap);
    return before;
}

void InboundRequest::datagram() {
    if (header_.kind != Kind::send || (header_.flags & PacketHeader::to_fetch) != 0 || !is_last() ||
        header_.offset != 0 || header_.qkey != qp_.attributes.qkey) {
        return;
    }
    if (!responder_.current_taken) {
        responder_.current_taken = take_receive(qp_, responder_.current);
    }
    const RecvRequest& request = responder_.current;
    const std::uint64_t length = header_.length + grh_length;
    if (!responder_.current_taken || length > capacity(request)) {
        return;
    }
    {
        EntryList entries;
        if (entries.open(qp_.receive_pd(), {request.entry.data(), request.entries}, length, true) !=
            Denied::no) {
            complete(IBV_WC_RECV, IBV_WC_LOC_PROT_ERR, 0);
            enter_error(qp_);
            return;
        }
        if ((header_.flags & PacketHeader::has_grh) != 0) {
            static_cast<void>(entries.put(0, make_grh(header_))); // if it fails, the data does
        }
        if (!store(entries)) {
            return;
        }
    }
    complete(IBV_WC_RECV, IBV_WC_SUCCESS, length);
}

} // namespace softverbs
