// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <array>
#include <utility>

#include "engine/implementation.hpp"
#include "engine/requester.hpp"
#include "objects/process.hpp"
#include "objects/scatter_to_cqe.hpp"
#include "objects/tag_matching.hpp"

namespace softverbs {

namespace {

using Kind = PacketHeader::Kind;
using NakCode = PacketHeader::NakCode;
using Copy = Engine::Implementation::Copy;

/// Changes the state of the requests in flight before @p position to "done", because a response
/// also acknowledges the earlier requests. Stops and returns false at a read or an atomic in
/// flight, because such a request needs its own response.
bool finish_before(Qp& qp, std::uint64_t position) {
    for (std::uint64_t i = qp.sends.first(); i < position; ++i) {
        SendRequest& request = qp.sends[i];
        if (in_flight(request) && returns_data(request.opcode)) {
            return false;
        }
        finish(qp, request);
    }
    return true;
}

/// Returns the completion status of a request that the responder has rejected with a NAK.
ibv_wc_status status_of(NakCode nak_code) noexcept {
    switch (nak_code) {
        case NakCode::remote_access:
            return IBV_WC_REM_ACCESS_ERR;
        case NakCode::remote_operation:
            return IBV_WC_REM_OP_ERR;
        default:
            return IBV_WC_REM_INV_REQ_ERR;
    }
}

/// The time for which the requester waits after an RNR NAK, in units of 10 us (InfiniBand
/// specification). The index is the value of the RNR timer in the NAK.
constexpr std::array<std::uint32_t, 32> rnr_delays{
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

/// Stores the data of a read response in the memory of the request. If the response contains the
/// address of the data, copies the data directly from memory of the responder's process. Returns
/// Copy::ignored if the response has no effect, or if the request must fail.
/// @param status  set to the completion status of the request if the request must fail
Copy scatter_read(Engine::Implementation& engine, Qp& qp, std::uint64_t position,
                  fabric::Connection* from, const Packet& packet, ibv_wc_status& status) {
    SendRequest& request = qp.sends[position];
    const PacketHeader& header = packet.header;
    const bool fetches = (header.flags & PacketHeader::to_fetch) != 0;
    if (header.length != request.length || (fetches && !request.fetches) ||
        header.offset != (fetches ? 0 : request.offset)) {
        return Copy::ignored;
    }
    if (!same_packets(header.mtu_or_rnr_timer, qp.attributes.path_mtu, request.length)) {
        status = IBV_WC_LOC_LEN_ERR; // packets of another path MTU
        return Copy::ignored;
    }
    EntryList entries;
    const Pd& domain = (request.flags & rendezvous_flag) != 0 ? qp.receive_pd() : qp.pd();
    if (!entries.open(domain, qp.entries(position), request.length, true)) {
        status = IBV_WC_LOC_PROT_ERR;
        return Copy::ignored;
    }
    if (!fetches) {
        if (packet.bytes.size() == request.length && keep_response(qp, position, packet.bytes)) {
            request.offset = request.length;
            return Copy::complete;
        }
        // A response without data is invalid for a read of at least one byte. Ignore the response;
        // the read is retransmitted when the timer of the queue pair expires.
        if (packet.bytes.empty() && request.length != 0) {
            return Copy::ignored;
        }
        // put() fails if the CUDA driver cannot copy the data to local GPU memory. The memory
        // region is then revoked. Ignore this response: when the next response to this request
        // arrives, open() above fails, and the request fails with IBV_WC_LOC_PROT_ERR.
        if (!entries.put(request.offset, packet.bytes)) {
            return Copy::ignored;
        }
        request.offset += packet.bytes.size();
        return Copy::complete;
    }
    if (header.payload != 1 || packet.segments.front().length != request.length) {
        return Copy::ignored;
    }
    // For a direct copy from memory of the responder, request.offset is the number of bytes that
    // earlier calls of this function have copied.
    const Copy copied =
        engine.copy_step(entries, from, fabric::Lane::responses, packet, request.offset);
    if (copied == Copy::complete) {
        qp.requester.failed_fetches = 0;
    }
    return copied;
}

/// Stores the result of an atomic in the memory of the request.
/// @param status  set to the completion status of the request if the request must fail
Copy scatter_atomic(Qp& qp, std::uint64_t position, std::uint64_t value, ibv_wc_status& status) {
    EntryList entries;
    if (!entries.open(qp.pd(), qp.entries(position), sizeof value, true)) {
        status = IBV_WC_LOC_PROT_ERR;
        return Copy::ignored;
    }
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return keep_response(qp, position, bytes) || entries.put(0, bytes) ? Copy::complete
                                                                       : Copy::ignored;
}

} // namespace

bool Engine::Implementation::may_retry(Qp& qp) {
    if (qp.requester.retries_left == 0) {
        retire(qp);
        fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
        return false;
    }
    --qp.requester.retries_left;
    ++process().counters.retried;
    return true;
}

bool Engine::Implementation::retry(Qp& qp) {
    if (!may_retry(qp)) {
        return false;
    }
    resend(qp);
    return true;
}

bool Engine::Implementation::handle_nak(Qp& qp, const PacketHeader& header) {
    Requester& requester = qp.requester;
    switch (header.nak_code) {
        case NakCode::rnr:
            if (requester.rnr_retries_left == 0) {
                retire(qp);
                fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
                return true;
            }
            if (qp.attributes.rnr_retry != 7) { // 7 means to retry without limit
                --requester.rnr_retries_left;
            }
            ++process().counters.retried;
            resend(qp);
            retire(qp);
            if (qp.state() == IBV_QPS_ERR) {
                return true;
            }
            if (!std::exchange(requester.waiting_for_receiver, true)) {
                ++waiting_for_receivers;
            }
            set_timer(qp, std::uint64_t{rnr_delays[header.mtu_or_rnr_timer & 31U]} * 10'000);
            return true;
        case NakCode::sequence_error:
            return !retry(qp);
        case NakCode::resend_as_records:
            resend_as_records(qp, false);
            return false;
        default:
            retire(qp);
            fail_oldest(qp, status_of(header.nak_code));
            return true;
    }
}

bool Engine::Implementation::handle_response(Qp& qp, fabric::Connection* from,
                                             const Packet& packet) {
    if (qp.srd != nullptr) [[unlikely]] {
        handle_srd_response(qp, packet);
        return true;
    }
    const PacketHeader& header = packet.header;
    Requester& requester = qp.requester;
    if (header.source != qp.attributes.dest_qp_num || qp.type() == IBV_QPT_UD ||
        (qp.state() != IBV_QPS_RTS && qp.state() != IBV_QPS_SQD)) {
        return true;
    }
    const std::uint64_t position = find_request(qp, header.psn);
    if (position == qp.sends.end()) {
        return true; // for example, a duplicate response
    }
    SendRequest& request = qp.sends[position];
    if (qp.type() == IBV_QPT_UC) {
        // This UC request contained the address of its data. With an ACK or a NAK, the responder
        // reports whether it has copied the data. Complete the request in both cases.
        if (header.kind == Kind::ack || header.kind == Kind::nak) {
            finish(qp, request);
            retire(qp);
            run(qp);
        }
        return true;
    }
    requester.progressed = true;
    const std::uint64_t first = qp.sends.first();
    const bool all_before = finish_before(qp, position);
    if (qp.sends[first].state == SendRequest::State::done) {
        requester.retries_left = qp.attributes.retry_cnt; // this response acknowledges a request
    }
    Copy scattered = Copy::ignored;
    ibv_wc_status failure = IBV_WC_SUCCESS;
    switch (header.kind) {
        case Kind::ack:
            if (all_before && !returns_data(request.opcode)) {
                if (position >= requester.records_until && request.length > small_message) {
                    requester.failed_fetches = 0;
                }
                finish(qp, request);
            }
            break;
        case Kind::read_data:
            if (request.opcode == IBV_WR_RDMA_READ && in_flight(request)) {
                scattered = scatter_read(*this, qp, position, from, packet, failure);
            }
            break;
        case Kind::atomic_result:
            if (is_atomic(request.opcode) && in_flight(request)) {
                scattered = scatter_atomic(qp, position, header.compare_add, failure);
            }
            break;
        case Kind::nak:
            if (!in_flight(request)) {
                break; // a response has arrived since
            }
            if (!all_before && header.nak_code != NakCode::sequence_error) {
                // A read or an atomic before the rejected request is still in flight, so its
                // response was lost (an implied NAK). Retransmit the requests in flight.
                if (!retry(qp)) {
                    return true;
                }
                break;
            }
            if (handle_nak(qp, header)) {
                return true;
            }
            break;
        default:
            break;
    }
    if (scattered == Copy::incomplete) {
        return false;
    }
    if (failure != IBV_WC_SUCCESS) {
        // Fail the request only if all responses to earlier requests have arrived. Otherwise, the
        // requests in flight are retransmitted later, and the next response to this request causes
        // the same error.
        if (all_before) {
            retire(qp);
            fail_oldest(qp, failure);
            return true;
        }
    } else if (scattered == Copy::failed || scattered == Copy::withdrawn) {
        resend_as_records(qp, scattered == Copy::withdrawn);
    } else if (scattered == Copy::complete &&
               (is_atomic(request.opcode) || request.offset == request.length)) {
        finish(qp, request);
        requester.finished_early += all_before ? 0 : 1;
    }
    if (header.kind != Kind::nak) {
        requester.retries_left = qp.attributes.retry_cnt;
        requester.rnr_retries_left = qp.attributes.rnr_retry;
    }
    retire(qp);
    run(qp);
    return true;
}

} // namespace softverbs