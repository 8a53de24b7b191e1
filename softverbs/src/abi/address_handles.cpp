// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>

#include <cstring>

#include "abi/verbs.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

namespace {

ibv_gid mapped(const std::byte* address) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, address, 4);
    return gid;
}

/// The addresses in the Global Routing Header (GRH) of a received message. With RoCE v2 over IPv4,
/// the 20 bytes at offset 20 of the GRH buffer are an IPv4 header, and the first 20 bytes are
/// undefined.
struct Route {
    ibv_gid from{};
    ibv_gid to{};
    std::uint32_t flow_label = 0;
    std::uint8_t traffic_class = 0;
    bool ipv4 = false;
};

Route route_of(const ibv_grh& grh) {
    const std::uint32_t first = be32toh(grh.version_tclass_flow);
    if (first >> 28 == 6) {
        return {grh.sgid, grh.dgid, first & IB_GRH_FLOWLABEL_MASK,
                static_cast<std::uint8_t>(first >> 20), false};
    }
    const auto* const header = reinterpret_cast<const std::byte*>(&grh) + 20;
    return {mapped(header + 12), mapped(header + 16), 0, static_cast<std::uint8_t>(header[1]),
            true};
}

/// Searches the GID table of the port for route.to, the destination GID of a received message.
/// Returns the index of the entry, or -1 if the table does not contain this GID.
int gid_index(const Port& port, const Route& route) {
    int found = -1;
    for (std::size_t i = 0; i < port.gids.size(); ++i) {
        const ibv_gid_entry& entry = port.gids[i];
        if (std::memcmp(&entry.gid, &route.to, sizeof route.to) == 0) {
            found = static_cast<int>(i);
            // A RoCE v1 entry and a RoCE v2 entry can have the same GID. For an IPv4 header, prefer
            // the v2 entry.
            if (!route.ipv4 || entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
                return found;
            }
        }
    }
    return found;
}

int init_address(Context& context, std::uint8_t port_number, const ibv_wc& completion,
                 const ibv_grh* grh, ibv_ah_attr& out) {
    const Port* const port = context.device->port(port_number);
    if (port == nullptr) {
        return EINVAL;
    }
    out = {};
    out.dlid = completion.slid;
    out.sl = completion.sl;
    out.src_path_bits = completion.dlid_path_bits;
    out.port_num = port_number;
    if ((completion.wc_flags & IBV_WC_GRH) == 0) {
        return 0;
    }
    const Route route = route_of(*grh);
    const int index = gid_index(*port, route);
    if (index < 0) {
        return EINVAL;
    }
    out.is_global = 1;
    out.grh.dgid = route.from;
    out.grh.sgid_index = static_cast<std::uint8_t>(index);
    out.grh.flow_label = route.flow_label;
    out.grh.traffic_class = route.traffic_class;
    out.grh.hop_limit = 0xff;
    return 0;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
    return verb<ibv_create_ah, "ibv_create_ah", create_ah>(pd, attributes);
}

SOFTVERBS_ENTRY int ibv_init_ah_from_wc(ibv_context* native, std::uint8_t port, ibv_wc* completion,
                                        ibv_grh* grh, ibv_ah_attr* attributes) {
    Context* const context = ours(native);
    if (context == nullptr) {
        return forward<ibv_init_ah_from_wc>("ibv_init_ah_from_wc", native, port, completion, grh,
                                            attributes);
    }
    const Guard guard;
    return init_address(*context, port, *completion, grh, *attributes);
}

SOFTVERBS_ENTRY ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh,
                                              std::uint8_t port) {
    Context* const context = ours(pd->context);
    if (context == nullptr) {
        return forward<ibv_create_ah_from_wc>("ibv_create_ah_from_wc", pd, completion, grh, port);
    }
    return call("ibv_create_ah", *context, [&]() -> ibv_ah* {
        ibv_ah_attr attributes{};
        const int error = init_address(*context, port, *completion, grh, attributes);
        return error != 0 ? fail(error) : create_ah(*static_cast<Pd*>(pd), attributes);
    });
}

SOFTVERBS_ENTRY int ibv_destroy_ah(ibv_ah* ah) {
    return destroying_verb<ibv_destroy_ah, "ibv_destroy_ah", destroy_ah>(ah);
}

SOFTVERBS_ENTRY int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                                std::uint8_t mac[ETHERNET_LL_SIZE],
                                                std::uint16_t* vid) {
    // Not supported for softverbs devices, because they have no Ethernet MAC addresses.
    return ours(context) != nullptr
               ? EOPNOTSUPP
               : forward<ibv_resolve_eth_l2_from_gid>("ibv_resolve_eth_l2_from_gid", context,
                                                      attributes, mac, vid);
}
