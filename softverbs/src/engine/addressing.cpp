// SPDX-License-Identifier: BSD-3-Clause
#include "engine/addressing.hpp"

#include <algorithm>
#include <cstring>

#include "objects/process.hpp"

namespace softverbs {

namespace {

/// Returns the index of the softverbs device of this host whose port has the address @p address, or
/// -1 if there is none. If the link layer of @p from is InfiniBand, the DLID selects the port, and
/// the GID in the address, if there is one, must be a GID of this port. If the link layer is
/// Ethernet, the GID selects the port.
int device_of_this_host(const Device& from, const ibv_ah_attr& address) {
    const auto layer_of = [](const Port& port) { return port.attributes.link_layer; };
    const bool by_lid = layer_of(from.ports.front()) == IBV_LINK_LAYER_INFINIBAND;
    for (const auto& device : process().devices) {
        for (const Port& port : device->ports) {
            const auto has_gid = [&](const ibv_gid_entry& entry) {
                return std::memcmp(&entry.gid, &address.grh.dgid, sizeof(ibv_gid)) == 0;
            };
            const bool has_lid =
                layer_of(port) == IBV_LINK_LAYER_INFINIBAND && port.attributes.lid == address.dlid;
            const bool right_gid =
                address.is_global != 0 ? std::ranges::any_of(port.gids, has_gid) : by_lid;
            if ((has_lid || !by_lid) && right_gid) {
                return static_cast<int>(device->index);
            }
        }
    }
    return -1;
}

} // namespace

Destination destination_of(const Device& from, const ibv_ah_attr& address) {
    Destination destination{device_of_this_host(from, address), {}};
    if (destination.device >= 0 || address.is_global == 0 || !from.address) {
        return destination;
    }
    fabric::HostAddress host;
    std::memcpy(host.bytes.data(), &address.grh.dgid, host.bytes.size());
    // Another host can be reached only if its IP address and that of the local device are of the
    // same family.
    if (is_global(host) && is_ipv4(host) == is_ipv4(from.address)) {
        destination.device = device_by_address;
        destination.route = {from.address, host};
    }
    return destination;
}

bool is_addressed_to(const Qp& qp, const fabric::Connection* from, std::uint8_t index) {
    const Device& device = device_of(qp.qp_base);
    const bool connected = !is_datagram(qp.type());
    if (from == nullptr || !from->between_hosts()) {
        return index == device.index && (!connected || !qp.requester.route.remote);
    }
    return from->route().local == device.address &&
           (!connected || from->route() == qp.requester.route);
}

} // namespace softverbs
