// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <new>

#include "engine/addressing.hpp"
#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "objects/copy_bytes.hpp"
#include "objects/process.hpp"
#include "objects/scatter_to_cqe.hpp"

// The fast path of the responder for requests with a short header. It executes a request only if
// the packet sequence number is the expected one (on UC: any number), the CPU can access the
// memory, and a receive request is posted if the request needs one. Otherwise it changes nothing,
// and InboundRequest executes the request.

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;

/// Returns the destination queue pair of a packet if it is connected to the source queue pair, is
/// in the state RTS, uses short headers, and has an active port. The type, the path MTU and the
/// device index in the header must also be its own. Otherwise, returns null.
/// @param sender  slot of the process that has sent the packet
[[gnu::always_inline]] inline Qp* find_connected(const ShortHeader& header, unsigned sender) {
    Qp* const qp = process().qps.find(header.destination);
    if (qp == nullptr || slot_of(header.source) != sender ||
        header.source != qp->attributes.dest_qp_num || !qp->requester.short_path ||
        header.form_and_service != qp->requester.short_form || qp->state() != IBV_QPS_RTS ||
        header.device != qp->requester.own_device ||
        qp->requester.port->attributes.state != IBV_PORT_ACTIVE) {
        return nullptr;
    }
    return qp;
}

/// Returns the same as find_connected(), but null if the packet sequence number has more than 24
/// bits or, on RC, is not the expected one.
Qp* find_receiver(const ShortHeader& header, unsigned sender) {
    Qp* const qp = find_connected(header, sender);
    if (qp == nullptr || (header.psn & ~psn_mask) != 0 ||
        (qp->type() == IBV_QPT_RC && header.psn != qp->responder.expected_psn)) {
        return nullptr;
    }
    return qp;
}

bool receive_short_send(Qp& qp, const ShortHeader& header, std::span<const std::byte> data) {
    const RecvRequest* const request = next_receive(qp);
    if (request == nullptr || qp.responder.current_taken) {
        return false;
    }
    if (!data.empty()) {
        if (qp.scatter_to_cqe != nullptr && data.size() <= qp.scatter_to_cqe->receives) {
            return false;
        }
        if (request->entries == 0 || request->entry[0].length < data.size()) {
            return false;
        }
        std::byte* const to = find_plain_bytes(qp.receive_pd(), request->entry[0].addr, data.size(),
                                               request->entry[0].lkey, IBV_ACCESS_LOCAL_WRITE);
        if (to == nullptr) {
            return false;
        }
        copy_bytes(to, data.data(), data.size());
    }
    const std::uint64_t wr_id = request->wr_id;
    consume_receive(qp);
    Completion* const completion = begin_push(*qp.recv_queue);
    if (completion == nullptr) {
        return true;
    }
    const bool has_immediate = (header.flags & PacketHeader::has_immediate) != 0;
    // Load all values that go into the completion before the first store to it. Otherwise, the
    // compiler must assume that each store changes these values, and loads them again.
    const std::uint32_t number = qp.number();
    const std::uint32_t source = header.source;
    const __be32 imm_data = has_immediate ? header.imm_or_key : 0;
    const bool solicited = (header.flags & PacketHeader::solicited) != 0;
    Srq* const shared_queue = qp.shared_queue;
    completion->wc = {};
    completion->wc.wr_id =
        wr_id; // same values as in InboundRequest::complete() and completion_of()
    completion->wc.opcode = IBV_WC_RECV;
    completion->wc.byte_len = static_cast<std::uint32_t>(data.size());
    completion->wc.imm_data = imm_data;
    completion->wc.wc_flags = has_immediate ? unsigned{IBV_WC_WITH_IMM} : 0U;
    completion->wc.src_qp = source;
    completion->wc.qp_num = number;
    completion->solicited = solicited;
    completion->has_scatter = false;
    completion->qp = &qp;
    completion->srq = shared_queue;
    completion->send_limit = 0;
    end_push(*qp.recv_queue, *completion);
    return true;
}

bool receive_short_write(Qp& qp, const ShortHeader& header, std::span<const std::byte> data) {
    if ((header.flags & PacketHeader::has_immediate) != 0) {
        return false; // a write with immediate consumes a receive request
    }
    if ((qp.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
        return false; // access is checked even for a length of 0
    }
    if (data.empty()) {
        return true;
    }
    Window window{};
    if (!open_remote(qp, header.rkey, header.remote_address, data.size(), IBV_ACCESS_REMOTE_WRITE,
                     window) ||
        !is_plain(window)) {
        return false;
    }
    copy_bytes(window.data, data.data(), data.size());
    return true;
}

} // namespace

