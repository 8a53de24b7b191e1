// SPDX-License-Identifier: BSD-3-Clause
#include "cm/address.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

namespace softverbs::cm {

namespace {

constexpr std::size_t ipv4_offset = 12; // bytes before an IPv4 address in a GID

std::size_t size_of_family(sa_family_t family) noexcept {
    switch (family) {
        case AF_INET:
            return sizeof(sockaddr_in);
        case AF_INET6:
            return sizeof(sockaddr_in6);
        case family_ib:
            return sizeof(sockaddr_ib);
        default:
            return 0;
    }
}

} // namespace

std::optional<Address> Address::parse(const void* sockaddr, std::size_t size) {
    sa_family_t family = 0;
    std::memcpy(&family, sockaddr, sizeof family);
    const std::size_t expected = size_of_family(family);
    if (expected == 0 || size != expected) {
        return std::nullopt;
    }
    Address parsed;
    std::memcpy(&parsed.storage_.any, sockaddr, size);
    return parsed;
}

std::optional<Address> Address::parse(const sockaddr& address) {
    return parse(&address, size_of_family(address.sa_family));
}

Address Address::unspecified(sa_family_t family) {
    Address made;
    made.storage_.any.ss_family = family;
    return made;
}

Address Address::from_gid(const Gid& gid, sa_family_t family) {
    Address made = unspecified(family);
    if (family == AF_INET) {
        std::memcpy(&made.storage_.ipv4.sin_addr, gid.data() + ipv4_offset,
                    sizeof storage_.ipv4.sin_addr);
    } else if (family == AF_INET6) {
        std::memcpy(&made.storage_.ipv6.sin6_addr, gid.data(), gid.size());
    } else {
        std::memcpy(&made.storage_.ib.sib_addr, gid.data(), gid.size());
    }
    return made;
}

std::size_t Address::size() const noexcept {
    return size_of_family(family());
}

std::uint16_t Address::port() const noexcept {
    switch (family()) {
        case AF_INET:
            return ntohs(storage_.ipv4.sin_port);
        case AF_INET6:
            return ntohs(storage_.ipv6.sin6_port);
        case family_ib:
            return static_cast<std::uint16_t>(be64toh(storage_.ib.sib_sid));
        default:
            return 0;
    }
}

void Address::set_port(std::uint16_t port) noexcept {
    if (family() == AF_INET) {
        storage_.ipv4.sin_port = htons(port);
    } else if (family() == AF_INET6) {
        storage_.ipv6.sin6_port = htons(port);
    } else if (family() == family_ib) {
        storage_.ib.sib_sid =
            htobe64((be64toh(storage_.ib.sib_sid) & ~std::uint64_t{0xffff}) | port);
        storage_.ib.sib_sid_mask = ~std::uint64_t{0};
    }
}

std::uint16_t Address::service_port_space() const noexcept {
    return family() == family_ib ? static_cast<std::uint16_t>(be64toh(storage_.ib.sib_sid) >> 16U)
                                 : std::uint16_t{0};
}

void Address::set_service_port_space(std::uint16_t port_space) noexcept {
    if (family() == family_ib) {
        storage_.ib.sib_sid =
            htobe64((std::uint64_t{port_space} << 16U) | (be64toh(storage_.ib.sib_sid) & 0xffffU));
    }
}

Gid Address::gid() const noexcept {
    Gid gid{};
    if (family() == AF_INET) {
        gid[10] = gid[11] = 0xff;
        std::memcpy(gid.data() + ipv4_offset, &storage_.ipv4.sin_addr,
                    sizeof storage_.ipv4.sin_addr);
    } else if (family() == AF_INET6) {
        std::memcpy(gid.data(), &storage_.ipv6.sin6_addr, gid.size());
    } else if (family() == family_ib) {
        std::memcpy(gid.data(), &storage_.ib.sib_addr, gid.size());
    }
    return gid;
}

bool is_unspecified(const Gid& gid, sa_family_t family) noexcept {
    return std::all_of(gid.begin() + (family == AF_INET ? ipv4_offset : 0), gid.end(),
                       [](std::uint8_t byte) { return byte == 0; });
}

bool Address::is_unspecified() const noexcept {
    return cm::is_unspecified(gid(), family());
}

bool Address::is_loopback() const noexcept {
    if (family() == AF_INET ||
        (family() == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&storage_.ipv6.sin6_addr))) {
        return gid()[ipv4_offset] == 127;
    }
    return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.ipv6.sin6_addr);
}

bool Address::is_multicast() const noexcept {
    const Gid bytes = gid();
    return family() == AF_INET ? (bytes[ipv4_offset] & 0xf0U) == 0xe0 : bytes[0] == 0xff;
}

bool same_host(const Address& left, const Address& right) noexcept {
    return left.family() == right.family() && left.gid() == right.gid();
}

} // namespace softverbs::cm
