// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include "../queue_pair.hpp"

namespace softverbs {

[[nodiscard]] inline bool is_atomic(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
/// Answered with data, one by one.
[[nodiscard]] inline bool returns_data(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
/// Done by this side alone.
[[nodiscard]] inline bool is_local(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
/// Sent, at least in part, and not answered.
[[nodiscard]] inline bool in_flight(const SendRequest& request) noexcept {
    return request.state == SendRequest::State::sent ||
           request.state == SendRequest::State::sending;
}

/// The request in flight with a sequence number, or the ring's end.
[[nodiscard]] std::uint64_t find_request(Qp& qp, std::uint32_t psn);
/// Takes back what was counted of a request when it was sent.
void discount(Qp& qp, SendRequest& request) noexcept;
/// A request in flight is done.
void finish(Qp& qp, SendRequest& request) noexcept;
/// Completes what is done, in order.
void retire(Qp& qp);

} // namespace softverbs
