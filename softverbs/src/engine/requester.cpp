// SPDX-License-Identifier: BSD-3-Clause
#include "engine/requester.hpp"

#include <algorithm>
#include <utility>

#include "engine/implementation.hpp"
#include "objects/process.hpp"

namespace softverbs {

std::uint64_t find_request(Qp& qp, std::uint32_t psn) {
    const std::uint64_t limit = std::min(qp.requester.next + 1, qp.sends.end());
    const std::uint64_t first = qp.sends.first();
    if (first < limit && qp.sends[first].state != SendRequest::State::waiting) {
        // In softverbs, each request has one packet sequence number (PSN), so the position of a
        // request in the send queue follows from its PSN. Requests without a packet have no PSN,
        // but they are executed when they are the oldest ones, and leave the queue at once.
        const std::uint64_t position = first + ((psn - qp.sends[first].psn) & psn_mask);
        if (position < limit && qp.sends[position].psn == psn &&
            qp.sends[position].state != SendRequest::State::waiting) {
            return position;
        }
    }
    return qp.sends.end();
}

void discount(Qp& qp, SendRequest& request) noexcept {
    if (returns_data(request.opcode)) {
        --qp.requester.reads_in_flight;
    }
    if (std::exchange(request.fetches, false)) {
        --qp.requester.fetches_in_flight;
    }
}

void finish(Qp& qp, SendRequest& request) noexcept {
    if (in_flight(request)) {
        discount(qp, request);
        request.state = SendRequest::State::done;
    }
}

void retire(Qp& qp) {
    while (!qp.sends.empty() && qp.sends.first() < qp.requester.next &&
           qp.sends.front().state == SendRequest::State::done) {
        const SendRequest& request = qp.sends.front();
        if (!qp.signal_all && (request.flags & IBV_SEND_SIGNALED) == 0 && qp.state() == IBV_QPS_RTS)
            [[likely]] {
            qp.sends.pop(); // like complete_send(), but without a completion
            continue;
        }
        const bool has_length = returns_data(request.opcode);
        complete_send(qp, IBV_WC_SUCCESS,
                      has_length
                          ? static_cast<std::uint32_t>(
                                is_atomic(request.opcode) ? sizeof(std::uint64_t) : request.length)
                          : 0);
    }
    if (qp.requester.finished_early != 0) [[unlikely]] {
        qp.requester.finished_early = 0;
        for (std::uint64_t i = qp.sends.first(); i < qp.requester.next; ++i) {
            qp.requester.finished_early +=
                returns_data(qp.sends[i].opcode) && qp.sends[i].state == SendRequest::State::done;
        }
    }
}

void Engine::Implementation::run(Qp& qp) {
    if (qp.srd != nullptr) [[unlikely]] {
        run_srd(qp);
        return;
    }
    Requester& requester = qp.requester;
    const auto may_send = [&] {
        if (requester.next >= qp.sends.end() || requester.stalled ||
            requester.waiting_for_receiver) {
            return false;
        }
        // In the state SQD, do not start new requests. Only continue or retransmit requests that
        // were begun earlier.
        return qp.state() == IBV_QPS_RTS ||
               (qp.state() == IBV_QPS_SQD &&
                (requester.next < requester.resent_until || in_flight(qp.sends[requester.next])));
    };
    while (may_send()) {
        if (requester.short_path && (send_short(qp) || write_long_directly(qp))) {
            if (qp.type() == IBV_QPT_UC) {
                retire(qp);
            }
            continue;
        }
        SendRequest& request = qp.sends[requester.next];
        if (request.state != SendRequest::State::done) {
            const bool begins = request.state == SendRequest::State::waiting;
            const Step step = OutboundRequest(*this, qp, requester.next)();
            if (step == Step::again) {
                continue;
            }
            if (step == Step::failed) {
                break;
            }
            if (begins && returns_data(request.opcode) && in_flight(request)) {
                ++requester.reads_in_flight;
            }
            if (step == Step::wait) {
                break;
            }
        }
        if (qp.type() != IBV_QPT_UD && !is_local(request.opcode)) {
            requester.next_psn = (request.psn + 1) & psn_mask;
        }
        ++requester.next;
        retire(qp);
    }
    const bool outstanding = qp.sends.first() < requester.next ||
                             (requester.next < qp.sends.end() &&
                              qp.sends[requester.next].state == SendRequest::State::sending);
    if (outstanding && !requester.timed &&
        (qp.state() == IBV_QPS_RTS || qp.state() == IBV_QPS_SQD)) {
        start_timer(qp);
    }
    drain();
}

void Engine::Implementation::run_all() {
    for (Qp* const qp : process().qps.all()) {
        if (qp == nullptr) {
            continue;
        }
        // An exception may have prevented the event that the queue pair waits for. Therefore let it
        // try again.
        Requester& requester = qp->requester;
        if (std::exchange(requester.stalled, false)) {
            std::erase(stalled, qp);
        }
        if (!requester.timed && std::exchange(requester.waiting_for_receiver, false)) {
            --waiting_for_receivers;
        }
        run(*qp);
        if (qp->srd != nullptr) {
            expired_srd(*qp);
        }
    }
}

void Engine::Implementation::disconnect(Qp& qp) noexcept {
    if (std::exchange(qp.requester.connection, nullptr) == nullptr) {
        return;
    }
    // Requester::offered and SendRequest::record contain packet numbers of the closed connection.
    // Reset them, because they are not valid for a new connection.
    qp.requester.offered = 0;
    for (std::uint64_t i = qp.sends.first(); i < qp.sends.end(); ++i) {
        qp.sends[i].record = 0;
    }
}

void Engine::Implementation::resend(Qp& qp) {
    Requester& requester = qp.requester;
    const std::uint64_t next = requester.next;
    const bool in_part = next < qp.sends.end() && in_flight(qp.sends[next]);
    const std::uint64_t limit = in_part ? next + 1 : next;
    requester.resent_until = std::max(requester.resent_until, limit);
    std::uint64_t oldest = requester.next;
    for (std::uint64_t i = limit; i-- > qp.sends.first();) {
        SendRequest& request = qp.sends[i];
        if (in_flight(request)) {
            discount(qp, request);
            request.state = SendRequest::State::waiting;
            oldest = i;
            requester.next_psn = request.psn;
        }
    }
    requester.next = oldest;
}

void Engine::Implementation::resend_as_records(Qp& qp, bool withdrawn) {
    constexpr unsigned most = 20;
    Requester& requester = qp.requester;
    resend(qp);
    if (withdrawn) {
        requester.records_until = std::max(requester.records_until, requester.resent_until);
        return;
    }
    // A direct copy between memory of the requester and of the responder has failed. Transfer the
    // data of the next 2^n requests in packets. n is the number of direct copies that have failed
    // since the last successful direct copy, but at most 20.
    requester.failed_fetches = std::min(requester.failed_fetches + 1, most);
    requester.records_until =
        requester.resent_until + (std::uint64_t{1} << requester.failed_fetches);
}

void Engine::Implementation::fail_oldest(Qp& qp, ibv_wc_status status) {
    // Do nothing if the queue pair is already in the error state. This is so after an overrun of
    // its completion queue, which has flushed the requests.
    if (!qp.sends.empty() && qp.state() != IBV_QPS_ERR) {
        complete_send(qp, status);
        enter_error(qp);
    }
}

} // namespace softverbs
