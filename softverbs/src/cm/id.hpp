// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>

#include "cm/address.hpp"
#include "cm/event.hpp"
#include "cm/exchange.hpp"
#include "cm/registry.hpp"
#include "cm/user_cm.hpp"

namespace softverbs::cm {

struct ChannelFile;
struct Id;

/// The state of an rdma_cm id. The states are those of the kernel's rdma_cm.
enum class State {
    idle,
    bound,
    address_resolved,
    route_resolved,
    connecting, // rdma_connect() was called, or the id came from a request
    disconnected,
    listening,
};

/// The connection state, as in the kernel's ib_cm. Most states are named after the last message
/// that was sent to the peer or received from it.
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

/// The device and port that an rdma_cm id uses, and the addresses of both ends.
struct Route {
    unsigned device = 0; // index of the softverbs device
    __be64 guid = 0;
    std::uint8_t port = 0; // 0: the id has no device
    bool ethernet = false;
    bool roce_v2 = false; // the type of the source GID
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
    /// Number of path records that librdmacm gets when it queries this route. 0: the route has not
    /// been resolved.
    unsigned paths = 0;

    /// Whether the destination is on another host.
    bool remote = false;

    [[nodiscard]] bool has_device() const noexcept { return port != 0; }
};

/// A multicast group that an rdma_cm id has joined.
struct Multicast {
    std::uint32_t handle = 0;
    std::uint64_t uid = 0;
    unsigned events_reported = 0;
    Gid mgid{};
    std::uint16_t mlid = 0;
};

/// An rdma_cm_id, with the state that the kernel keeps for a real device. Protected by
/// Manager::lock.
struct Id {
    std::uint32_t handle = 0;
    /// The value by which librdmacm identifies this id in events. 0: the id belongs to a connection
    /// request that the program has not accepted yet. No events are raised for such an id.
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

    // Only for an id that listens: number of further connection requests that can be queued for the
    // program.
    unsigned backlog = 0;
    /// For the id of a connection request that the program has not received yet: the id that
    /// listens. Otherwise null.
    Id* listener = nullptr;

    // Only for an id with a connection: the process that owns the id at the other end.
    Peer peer;
    /// A connection request that has not been sent, because no process has called rdma_listen() for
    /// its destination yet. softverbs tries again a few times; then the request is rejected.
    std::unique_ptr<Message> unsent_request;
    /// How many times softverbs has searched for a process that listens at the destination of the
    /// connection request, and has found none.
    unsigned lookups = 0;
    std::uint32_t communication_id = 0; // 0: none
    std::uint32_t peer_communication_id = 0;
    std::uint32_t receive_psn = 0; // first PSN that the peer sends
    std::uint32_t send_psn = 0;
    std::uint32_t qp_num = 0; // of the program's queue pair
    std::uint32_t peer_qp_num = 0;
    /// Time at which RDMA_CM_EVENT_DISCONNECTED is raised at the latest, in nanoseconds of
    /// now_ns(). 0: no such event is delayed. See Manager::report_disconnect().
    std::uint64_t disconnect_waits_until = 0;
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry_count = 0;
    /// Time at which the timer of this id expires (for example while it waits for a REP), in
    /// nanoseconds of now_ns(). 0: the timer is not set.
    std::uint64_t deadline = 0;

    std::list<Multicast> groups;

    [[nodiscard]] bool datagram() const noexcept { return qp_type == IBV_QPT_UD; }
    /// A communication ID is never 0 and belongs to only one id until the process has created 2^32
    /// ids, because each id has another handle and connects only once.
    void assign_communication_id() noexcept { communication_id = handle + 1; }
    /// Returns whether a connection is being established.
    [[nodiscard]] bool in_handshake() const noexcept {
        return exchanged >= Exchanged::req_sent && exchanged <= Exchanged::rep_received;
    }
    /// Returns the port space of the service at an address. For an InfiniBand address, the service
    /// ID contains the port space. For other addresses, it is the port space of the id.
    [[nodiscard]] std::uint16_t service_space(const Address& address) const noexcept {
        const std::uint16_t named = address.service_port_space();
        return named != 0 ? named : port_space;
    }
    /// Returns how many bytes the IP addressing header occupies in the private data of a REQ or
    /// SIDR_REQ.
    [[nodiscard]] std::size_t private_data_offset() const noexcept {
        return source.family() == family_ib ? 0 : private_data::ip_header;
    }
};

} // namespace softverbs::cm
