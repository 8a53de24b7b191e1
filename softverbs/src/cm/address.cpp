// SPDX-License-Identifier: BSD-3-Clause
#include "cm/address.hpp"

#include <endian.h>
#include <infiniband/ib.h>

#include <algorithm>

namespace softverbs::cm {

namespace {

constexpr std::size_t ipv4_offset = 12;

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
    std::memcpy(&parsed.storage_, sockaddr, size);
    return parsed;
}

std::optional<Address> Address::parse(const sockaddr& address) {
    return parse(&address, size_of_family(address.sa_family));
}

Address Address::unspecified(sa_family_t family) {
    Address made;
    made.storage_.ss_family = family;
    return made;
}

Address Address::from_gid(const Gid& gid, sa_family_t family) {
    Address made = unspecified(family);
    if (family == AF_INET) {
        auto native = made.as<sockaddr_in>();
        std::memcpy(&native.sin_addr, gid.data() + ipv4_offset, sizeof native.sin_addr);
        std::memcpy(&made.storage_, &native, sizeof native);
    } else if (family == AF_INET6) {
        auto native = made.as<sockaddr_in6>();
        std::memcpy(&native.sin6_addr, gid.data(), gid.size());
        std::memcpy(&made.storage_, &native, sizeof native);
    } else {
        auto native = made.as<sockaddr_ib>();
        std::memcpy(&native.sib_addr, gid.data(), gid.size());
        std::memcpy(&made.storage_, &native, sizeof native);
    }
    return made;
}

std::size_t Address::size() const noexcept {
    return size_of_family(family());
}

std::uint16_t Address::port() const noexcept {
    switch (family()) {
        case AF_INET:
            return ntohs(as<sockaddr_in>().sin_port);
        case AF_INET6:
            return ntohs(as<sockaddr_in6>().sin6_port);
        case family_ib:
            return static_cast<std::uint16_t>(be64toh(as<sockaddr_ib>().sib_sid));
        default:
            return 0;
    }
}

void Address::set_port(std::uint16_t port) noexcept {
    if (family() == AF_INET) {
        auto native = as<sockaddr_in>();
        native.sin_port = htons(port);
        std::memcpy(&storage_, &native, sizeof native);
    } else if (family() == AF_INET6) {
        auto native = as<sockaddr_in6>();
        native.sin6_port = htons(port);
        std::memcpy(&storage_, &native, sizeof native);
    } else if (family() == family_ib) {
        auto native = as<sockaddr_ib>();
        native.sib_sid = htobe64((be64toh(native.sib_sid) & ~std::uint64_t{0xffff}) | port);
        native.sib_sid_mask = ~std::uint64_t{0};
        std::memcpy(&storage_, &native, sizeof native);
    }
}

std::uint16_t Address::service_port_space() const noexcept {
    return family() == family_ib
               ? static_cast<std::uint16_t>(be64toh(as<sockaddr_ib>().sib_sid) >> 16U)
               : std::uint16_t{0};
}

void Address::set_service_port_space(std::uint16_t port_space) noexcept {
    if (family() == family_ib) {
        auto native = as<sockaddr_ib>();
        native.sib_sid =
            htobe64((std::uint64_t{port_space} << 16U) | (be64toh(native.sib_sid) & 0xffffU));
        std::memcpy(&storage_, &native, sizeof native);
    }
}

Gid Address::gid() const noexcept {
    Gid gid{};
    if (family() == AF_INET) {
        const auto native = as<sockaddr_in>();
        gid[10] = gid[11] = 0xff;
        std::memcpy(gid.data() + ipv4_offset, &native.sin_addr, sizeof native.sin_addr);
    } else if (family() == AF_INET6) {
        const auto native = as<sockaddr_in6>();
        std::memcpy(gid.data(), &native.sin6_addr, gid.size());
    } else if (family() == family_ib) {
        const auto native = as<sockaddr_ib>();
        std::memcpy(gid.data(), &native.sib_addr, gid.size());
    }
    return gid;
}

std::uint32_t Address::scope() const noexcept {
    return family() == AF_INET6 ? as<sockaddr_in6>().sin6_scope_id : 0;
}

bool Address::is_unspecified() const noexcept {
    return cm::is_unspecified(gid(), family());
}

bool Address::is_loopback() const noexcept {
    const Gid bytes = gid();
    const bool mapped = std::all_of(bytes.begin(), bytes.begin() + 10,
                                    [](std::uint8_t byte) { return byte == 0; }) &&
                        bytes[10] == 0xff && bytes[11] == 0xff;
    if (family() == AF_INET || (family() == AF_INET6 && mapped)) {
        return bytes[ipv4_offset] == 127;
    }
    Gid loopback{};
    loopback.back() = 1;
    return family() == AF_INET6 && bytes == loopback;
}

bool Address::is_multicast() const noexcept {
    const Gid bytes = gid();
    return family() == AF_INET ? (bytes[ipv4_offset] & 0xf0U) == 0xe0 : bytes[0] == 0xff;
}

bool same_host(const Address& left, const Address& right) noexcept {
    return left.family() == right.family() && left.gid() == right.gid();
}

} // namespace softverbs::cm
