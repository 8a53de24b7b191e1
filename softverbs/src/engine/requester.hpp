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
/// Returns whether the response to a request contains data. Each such request needs its own
/// response.
[[nodiscard]] inline bool returns_data(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
/// Returns whether a request with this opcode is executed without sending a packet.
[[nodiscard]] inline bool is_local(ibv_wr_opcode opcode) noexcept {
    return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}
/// Returns whether a part of the request was sent, and no response has completed it.
[[nodiscard]] inline bool in_flight(const SendRequest& request) noexcept {
    return request.state == SendRequest::State::sent ||
           request.state == SendRequest::State::sending;
}

/// Returns the position of the sent request with this packet sequence number; sends.end() if there
/// is none.
[[nodiscard]] std::uint64_t find_request(Qp& qp, std::uint32_t psn);
/// Subtracts a request from the counters of reads in flight.
void discount(Qp& qp, SendRequest& request) noexcept;
/// Marks a request as done if it is in flight.
void finish(Qp& qp, SendRequest& request) noexcept;
/// Completes the requests that are done, in order, up to the first one that is not.
void retire(Qp& qp);

/// Every 16th request requests an ACK even if it is unsignaled. The ACK of a later request also
/// acknowledges earlier unsignaled ones. If no later request comes, the timer requests an ACK.
inline constexpr std::uint64_t ack_request_interval = 16;
/// Whether the request must request an ACK.
[[nodiscard]] inline bool needs_ack_request(Qp& qp, std::uint64_t position) {
    const SendRequest& request = qp.sends[position];
    if (qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0 || returns_data(request.opcode) ||
        position < qp.requester.resent_until || position % ack_request_interval == 0) {
        return true;
    }
    if (position + 1 == qp.sends.end()) {
        return false;
    }
    const SendRequest& following = qp.sends[position + 1];
    return is_local(following.opcode) || (following.flags & IBV_SEND_FENCE) != 0;
}

/// Result of an attempt to send a request.
enum class Step : std::uint8_t { sent, wait, again, failed };

/// Sends one request of a send queue.
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
    /// Sends a datagram to every process of this user on this host. Returns false if the memory of
    /// the datagram was revoked.
    [[nodiscard]] bool multicast(const EntryList& entries);
    Step connected();
    /// Whether the request must wait for earlier reads and atomics (fence, max_rd_atomic).
    [[nodiscard]] bool has_to_wait() const;
    /// Completes the request with an error status, after all earlier requests have completed. Until
    /// then, makes the request wait.
    Step fail_in_turn(ibv_wc_status status);
    /// Checks the request itself: its length, and whether the queue pair may send it at all.
    [[nodiscard]] ibv_wc_status check_request() const;
    /// Opens the memory that the request sends.
    [[nodiscard]] ibv_wc_status open(EntryList& entries) const;
    void fill_header(Outgoing& packet) const;
    [[nodiscard]] std::uint64_t data_length() const;
    /// Sends the request. If the connection has room only for a part of it, sends that part.
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
    /// Whether the request is sent for the first time, or again from its beginning.
    bool begins_ = false;
};

} // namespace softverbs