bool Engine::Implementation::receive_short(fabric::Connection* from,
                                           std::span<const std::byte> record) {
    if ((from != nullptr && from->between_hosts()) || process().disorder.any()) {
        return false;
    }
    ShortHeader header; // NOLINT: read_short_header() sets all members
    return read_short_header(record, header) && header.kind != Kind::ack &&
           execute_short(from, header, record.subspan(ShortHeader::size(header.kind)));
}

bool Engine::Implementation::execute_short(fabric::Connection* from, const ShortHeader& header,
                                           std::span<const std::byte> data) {
    if ((header.flags & PacketHeader::has_invalidate) != 0) {
        return false;
    }
    Qp* const qp = find_receiver(header, from == nullptr ? slot : from->slot());
    if (qp == nullptr) {
        return false;
    }
    if (!(header.kind == Kind::send ? receive_short_send(*qp, header, data)
                                    : receive_short_write(*qp, header, data))) {
        return false;
    }
    ++process().counters.received;
    Responder& responder = qp->responder;
    responder.in_message = false;
    responder.gap_reported = false;
    responder.expected_psn = (header.psn + 1) & psn_mask;
    if (from != nullptr && header.kind == Kind::write && !data.empty()) {
        grant_writes(*qp, *from, header.source, header.rkey);
    }
    if ((header.flags & PacketHeader::ack_request) != 0) {
        responder.ack_pending = false;
        send_ack(*qp, from, header.psn);
    } else if (from == nullptr) {
        responder.ack_pending = false; // deliver_short() completes the request
    } else if (qp->type() == IBV_QPT_RC) {
        defer_ack(*qp, from);
    }
    return true;
}

bool Engine::Implementation::receive_short_ack(fabric::Connection* from,
                                               std::span<const std::byte> record) {
    ShortHeader header; // NOLINT: read_short_header() sets all members
    if ((from != nullptr && from->between_hosts()) || !read_short_header(record, header) ||
        header.kind != Kind::ack) {
        return false;
    }
    Qp* const qp = find_connected(header, from == nullptr ? slot : from->slot());
    if (qp == nullptr || qp->type() != IBV_QPT_RC || qp->requester.reads_in_flight != 0) {
        return false;
    }
    const std::uint64_t position = find_request(*qp, header.psn);
    if (position == qp->sends.end() || qp->sends[position].length > small_message) {
        return false; // for a long message, handle_response() also resets failed_fetches
    }
    ++process().counters.received;
    acknowledged(*qp, position);
    run(*qp);
    return true;
}

void Engine::Implementation::acknowledged(Qp& qp, std::uint64_t position) {
    Requester& requester = qp.requester;
    requester.progressed = true;
    requester.retries_left = qp.attributes.retry_cnt;
    requester.rnr_retries_left = qp.attributes.rnr_retry;
    std::uint64_t next = qp.sends.first();
    if (!qp.signal_all) {
        // Complete unsignaled requests in this loop, up to the first signaled one, because the loop
        // is faster than retire(). retire() below completes the other requests.
        for (; next <= position; ++next) {
            const SendRequest& request = qp.sends[next];
            if (next >= requester.next || request.state < SendRequest::State::sent ||
                (request.flags & IBV_SEND_SIGNALED) != 0) {
                break;
            }
            qp.sends.pop();
        }
    }
    // Return if all acknowledged requests are completed, unless the next request is a read or an
    // atomic whose response has already arrived. retire() below completes such a request.
    if (next > position &&
        (next >= requester.next || qp.sends[next].state != SendRequest::State::done)) {
        return;
    }
    for (; next <= position; ++next) {
        if (SendRequest& request = qp.sends[next]; in_flight(request)) {
            request.state = SendRequest::State::done;
        }
    }
    retire(qp);
}

void Engine::Implementation::grant_writes(const Qp& qp, fabric::Connection& to,
                                          std::uint32_t source, std::uint32_t rkey) {
    const Grant* const grant = process().keys.find_remote(rkey);
    // Permit no direct writes to memory windows (they are often bound and invalidated), to
    // on-demand regions (their pages are not pinned) and to imported regions (the process that has
    // registered them can deregister them). Also permit none while planned faults (injected errors)
    // or SOFTVERBS_DISORDER (a test setting) affect packets, because direct writes would not be
    // affected.
    if (grant == nullptr || grant->is_window || process().disturbs_packets() ||
        (grant->access & IBV_ACCESS_ON_DEMAND) != 0 || grant->mr->is_foreign) {
        return;
    }
    if (std::ranges::find(granted, &to) == granted.end()) {
        try {
            granted.push_back(&to);
        } catch (const std::bad_alloc&) {
            return; // without this entry the grant could not be withdrawn
        }
    }
    static_cast<void>(to.grant({.writer = std::uint64_t{source} << 32U | qp.number(),
                                .key = rkey,
                                .first = grant->iova,
                                .length = grant->length,
                                .address = reinterpret_cast<std::uint64_t>(grant->base)}));
}

} // namespace softverbs
