// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "engine/implementation.hpp"
#include "objects/queue_pair.hpp"

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

/// What a request becomes when its turn has come.
enum class Step : std::uint8_t { sent, wait, again, failed };

/// One request of a queue pair, being sent.
class OutboundRequest {
  public:
    OutboundRequest(Engine::Implementation& engine, Qp& qp, std::uint64_t position)
        : engine_(engine),
          qp_(qp),
          requester_(qp.requester),
          position_(position),
          request_(qp.sends[position]) {}

    Step operator()();

  private:
    Step local();
    Step datagram();
    Step connected();
    /// For requests before this one.
    [[nodiscard]] bool has_to_wait() const;
    /// Not before those that came earlier are done.
    Step fail_in_turn(ibv_wc_status status);
    [[nodiscard]] bool needs_ack_request() const;
    /// Checks the request itself: its length, and whether the queue pair may send it at all.
    [[nodiscard]] ibv_wc_status check_request() const;
    /// Opens the memory that the request sends.
    [[nodiscard]] ibv_wc_status open(EntryList& entries) const;
    void fill_header(Outgoing& packet) const;
    [[nodiscard]] std::uint64_t data_length() const;
    /// Sends the whole request, or as much of it as there is room for.
    Step send_data(const EntryList& entries);
    Step send_read();
    std::optional<fabric::Sent> send_fragment(const EntryList& entries, std::uint64_t length,
                                              bool last);
    bool send_segments(const EntryList& entries, fabric::Sent& sent);
    Step after(fabric::Sent sent);

    Engine::Implementation& engine_;
    Qp& qp_;
    Requester& requester_;
    std::uint64_t position_;
    SendRequest& request_;
    fabric::Connection* to_ = nullptr;
    /// The request is sent for the first time, or again from its beginning.
    bool begins_ = false;
};

} // namespace softverbs
