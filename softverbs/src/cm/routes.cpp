// SPDX-License-Identifier: BSD-3-Clause
#include "cm/routes.hpp"

#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "fabric/network_interfaces.hpp"
#include "fabric/unique_fd.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

struct Interface {
    std::string name;
    std::vector<Gid> addresses; // IPv4 and IPv6
};

/// Returns the network interfaces with IPv4 or IPv6 addresses, without loopback, by their kernel
/// indices.
std::map<unsigned, Interface> list_interfaces() {
    std::map<unsigned, Interface> interfaces;
    fabric::for_each_interface_address([&interfaces](const ifaddrs& entry) {
        const auto address = Address::parse(*entry.ifa_addr);
        if ((entry.ifa_flags & IFF_LOOPBACK) == 0 && address) {
            Interface& interface = interfaces[::if_nametoindex(entry.ifa_name)];
            interface.name = entry.ifa_name;
            interface.addresses.push_back(address->gid());
        }
    });
    return interfaces;
}

/// Returns a number with which find_device() selects the device for an address of this machine. For
/// 127.0.0.N, it is N - 1; for ::1, it is 0. For other addresses, it is the index, from 0, of the
/// network interface that has the address. Returns no value if this machine does not have the
/// address.
std::optional<unsigned> ordinal_of(const Address& address) {
    const Gid wanted = address.gid();
    if (address.is_loopback()) {
        return wanted.back() == 0 ? 0U : wanted.back() - 1U;
    }
    unsigned ordinal = 0;
    for (const auto& [index, interface] : list_interfaces()) {
        if (std::ranges::find(interface.addresses, wanted) != interface.addresses.end()) {
            return ordinal;
        }
        ++ordinal;
    }
    return std::nullopt;
}

} // namespace

std::vector<std::string> local_interfaces() {
    std::vector<std::string> names;
    for (const auto& [index, interface] : list_interfaces()) {
        names.push_back(interface.name);
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

/// Returns the entry of the GID table of a port for which @p chosen returns true. If there are
/// several, prefers the last RoCE v2 entry. Returns null if there is none.
template <class Predicate>
const ibv_gid_entry* find_entry(const Port& port, const Predicate& chosen) {
    const ibv_gid_entry* found = nullptr;
    for (const ibv_gid_entry& entry : port.gids) {
        if (chosen(entry) && (found == nullptr || entry.gid_type == IBV_GID_TYPE_ROCE_V2)) {
            found = &entry;
        }
    }
    return found;
}

const ibv_gid_entry* find_gid(const Port& port, const Gid& wanted) {
    return find_entry(port, [&](const auto& entry) { return gid_of(entry.gid) == wanted; });
}

/// Returns the GID table entry for an address: the entry with this address if there is one,
/// otherwise the last RoCE v2 entry, otherwise the first entry.
const ibv_gid_entry* gid_for(const Port& port, const Address& address) {
    const ibv_gid_entry* const own = find_gid(port, address.gid());
    return own != nullptr ? own : find_entry(port, [](const auto&) { return true; });
}

/// Returns the device that has the GID, or null. The caller must hold Process::lock.
Device* device_with(const Gid& gid) {
    const auto has_gid = [&gid](const Port& port) { return find_gid(port, gid) != nullptr; };
    for (const auto& device : process().devices) {
        if (std::ranges::any_of(device->ports, has_gid)) {
            return device.get();
        }
    }
    return nullptr;
}

bool is_ethernet(const Port& port) noexcept {
    return port.attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
}

} // namespace

bool has_device_gid(const Gid& gid) {
    const Guard guard;
    return device_with(gid) != nullptr;
}

Device* find_device(const Address& address, int& error) {
    const auto ordinal = ordinal_of(address);
    const Guard guard;
    if (Device* const found = device_with(address.gid()); found != nullptr) {
        return found;
    }
    const auto& devices = process().devices;
    error = !ordinal ? EADDRNOTAVAIL : ENODEV;
    return ordinal && !devices.empty() ? devices[*ordinal % devices.size()].get() : nullptr;
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
