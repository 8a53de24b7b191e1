// SPDX-License-Identifier: BSD-3-Clause
#include "cm/queries.hpp"

#include <endian.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <cstring>

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

} // namespace softverbs::cm
