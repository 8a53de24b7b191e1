// SPDX-License-Identifier: BSD-3-Clause
#include "cm/queue_pair_attributes.hpp"

#include <algorithm>
#include <cerrno>

#include "cm/multicast.hpp"

namespace softverbs::cm {

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
