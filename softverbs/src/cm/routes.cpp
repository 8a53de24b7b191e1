// SPDX-License-Identifier: BSD-3-Clause
#include "cm/routes.hpp"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>

#include "fabric/network_interfaces.hpp"
#include "fabric/unique_fd.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

/// Calls @p function with the interface name and the address for each IPv4 and IPv6 address of this
/// machine, except loopback.
template <class Function>
void for_each_local_address(const Function& function) {
    fabric::for_each_interface_address([&function](const ifaddrs& entry) {
        const auto address = Address::parse(*entry.ifa_addr);
        if ((entry.ifa_flags & IFF_LOOPBACK) == 0 && address) {
            function(entry.ifa_name, *address);
        }
    });
}

} // namespace

std::optional<LocalAddress> find_local(const Address& address) {
    const Gid wanted = address.gid();
    if (address.is_loopback()) {
        return LocalAddress{true, wanted.back() == 0 ? 0U : wanted.back() - 1U};
    }
    std::set<unsigned> indexes;
    std::optional<unsigned> found;
    for_each_local_address([&](const char* name, const Address& local) {
        const unsigned index = ::if_nametoindex(name);
        indexes.insert(index);
        if (local.gid() == wanted) {
            found = index;
        }
    });
    if (!found) {
        return std::nullopt;
    }
    return LocalAddress{
        false, static_cast<unsigned>(std::distance(indexes.begin(), indexes.find(*found)))};
}

std::vector<std::string> local_interfaces() {
    std::map<unsigned, std::string> by_index;
    for_each_local_address([&](const char* name, const Address& /*local*/) {
        by_index.emplace(::if_nametoindex(name), name);
    });
    std::vector<std::string> names;
    names.reserve(by_index.size());
    for (const auto& [index, name] : by_index) {
        names.push_back(name);
    }
    return names.empty() ? std::vector<std::string>{"lo"} : names;
}

std::optional<Address> route_source(const Address& destination) {
    const fabric::UniqueFd socket(::socket(destination.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) {
        return std::nullopt;
    }
    Address target = destination;
    if (target.port() == 0) {
        target.set_port(1); // connect(2) to port 0 fails on some kernels; nothing is sent.
    }
    sockaddr_storage name{};
    socklen_t length = sizeof name;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target.storage()),
                  static_cast<socklen_t>(target.size())) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
        return std::nullopt;
    }
    auto source = Address::parse(&name, length);
    if (source) {
        source->set_port(0);
    }
    return source;
}

namespace {

/// Exponent of the packet life time: 4.096 µs * 2^16, about 0.3 seconds, as in the kernel for RoCE.
constexpr std::uint8_t packet_life_time = 16;

/// Returns the index of a GID in the GID table of a port, or -1 if the table does not contain it.
/// Prefers a RoCE v2 entry.
int find_gid(const Port& port, const Gid& wanted) {
    int found = -1;
    for (const ibv_gid_entry& entry : port.gids) {
        if (gid_of(entry.gid) == wanted && (found < 0 || entry.gid_type == IBV_GID_TYPE_ROCE_V2)) {
            found = static_cast<int>(entry.gid_index);
        }
    }
    return found;
}

/// Returns the GID table entry for an address: the entry with this address if there is one,
/// otherwise the last RoCE v2 entry, otherwise the first entry.
const ibv_gid_entry* gid_for(const Port& port, const Address& address) {
    const int own = find_gid(port, address.gid());
    const ibv_gid_entry* chosen = nullptr;
    for (const ibv_gid_entry& entry : port.gids) {
        if (own >= 0 ? static_cast<int>(entry.gid_index) == own
                     : chosen == nullptr || entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
            chosen = &entry;
        }
    }
    return chosen;
}

bool is_ethernet(const Port& port) noexcept {
    return port.attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
}

} // namespace

bool has_device_gid(const Gid& gid) {
    const Guard guard;
    return std::ranges::any_of(process().devices, [&gid](const auto& device) {
        return std::ranges::any_of(device->ports,
                                   [&gid](const Port& port) { return find_gid(port, gid) >= 0; });
    });
}

Device* find_device(const Address& address, int& error) {
    const auto local = find_local(address);
    const Guard guard;
    const auto& devices = process().devices;
    for (const auto& device : devices) {
        for (const Port& port : device->ports) {
            if (find_gid(port, address.gid()) >= 0) {
                return device.get();
            }
        }
    }
    error = !local ? EADDRNOTAVAIL : ENODEV;
    return local && !devices.empty() ? devices[local->ordinal % devices.size()].get() : nullptr;
}

Device* find_network_device(const Address& destination, const Address* bound, Address& source) {
    const auto selected = route_source(destination);
    if (!selected) {
        return nullptr;
    }
    const Guard guard;
    Device* chosen = nullptr;
    for (const auto& device : process().devices) {
        const Gid& gid = device->address.bytes;
        if (fabric::is_ipv4(device->address) != (destination.family() == AF_INET) ||
            (bound != nullptr && bound->gid() != gid)) {
            continue;
        }
        if (chosen == nullptr || gid == selected->gid()) {
            chosen = device.get();
            source = Address::from_gid(gid, destination.family());
        }
    }
    return chosen;
}

void set_device(Route& route, Device& device, const Address& source) {
    const Guard guard;
    const Port& port = device.ports.front();
    route.device = device.index;
    route.guid = device.guid;
    route.port = 1;
    route.ethernet = is_ethernet(port);
    route.mtu = port.attributes.active_mtu;
    route.packet_life_time = packet_life_time;
    route.pkey = port.pkeys.empty() ? std::uint16_t{0xffff} : port.pkeys.front();
    route.slid = port.attributes.lid;
    if (const ibv_gid_entry* const entry = gid_for(port, source); entry != nullptr) {
        route.sgid = gid_of(entry->gid);
        route.sgid_index = static_cast<std::uint8_t>(entry->gid_index);
        route.roce_v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;
    }
}

void set_destination(Route& route, Device& device, const Address& destination) {
    const Guard guard;
    const Port& port = device.ports.front();
    route.dlid = port.attributes.lid;
    if (const ibv_gid_entry* const entry = gid_for(port, destination); entry != nullptr) {
        route.dgid = gid_of(entry->gid);
    }
}

} // namespace softverbs::cm
