// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "cm/address.hpp"
#include "cm/exchange.hpp"
#include "cm/registry.hpp"

namespace softverbs::cm {

struct ChannelFile;
struct Id;

/// The types of events, with the numbers of rdma_cm (enum rdma_cm_event_type, whose header clashes
/// with <rdma/rdma_user_cm.h>).
enum class EventType : std::uint32_t {
    address_resolved = 0,
    address_error,
    route_resolved,
    route_error,
    connect_request,
    connect_response,
    connect_error,
    unreachable,
    rejected,
    established,
    disconnected,
    device_removal,
    multicast_join,
    multicast_error,
    address_change,
    timewait_exit,
};

/// The state of an id, as in the kernel's rdma_cm.
enum class State {
    idle,
    bound,
    address_resolved,
    route_resolved,
    connecting, // rdma_connect() was called, or the id came from a request
    disconnected,
    listening,
};

/// The state of the message exchange with the peer, as in the kernel's ib_cm.
enum class Exchanged {
    nothing,
    req_sent,
    req_received,
    rep_sent,
    rep_received,
    established,
    dreq_sent,
    dreq_received,
    timewait,
    sidr_req_sent,
    sidr_req_received,
    sidr_rep_sent,
};

/// A route: the local device and port, and the addresses of both ends.
struct Route {
    unsigned device = 0; // index of the softverbs device
    __be64 guid = 0;
    std::uint8_t port = 0; // 0: the id has no device
    bool ethernet = false;
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint8_t sgid_index = 0;
    std::uint8_t packet_life_time = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t sl = 0;
    std::uint16_t pkey = 0xffff;
    Gid sgid{};
    Gid dgid{};
    std::uint16_t slid = 0;
    std::uint16_t dlid = 0;
    /// Number of path records that queries report; 0 before the route is resolved.
    unsigned paths = 0;

    /// The destination is on another host.
    bool remote = false;

    [[nodiscard]] bool has_device() const noexcept { return port != 0; }
};

/// A multicast group that an id has joined.
struct Multicast {
    std::uint32_t handle = 0;
    std::uint64_t uid = 0;
    unsigned events_reported = 0;
    Gid mgid{};
    std::uint16_t mlid = 0;
};

/// An event that GET_EVENT has not reported yet.
struct Event {
    rdma_ucm_event_resp response{};
    /// The id whose events_reported counts this event.
    Id* owner = nullptr;
    Multicast* multicast = nullptr;
    /// The id that was created for a connection request; null for other events.
    Id* request = nullptr;
};

/// The state of an rdma_cm_id that the kernel would keep. Only the Manager changes it, with its
/// lock held.
struct Id {
    std::uint32_t handle = 0;
    /// The value by which the program identifies the id in events. 0: the program does not know the
    /// id yet, so no event is reported.
    std::uint64_t uid = 0;
    ChannelFile* file = nullptr;
    unsigned events_reported = 0;

    std::uint16_t port_space = 0;
    ibv_qp_type qp_type = IBV_QPT_RC;
    State state = State::idle;
    Exchanged exchanged = Exchanged::nothing;

    Address source;
    Address destination;
    std::optional<Registry::Index> binding;
    bool reuse_address = false;
    std::optional<bool> family_only;
    std::uint8_t type_of_service = 0;
    std::optional<std::uint8_t> ack_timeout;
    Route route;

    // A listener's.
    unsigned backlog = 0;
    /// The listener that received the connection request of this id. Set only until GET_EVENT has
    /// reported the request.
    Id* listener = nullptr;

    // A connection's.
    Peer peer;
    /// A connection request that was not sent, because no process listens at the service yet.
    std::unique_ptr<Message> unsent_request;
    /// Number of times that this service was looked up.
    unsigned lookups = 0;
    /// The host of the destination has not answered yet which process has the service.
    bool searching = false;
    std::uint32_t communication_id = 0; // 0: none
    std::uint32_t peer_communication_id = 0;
    std::uint32_t receive_psn = 0; // the first that the peer sends
    std::uint32_t send_psn = 0;
    std::uint32_t peer_qp_num = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry_count = 0;
    /// Time at which the wait in the present state ends, in nanoseconds of CLOCK_MONOTONIC; 0: no
    /// limit.
    std::uint64_t deadline = 0;

    std::list<Multicast> groups;

    [[nodiscard]] bool datagram() const noexcept { return qp_type == IBV_QPT_UD; }
    /// Returns the number of bytes in the private data of a REQ or SIDR_REQ that the IP addresses
    /// use.
    [[nodiscard]] std::size_t private_data_offset() const noexcept {
        return source.family() == family_ib ? 0 : private_data::ip_header;
    }
};

} // namespace softverbs::cm
