// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/host_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace softverbs::fabric {
namespace {

constexpr std::size_t mapped_prefix = 12;

in6_addr ipv6_of(const HostAddress& address) noexcept {
    in6_addr result{};
    std::memcpy(&result, address.bytes.data(), sizeof result);
    return result;
}

HostAddress mapped(const in_addr& address) noexcept {
    HostAddress result;
    result.bytes[10] = result.bytes[11] = 0xff;
    std::memcpy(result.bytes.data() + mapped_prefix, &address, sizeof address);
    return result;
}

} // namespace

bool is_ipv4(const HostAddress& address) noexcept {
    const in6_addr ipv6 = ipv6_of(address);
    return IN6_IS_ADDR_V4MAPPED(&ipv6);
}

bool is_global(const HostAddress& address) noexcept {
    if (is_ipv4(address)) {
        const auto first = unsigned{address.bytes[mapped_prefix]};
        const auto second = unsigned{address.bytes[mapped_prefix + 1]};
        const bool link_local = first == 169 && second == 254;
        return first != 0 && first != 127 && first < 224 && !link_local;
    }
    const in6_addr ipv6 = ipv6_of(address);
    return !IN6_IS_ADDR_UNSPECIFIED(&ipv6) && !IN6_IS_ADDR_LOOPBACK(&ipv6) &&
           !IN6_IS_ADDR_LINKLOCAL(&ipv6) && !IN6_IS_ADDR_MULTICAST(&ipv6);
}

std::string to_string(const HostAddress& address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (is_ipv4(address)) {
        ::inet_ntop(AF_INET, address.bytes.data() + mapped_prefix, text.data(), text.size());
    } else {
        ::inet_ntop(AF_INET6, address.bytes.data(), text.data(), text.size());
    }
    return text.data();
}

std::optional<HostAddress> parse_host_address(const std::string& text) {
    in_addr ipv4{};
    if (::inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
        return mapped(ipv4);
    }
    HostAddress address;
    if (::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1) {
        return address;
    }
    return std::nullopt;
}

SocketAddress::SocketAddress(const HostAddress& host, std::uint16_t port) noexcept {
    if (is_ipv4(host)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        std::memcpy(&address.sin_addr, host.bytes.data() + mapped_prefix, sizeof address.sin_addr);
        std::memcpy(&storage, &address, sizeof address);
        length = sizeof address;
        return;
    }
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = ipv6_of(host);
    std::memcpy(&storage, &address, sizeof address);
    length = sizeof address;
}

std::optional<HostAddress> host_of(const sockaddr& address) noexcept {
    if (address.sa_family == AF_INET) {
        sockaddr_in ipv4{};
        std::memcpy(&ipv4, &address, sizeof ipv4);
        return mapped(ipv4.sin_addr);
    }
    if (address.sa_family == AF_INET6) {
        sockaddr_in6 ipv6{};
        std::memcpy(&ipv6, &address, sizeof ipv6);
        HostAddress result;
        std::memcpy(result.bytes.data(), &ipv6.sin6_addr, result.bytes.size());
        return result;
    }
    return std::nullopt;
}

} // namespace softverbs::fabric
