// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <span>

#include "engine/addressing.hpp"
#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "objects/copy_bytes.hpp"
#include "objects/process.hpp"

// The fast path of the requester for small sends and RDMA writes on RC and UC queue pairs. It
// copies the data from the memory of the request to a packet in shared memory, to the memory of the
// responder, or to a buffer on the stack. If it cannot send a request, OutboundRequest sends the
// request.

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;

/// Maximum length in bytes of a packet that the fast path sends to a queue pair of this process. A
/// buffer on the stack has room for such a packet.
constexpr std::size_t longest_local = 512;

/// Stores the address of the data of a send request in @p data: null if the data has 0 bytes.
/// Returns false if the request has several scatter/gather entries, or if find_plain_bytes()
/// returns null for its entry.
bool find_data(Qp& qp, std::uint64_t position, const SendRequest& request, const std::byte*& data) {
    if (request.length == 0) {
        data = nullptr;
        return true;
    }
    if (request.is_inline) {
        data = qp.inline_data(position);
        return true;
    }
    if (request.entries != 1) {
        return false;
    }
    const ibv_sge& entry = *qp.entries_at(position);
    data = find_plain_bytes(qp.pd(), entry.addr, entry.length, entry.lkey, 0);
    return data != nullptr;
}

/// Returns false if something prevents the use of the fast path for the next posted request of the
/// queue pair, such as a retransmission, a fence that must wait, or an inactive port.
bool may_send_short(const Qp& qp, const SendRequest& request) {
    const Requester& requester = qp.requester;
    return request.state == SendRequest::State::waiting &&
           requester.port->attributes.state == IBV_PORT_ACTIVE &&
           requester.fetches_in_flight == 0 && requester.next >= requester.resent_until &&
           !process().disturbs_packets() &&
           ((request.flags & IBV_SEND_FENCE) == 0 || requester.reads_in_flight == 0);
}

} // namespace

bool Engine::Implementation::send_short(Qp& qp) {
    Requester& requester = qp.requester;
    const std::uint64_t position = requester.next;
    SendRequest& request = qp.sends[position];
    if (request.length > small_message || !may_send_short(qp, request)) {
        return false;
    }
    ShortHeader header; // NOLINT: all members are set below
    const std::byte* data = nullptr;
    if (!set_operation(request, header) || !find_data(qp, position, request, data)) {
        return false;
    }
    const std::size_t header_size = ShortHeader::size(header.kind);
    const auto length = static_cast<std::size_t>(request.length);
    if (const std::span<const std::byte> part(data, length);
        request.opcode == IBV_WR_RDMA_WRITE && length != 0 &&
        write_directly(qp, request, {&part, 1})) {
        return true;
    }
    const std::size_t size = header_size + length;
    fabric::Connection* const to = requester.connection;
    std::byte* record = nullptr;
    if (to != nullptr) {
        record = to->reserve(fabric::Lane::requests, size);
        if (record == nullptr) {
            return false;
        }
    } else if (!requester.to_this_process || draining || local_first != local_end ||
               !set_asides.empty() || requester.reads_in_flight != 0 || size > longest_local) {
        return false;
    }
    header.form_and_service = qp.requester.short_form;
    header.device = static_cast<std::uint8_t>(requester.device);
    header.destination = qp.attributes.dest_qp_num;
    header.source = qp.number();
    header.psn = requester.next_psn;
    header.rkey = request.rkey;
    header.remote_address = request.remote_address;
    const bool reliable = qp.type() == IBV_QPT_RC;
    request.psn = header.psn;
    request.offset = request.length;
    request.state = reliable ? SendRequest::State::sent : SendRequest::State::done;
    requester.next_psn = (header.psn + 1) & psn_mask;
    ++requester.next;
    ++process().counters.sent;
    if (to == nullptr) {
        request.record = 0;
        deliver_short(qp, position, header, {data, length});
        return true;
    }
    if (reliable && needs_ack_request(qp, position, request)) {
        header.flags |= PacketHeader::ack_request;
        requester.ack_requested_until = position + 1;
    }
    write_short_header(record, header);
    copy_bytes(record + header_size, data, length);
    to->commit(fabric::Lane::requests, size);
    request.record = to->sent();
    return true;
}

