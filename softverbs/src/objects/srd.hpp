// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "fabric/host_address.hpp"
#include "objects/efa.hpp"
#include "objects/queue_pair.hpp"

// Scalable Reliable Datagram (SRD), the reliable transport of EFA. Each send request names its
// destination, is acknowledged on its own, and completes on its own: messages and completions of a
// queue pair are not in the order in which the requests were posted. A request that fails has no
// effect on other requests or on the state of the queue pair.

namespace softverbs {

/// A send request that has not completed. It is taken from Qp::sends, whose slot stays occupied
/// until the program has polled the completion.
struct SrdRequest {
    enum class State : std::uint8_t {
        held, // not sent yet, so that later requests can overtake it
        sent, // sent, at least partly
        waiting_for_receiver,
    };
    SendRequest request;
    std::array<ibv_sge, efa::max_send_sge> entries{};
    std::array<std::byte, efa::max_inline> inline_data{};
    State state = State::held;
    /// Whether a packet was sent since the request was posted or its retransmission began.
    bool begun = false;
    /// Whether the request waits because its connection is full.
    bool blocked = false;
    /// Whether the destination has responded to this request.
    bool answered = false;
    /// Numbers of bytes that were sent (for a read: requested), and that were acknowledged (for a
    /// read: received).
    std::uint64_t sent = 0;
    std::uint64_t acknowledged = 0;
    /// Numbers of retransmissions after a timeout, and after an RNR NAK, since the last progress.
    unsigned retries = 0;
    unsigned rnr_retries = 0;
    /// Time at which the request is sent again, in nanoseconds of CLOCK_MONOTONIC.
    std::uint64_t deadline = 0;
    /// The connection on which the request was sent last. Null: within this process, or nowhere.
    fabric::Connection* to = nullptr;
    /// The value of Connection::sent() after the last packet of the request.
    std::uint64_t record = 0;
};

/// Identifies a queue pair that sends to this process. Queue pair numbers are unique on a host.
struct SrdSource {
    fabric::HostAddress host; // zeros: this host
    std::uint32_t qp_number = 0;
    friend bool operator<(const SrdSource& one, const SrdSource& other) noexcept {
        return one.qp_number != other.qp_number ? one.qp_number < other.qp_number
                                                : one.host.bytes < other.host.bytes;
    }
};

/// What the responder remembers about the requests of a source, in order to recognize
/// retransmissions of executed requests.
struct SrdSession {
    /// The requester chooses a new epoch when it enters the state RTS, where its numbers restart.
    std::uint64_t epoch = 0;
    /// The requests before this one have completed at the requester.
    std::uint32_t oldest = 0;
    /// The executed requests from @p oldest on, with their results.
    std::map<std::uint32_t, efa::Status> executed;
};

struct Srd {
    /// The requests that have not completed, by their numbers. The lower 32 bits of the number are
    /// the packet sequence number.
    std::map<std::uint64_t, SrdRequest> requests;
    std::uint64_t next_number = 0;
    std::uint64_t epoch = 0;
    /// The numbers of the requests in the state held.
    std::vector<std::uint64_t> held;
    /// The numbers of requests that continue when their connection has room.
    std::vector<std::uint64_t> blocked;
    /// State of the random number generator that selects the next of the held requests.
    std::uint64_t random = 0;
    std::map<SrdSource, SrdSession> sessions;

    /// Discards all requests without completions, and all knowledge about other queue pairs.
    void reset() noexcept;
};

/// Removes a request and pushes its completion. If the completion queue overruns, the queue pair
/// enters the error state and all its requests are flushed.
void complete_srd(Qp& qp, std::uint64_t number, efa::Status status);

} // namespace softverbs
