// SPDX-License-Identifier: BSD-3-Clause
#include "send_requests.hpp"

#include <algorithm>
#include <utility>

namespace softverbs {

std::uint64_t find_request(Qp& qp, std::uint32_t psn) {
    const std::uint64_t limit = std::min(qp.requester.next + 1, qp.sends.end());
    for (std::uint64_t i = qp.sends.first(); i < limit; ++i) {
        const SendRequest& request = qp.sends[i];
        if (request.psn == psn && request.state != SendRequest::State::waiting &&
            !is_local(request.opcode)) {
            return i;
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
        const bool has_length = returns_data(request.opcode);
        complete_send(qp, IBV_WC_SUCCESS,
                      has_length
                          ? static_cast<std::uint32_t>(
                                is_atomic(request.opcode) ? sizeof(std::uint64_t) : request.length)
                          : 0);
    }
}

} // namespace softverbs
