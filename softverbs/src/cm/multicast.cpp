// SPDX-License-Identifier: BSD-3-Clause
#include "cm/multicast.hpp"

#include <algorithm>

namespace softverbs::cm {

namespace {

constexpr std::uint16_t first_multicast_lid = 0xc000;
constexpr std::uint16_t multicast_lids = 0x3ffe; // up to 0xfffd; 0xffff is the permissive LID
constexpr std::uint32_t multicast_qp_num = 0xffffff;
/// A byte in the MGIDs of the port space UDP, so that they differ from those of IPoIB.
constexpr std::uint8_t cm_signature = 0x01;

Gid infiniband_gid(const Gid& address, sa_family_t family, std::uint16_t port_space,
                   std::uint16_t pkey) {
    const bool ipv4 = family == AF_INET;
    // An IPv6 address that already is an InfiniBand multicast GID is not changed.
    if (!ipv4 && address[0] == 0xff && (address[1] & 0xf0U) == 0x10 && address[2] == 0xa0 &&
        address[3] == 0x1b) {
        return address;
    }
    Gid gid{};
    gid[0] = 0xff;
    gid[1] = ipv4 ? 0x12 : static_cast<std::uint8_t>(0x10U | (address[1] & 0x0fU));
    gid[2] = ipv4 ? 0x40 : 0x60;
    gid[3] = 0x1b;
    gid[4] = static_cast<std::uint8_t>(pkey >> 8U);
    gid[5] = static_cast<std::uint8_t>(pkey);
    std::copy(address.begin() + 6, address.end(), gid.begin() + 6);
    if (ipv4) {
        std::fill(gid.begin() + 6, gid.begin() + 12, std::uint8_t{0});
        gid[12] &= 0x0fU;
    }
    if (port_space == RDMA_PS_UDP) {
        gid[7] = cm_signature;
    }
    return gid;
}

Gid roce_gid(const Gid& address, sa_family_t family, bool roce_v2) {
    Gid gid = address;
    if (family == AF_INET && !roce_v2) {
        gid[0] = 0xff;
        gid[1] = 0x0e;
    }
    return gid;
}

} // namespace

std::uint32_t queue_key(std::uint16_t port_space) noexcept {
    return port_space == RDMA_PS_IPOIB ? ipoib_queue_key : udp_queue_key;
}

Gid multicast_gid(const Address& group, std::uint16_t port_space, const Route& route) {
    if (group.family() == family_ib || group.is_unspecified()) {
        return group.gid();
    }
    return route.ethernet ? roce_gid(group.gid(), group.family(), route.roce_v2)
                          : infiniband_gid(group.gid(), group.family(), port_space, route.pkey);
}

std::uint16_t multicast_lid(const Gid& mgid, const Route& route) {
    if (route.ethernet) {
        return 0;
    }
    std::uint32_t hash = 2166136261U; // FNV-1a
    for (const std::uint8_t byte : mgid) {
        hash = (hash ^ byte) * 16777619U;
    }
    return static_cast<std::uint16_t>(first_multicast_lid + hash % multicast_lids);
}

rdma_ucm_ud_param multicast_parameters(const Multicast& group, std::uint16_t port_space,
                                       const Route& route) {
    rdma_ucm_ud_param parameters{};
    parameters.qp_num = multicast_qp_num;
    parameters.qkey = queue_key(port_space);
    std::copy(group.mgid.begin(), group.mgid.end(), parameters.ah_attr.grh.dgid);
    parameters.ah_attr.grh.sgid_index = route.sgid_index;
    parameters.ah_attr.grh.hop_limit = 1;
    parameters.ah_attr.dlid = group.mlid;
    parameters.ah_attr.is_global = 1;
    parameters.ah_attr.port_num = route.port;
    return parameters;
}

} // namespace softverbs::cm
