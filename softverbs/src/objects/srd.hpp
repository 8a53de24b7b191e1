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

/// A send request of an SRD queue pair that has not completed. It was copied from Qp::sends, where
/// its queue entry stays occupied until the program has polled the completion.
struct SrdRequest {
    enum class State : std::uint8_t {
        held, // delayed, so that later requests can overtake it
        sent, // its transmission has begun
        waiting_for_receiver,
    };
    SendRequest request;
    std::array<ibv_sge, efa::max_send_sge> entries{};
    std::array<std::byte, efa::max_inline> inline_data{};
    State state = State::held;
    /// Whether a packet of the request was sent. Set to false when a retransmission begins.
    bool begun = false;
    /// Whether the request is in Srd::blocked.
    bool blocked = false;
    /// Whether the destination has responded to this request.
    bool answered = false;
    /// Number of bytes that were sent; for a read, number of bytes that were requested.
    std::uint64_t sent = 0;
    /// Number of bytes that were acknowledged; for a read, number of bytes that were received.
    std::uint64_t acknowledged = 0;
    /// Number of timeouts since the last progress of the request.
    unsigned retries = 0;
    /// Number of RNR NAKs since the last progress of the request.
    unsigned rnr_retries = 0;
    /// Time at which the request times out, or is retransmitted after an RNR NAK, in nanoseconds of
    /// fabric::now_ns().
    std::uint64_t deadline = 0;
    /// The connection of the last transmission of the request. Null: the destination is in this
    /// process or was not reachable, there was no transmission, or the connection was closed.
    fabric::Connection* to = nullptr;
    /// The value of Connection::sent() (number of request packets sent on the connection) after the
    /// last packet of this request.
    std::uint64_t record = 0;
};

/// Identifies a queue pair that sends to this process. Queue pair numbers are unique among the
/// processes of a host that have the same rendezvous directory.
struct SrdSource {
    fabric::HostAddress host; // zeros: this host
    std::uint32_t qp_number = 0;
    friend bool operator<(const SrdSource& one, const SrdSource& other) noexcept {
        return one.qp_number != other.qp_number ? one.qp_number < other.qp_number
                                                : one.host.bytes < other.host.bytes;
    }
};

/// What the responder stores about the requests from one remote queue pair. With this information,
/// it recognizes retransmissions of requests that it has executed.
struct SrdSession {
    /// A number that the requester changes when its queue pair goes from RTR to RTS, because its
    /// request numbers restart then.
    std::uint64_t epoch = 0;
    /// All requests of the source queue pair to this queue pair whose numbers are lower than this
    /// one have completed at the requester. A packet of such a request is a duplicate and is
    /// ignored.
    std::uint32_t oldest = 0;
    /// The results of the executed sends and RDMA writes whose number is "oldest" or higher, by
    /// request number.
    std::map<std::uint32_t, efa::Status> executed;
};

struct Srd {
    /// The requests that have not completed, by their numbers. The lower 32 bits of the number are
    /// the packet sequence number.
    std::map<std::uint64_t, SrdRequest> requests;
    std::uint64_t next_number = 0;
    std::uint64_t epoch = 0;
    /// The numbers of the requests in SrdRequest::State::held, which are not sent yet so that later
    /// requests can overtake them.
    std::vector<std::uint64_t> held;
    /// The numbers of the requests whose transmission must continue later: their connection was
    /// full, or was closed while they were in flight.
    std::vector<std::uint64_t> blocked;
    /// State of the random number generator that selects which of the requests in "held" is sent
    /// next.
    std::uint64_t random = 0;
    std::map<SrdSource, SrdSession> sessions;

    /// Discards all requests, without completions for them, and the sessions of all source queue
    /// pairs.
    void reset() noexcept;
};

/// Removes the request with this number and pushes its completion. If the completion queue
/// overruns, the queue pair enters the error state and all its requests are flushed.
void complete_srd(Qp& qp, std::uint64_t number, efa::Status status);

} // namespace softverbs
