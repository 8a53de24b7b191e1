// SPDX-License-Identifier: BSD-3-Clause
#include "cm/local_addresses.hpp"

#include <net/if.h>
#include <sys/socket.h>

#include <iterator>
#include <map>
#include <set>

#include "fabric/network_interfaces.hpp"
#include "fabric/unique_fd.hpp"

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

} // namespace softverbs::cm