void Engine::Implementation::deliver_short(Qp& qp, std::uint64_t position, ShortHeader& header,
                                           std::span<const std::byte> data) {
    SendRequest& request = qp.sends[position];
    bool executed = false;
    {
        const DrainScope scope(draining);
        // Copy the data to a buffer first, because the data may overlap the receive buffer. This is
        // not necessary for inline data, and for lengths for which copy_bytes() loads all bytes
        // before it stores the first one.
        const bool is_copied_once = request.is_inline || is_copied_at_once(data.size());
        executed = is_copied_once && execute_short(nullptr, header, data);
        if (!executed) [[unlikely]] {
            std::array<std::byte, longest_local> record; // NOLINT: written before it is read
            const std::size_t header_size = ShortHeader::size(header.kind);
            copy_bytes(record.data() + header_size, data.data(), data.size());
            const std::span<const std::byte> whole(record.data(), header_size + data.size());
            executed =
                !is_copied_once && execute_short(nullptr, header, whole.subspan(header_size));
            if (!executed) {
                if (qp.type() == IBV_QPT_RC && needs_ack_request(qp, position, request)) {
                    header.flags |= PacketHeader::ack_request;
                    qp.requester.ack_requested_until = position + 1;
                }
                write_short_header(record.data(), header);
                static_cast<void>(receive(nullptr, fabric::Lane::requests, whole));
            }
        }
    }
    // Complete the request only in the state RTS. Both ends may use the same completion queue. If
    // this queue was overrun by the receive completion, the queue pair is in the error state, and
    // the request was already flushed.
    if (executed && qp.type() == IBV_QPT_RC && qp.state() == IBV_QPS_RTS) {
        acknowledged(qp, position);
    }
}

bool Engine::Implementation::write_directly(Qp& qp, SendRequest& request,
                                            fabric::RecordParts parts) {
    Requester& requester = qp.requester;
    // A direct write (a copy into memory of the other process) must not overtake earlier requests.
    // Therefore all earlier requests of this queue pair must have completed. write_granted() also
    // checks that the other process has consumed all packets of the connection.
    if (requester.connection == nullptr || qp.sends.first() != requester.next || !delayed.empty() ||
        !requester.connection->write_granted(
            std::uint64_t{qp.number()} << 32U | qp.attributes.dest_qp_num, request.rkey,
            request.remote_address, parts)) {
        return false;
    }
    request.state = SendRequest::State::done;
    ++requester.next;
    retire(qp);
    return true;
}

bool Engine::Implementation::write_long_directly(Qp& qp) {
    SendRequest& request = qp.sends[qp.requester.next];
    if (request.opcode != IBV_WR_RDMA_WRITE || request.length == 0 || request.is_inline ||
        request.length > longest_direct_write ||
        request.length > qp.requester.port->attributes.max_msg_sz || !may_send_short(qp, request)) {
        return false;
    }
    EntryList entries;
    std::array<std::span<const std::byte>, max_sge> parts;
    std::size_t count = 0;
    if (!entries.open(qp.pd(), qp.entries(qp.requester.next), request.length, false)) {
        return false;
    }
    for (const Window& window : entries.windows()) {
        if (window.data == nullptr || is_unmapped(window)) {
            return false;
        }
        parts[count++] = {window.data, static_cast<std::size_t>(window.length)};
    }
    return write_directly(qp, request, std::span(parts).first(count));
}

void Engine::Implementation::send_ack(Qp& qp, fabric::Connection* to, std::uint32_t psn) {
    ShortHeader header{};
    header.form_and_service = qp.requester.short_form;
    header.kind = Kind::ack;
    header.device = static_cast<std::uint8_t>(qp.requester.device);
    header.destination = qp.attributes.dest_qp_num;
    header.source = qp.number();
    header.psn = psn;
    constexpr std::size_t size = ShortHeader::size(Kind::ack);
    const bool is_xrc = qp.type() == IBV_QPT_XRC_RECV;
    if (!is_xrc && !process().disturbs_packets()) [[likely]] {
        if (to == nullptr) {
            const std::span<const std::byte> record =
                std::as_bytes(std::span(&header, 1)).first(size);
            append_local(fabric::Lane::responses, {&record, 1});
            ++process().counters.sent;
            return;
        }
        if (std::byte* const record = to->reserve(fabric::Lane::responses, size)) {
            write_short_header(record, header);
            to->commit(fabric::Lane::responses, size);
            ++process().counters.sent;
            return;
        }
    }
    Outgoing packet;
    packet.header.kind = header.kind;
    packet.header.service = // the type of the requester's queue pair
        static_cast<std::uint8_t>(is_xrc ? IBV_QPT_XRC_SEND : qp.type());
    packet.header.device = header.device;
    packet.header.destination = header.destination;
    packet.header.source = header.source;
    packet.header.psn = psn;
    static_cast<void>(transmit(to, fabric::Lane::responses, packet));
}

} // namespace softverbs
