// SPDX-License-Identifier: BSD-3-Clause
#include "cm/queries.hpp"

#include <endian.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cm/multicast.hpp"

namespace softverbs::cm {

namespace {

/// The value that softverbs reports instead of the kernel's index of an RDMA device (ibdev_index).
/// Software devices have no such index, so librdmacm finds them by their GUIDs.
constexpr std::uint32_t no_device_index = ~0U;
constexpr std::uint8_t rate_40_gbps = 7; // IBV_RATE_40_GBPS
constexpr std::uint8_t exactly = 2;      // selector of rate, MTU and packet life time
constexpr std::uint8_t exactly_bits = exactly << 6U;
constexpr std::uint32_t gmp_primary_bidirectional =
    IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
constexpr std::uint8_t reversible_one_path = 0x81;

template <class Response>
void fill_device(Response& response, const Id& id) {
    response.ibdev_index = no_device_index;
    if (id.route.has_device()) {
        response.node_guid = id.route.guid;
        response.port_num = id.route.port;
    }
}

sockaddr_ib infiniband_address(const Address& address, const Gid& gid, const Id& id) {
    sockaddr_ib made{};
    made.sib_family = family_ib;
    made.sib_pkey = htobe16(id.route.pkey);
    std::memcpy(&made.sib_addr, gid.data(), gid.size());
    made.sib_sid = htobe64((std::uint64_t{id.port_space} << 16U) | address.port());
    return made;
}

} // namespace

rdma_ucm_query_route_resp query_route(const Id& id) {
    rdma_ucm_query_route_resp response{};
    fill_device(response, id);
    const auto copy = [](auto& to, const Address& from) {
        std::memcpy(&to, &from.storage(), std::min(sizeof to, from.size()));
    };
    copy(response.src_addr, id.source);
    copy(response.dst_addr, id.destination);
    if (!id.route.has_device()) {
        return response;
    }
    response.num_paths = id.route.paths;
    ib_user_path_rec& path = response.ib_route[0];
    std::copy(id.route.sgid.begin(), id.route.sgid.end(), path.sgid);
    std::copy(id.route.dgid.begin(), id.route.dgid.end(), path.dgid);
    path.pkey = htobe16(id.route.pkey);
    if (id.route.paths != 0) {
        path.slid = htobe16(id.route.slid);
        path.dlid = htobe16(id.route.dlid);
        path.reversible = 1;
        path.numb_path = 1;
        path.sl = id.route.sl;
        path.traffic_class = id.route.traffic_class;
        path.hop_limit = id.route.ethernet ? 64 : 0;
        path.mtu_selector = path.rate_selector = path.packet_life_time_selector = exactly;
        path.mtu = static_cast<std::uint8_t>(id.route.mtu);
        path.rate = rate_40_gbps;
        path.packet_life_time = id.route.packet_life_time;
    }
    return response;
}

rdma_ucm_query_addr_resp query_address(const Id& id) {
    rdma_ucm_query_addr_resp response{};
    fill_device(response, id);
    if (id.route.has_device()) {
        response.pkey = htobe16(id.route.pkey);
    }
    response.src_size = static_cast<std::uint16_t>(id.source.size());
    std::memcpy(&response.src_addr, &id.source.storage(), id.source.size());
    response.dst_size = static_cast<std::uint16_t>(id.destination.size());
    std::memcpy(&response.dst_addr, &id.destination.storage(), id.destination.size());
    return response;
}

rdma_ucm_query_addr_resp query_gid(const Id& id) {
    rdma_ucm_query_addr_resp response = query_address(id);
    response.src_size = response.dst_size = sizeof(sockaddr_ib);
    const sockaddr_ib source = infiniband_address(id.source, id.route.sgid, id);
    const sockaddr_ib destination = infiniband_address(id.destination, id.route.dgid, id);
    std::memcpy(&response.src_addr, &source, sizeof source);
    std::memcpy(&response.dst_addr, &destination, sizeof destination);
    return response;
}

ibv_path_data query_path(const Id& id) {
    ibv_path_data data{};
    data.flags = gmp_primary_bidirectional;
    ibv_path_record& path = data.path;
    path.service_id = htobe64((std::uint64_t{id.port_space} << 16U) | id.destination.port());
    std::memcpy(&path.dgid, id.route.dgid.data(), id.route.dgid.size());
    std::memcpy(&path.sgid, id.route.sgid.data(), id.route.sgid.size());
    path.dlid = htobe16(id.route.dlid);
    path.slid = htobe16(id.route.slid);
    path.flowlabel_hoplimit = htobe32(id.route.ethernet ? 64 : 0);
    path.tclass = id.route.traffic_class;
    path.reversible_numpath = reversible_one_path;
    path.pkey = htobe16(id.route.pkey);
    path.qosclass_sl = htobe16(id.route.sl);
    path.mtu = static_cast<std::uint8_t>(exactly_bits | static_cast<std::uint8_t>(id.route.mtu));
    path.rate = exactly_bits | rate_40_gbps;
    path.packetlifetime = exactly_bits | id.route.packet_life_time;
    return data;
}

void set_path(Id& id, const ibv_path_record& path) {
    std::memcpy(id.route.dgid.data(), &path.dgid, id.route.dgid.size());
    id.route.dlid = be16toh(path.dlid);
    id.route.traffic_class = path.tclass;
    id.route.sl = be16toh(path.qosclass_sl) & 0xfU;
    id.route.packet_life_time = path.packetlifetime & 0x1fU;
    const auto mtu = static_cast<ibv_mtu>(path.mtu & 0x1fU);
    if (mtu >= IBV_MTU_256 && mtu <= id.route.mtu) {
        id.route.mtu = mtu;
    }
    id.route.paths = 1;
}

namespace {

constexpr std::uint8_t roce_hop_limit = 64;

/// Returns whether this type of queue pair sends requests that are acknowledged.
bool initiates(ibv_qp_type type) noexcept {
    return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
}
/// Returns whether this type of queue pair acknowledges requests.
bool responds(ibv_qp_type type) noexcept {
    return type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
}

/// Returns the exponent of the ACK timeout: the value that the program has set. If the program has
/// set none, the timeout is twice the packet life time.
std::uint8_t acknowledgement_timeout(const Id& id) noexcept {
    constexpr int max_timeout = 31;
    return id.ack_timeout.value_or(
        static_cast<std::uint8_t>(std::min(max_timeout, id.route.packet_life_time + 1)));
}

void to_init(const Id& id, ib_uverbs_qp_attr& attributes) {
    attributes.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    attributes.port_num = id.route.port;
    if (id.datagram()) {
        attributes.qp_attr_mask |= IBV_QP_QKEY;
        attributes.qkey = queue_key(id.port_space);
        return;
    }
    attributes.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
    if (id.exchanged != Exchanged::nothing) {
        attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (id.responder_resources != 0) {
            attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
    }
}

void to_receive(const Id& id, ib_uverbs_qp_attr& attributes) {
    attributes.qp_attr_mask =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    fill_address_vector(attributes.ah_attr, id.route);
    attributes.path_mtu = static_cast<std::uint32_t>(id.route.mtu);
    attributes.dest_qp_num = id.peer_qp_num;
    attributes.rq_psn = id.receive_psn;
    if (responds(id.qp_type)) {
        attributes.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        attributes.max_dest_rd_atomic = id.responder_resources;
    }
}

void to_send(const Id& id, ib_uverbs_qp_attr& attributes) {
    attributes.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    attributes.sq_psn = id.send_psn;
    if (initiates(id.qp_type)) {
        attributes.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        attributes.retry_cnt = id.retry_count;
        attributes.rnr_retry = id.rnr_retry_count;
        attributes.max_rd_atomic = id.initiator_depth;
    }
    if (initiates(id.qp_type) || responds(id.qp_type)) {
        attributes.qp_attr_mask |= IBV_QP_TIMEOUT;
        attributes.timeout = acknowledgement_timeout(id);
    }
}

} // namespace

void fill_address_vector(ib_uverbs_ah_attr& address, const Route& route) {
    address.dlid = route.dlid;
    address.sl = route.sl;
    address.port_num = route.port;
    // RoCE always needs a GRH. InfiniBand does not need one within a subnet.
    if (route.ethernet) {
        address.is_global = 1;
        std::copy(route.dgid.begin(), route.dgid.end(), address.grh.dgid);
        address.grh.sgid_index = route.sgid_index;
        address.grh.hop_limit = roce_hop_limit;
        address.grh.traffic_class = route.traffic_class;
    }
}

int queue_pair_attributes(const Id& id, std::uint32_t state, ib_uverbs_qp_attr& attributes) {
    if (!id.route.has_device()) {
        return EINVAL;
    }
    attributes = {};
    // Without a connection (for a UD queue pair, or before rdma_connect()), only the attributes of
    // the port are known.
    const bool connected = id.communication_id != 0 && !id.datagram();
    if (connected && (id.exchanged == Exchanged::nothing || id.exchanged == Exchanged::timewait)) {
        return EINVAL;
    }
    if (!connected || state == IBV_QPS_INIT) {
        if (state != IBV_QPS_INIT && !id.datagram()) {
            return EINVAL;
        }
        to_init(id, attributes);
    } else if (state == IBV_QPS_RTR || state == IBV_QPS_RTS) {
        if (id.exchanged == Exchanged::req_sent) {
            return EINVAL; // The number of the peer's queue pair is unknown before the REP.
        }
        state == IBV_QPS_RTR ? to_receive(id, attributes) : to_send(id, attributes);
    } else {
        return EINVAL;
    }
    attributes.qp_state = state;
    return 0;
}

} // namespace softverbs::cm
