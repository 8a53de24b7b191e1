// SPDX-License-Identifier: BSD-3-Clause
#include "transport/listen_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <tuple>

#include <rdmabuf/detail/check.hpp>

#include "base/text.hpp"

namespace rdmabuf::detail {
namespace {

/// Returns the interfaces of the default routes, from the kernel's IPv4 routing table in
/// /proc/net/route; see proc(5).
std::set<std::string> default_route_interfaces() {
    std::set<std::string> interfaces;
    std::ifstream routes("/proc/net/route");
    std::string line;
    std::getline(routes, line); // skips the names of the columns
    while (std::getline(routes, line)) {
        std::istringstream fields(line);
        std::string interface;
        std::string destination;
        if (fields >> interface >> destination && destination == "00000000") {
            interfaces.insert(interface);
        }
    }
    return interfaces;
}

bool has_entry(const std::string& interface, const char* name) {
    std::error_code error;
    return std::filesystem::exists("/sys/class/net/" + interface + "/" + name, error);
}

bool is_literal(const std::string& host) {
    std::array<std::byte, sizeof(in6_addr)> parsed{};
    const std::string without_scope = host.substr(0, host.find('%'));
    return ::inet_pton(AF_INET, host.c_str(), parsed.data()) == 1 ||
           ::inet_pton(AF_INET6, without_scope.c_str(), parsed.data()) == 1;
}

socklen_t size_of(const sockaddr_storage& address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

/// Formats an address, with the scope of a link-local address: "fe80::1%eth0".
std::string text_of(const sockaddr_storage& address) {
    std::array<char, NI_MAXHOST> text{};
    const int result = ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size_of(address),
                                     text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    check_zero(result == 0 ? 0 : EINVAL, "getnameinfo");
    return text.data();
}

} // namespace

std::vector<InterfaceAddress> interface_addresses() {
    ifaddrs* first = nullptr;
    check_zero(::getifaddrs(&first), "getifaddrs");
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
    const std::set<std::string> default_routes = default_route_interfaces();
    std::vector<InterfaceAddress> addresses;
    for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0 ||
            (each->ifa_addr->sa_family != AF_INET && each->ifa_addr->sa_family != AF_INET6)) {
            continue;
        }
        InterfaceAddress& added =
            addresses.emplace_back(InterfaceAddress{.interface = each->ifa_name});
        added.address.ss_family = each->ifa_addr->sa_family;
        std::memcpy(&added.address, each->ifa_addr, size_of(added.address));
        added.is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
        added.is_bridge = has_entry(added.interface, "bridge");
        added.has_device = has_entry(added.interface, "device");
        added.has_default_route = default_routes.contains(added.interface);
    }
    return addresses;
}

const InterfaceAddress* best_address(const std::vector<InterfaceAddress>& addresses) {
    // Returns the properties of an address as a tuple, the most important property first. The
    // address with the greatest tuple is the best.
    const auto rank = [](const InterfaceAddress& address) {
        return std::tuple(!address.is_loopback, address.has_default_route, !address.is_bridge,
                          address.has_device, address.address.ss_family == AF_INET);
    };
    const auto best = std::max_element(
        addresses.begin(), addresses.end(),
        [&](const auto& left, const auto& right) { return rank(left) < rank(right); });
    return best == addresses.end() ? nullptr : &*best;
}

std::string listen_address(const std::string& host) {
    if (is_literal(host)) {
        return host;
    }
    std::vector<InterfaceAddress> addresses = interface_addresses();
    if (!host.empty()) {
        std::erase_if(addresses, [&](const auto& each) { return each.interface != host; });
    }
    const InterfaceAddress* const best = best_address(addresses);
    if (best == nullptr) {
        raise(ENODEV, "getifaddrs",
              host.empty() ? std::string("no interface is up and has an address")
                           : "no interface " + quote(host) +
                                 " is up and has an address; `ip address` lists the interfaces");
    }
    return text_of(best->address);
}

} // namespace rdmabuf::detail
