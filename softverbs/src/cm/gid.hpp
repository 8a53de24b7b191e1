// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fabric/host_address.hpp"

namespace softverbs::cm {

/// A GID in network byte order. The GID of an IPv4 address is the IPv4-mapped IPv6 address.
using Gid = std::array<std::uint8_t, 16>;

[[nodiscard]] inline Gid gid_of(const ibv_gid& native) noexcept {
    Gid gid;
    std::memcpy(gid.data(), &native, gid.size());
    return gid;
}

[[nodiscard]] inline Gid gid_of(const fabric::HostAddress& address) noexcept {
    Gid gid;
    std::memcpy(gid.data(), address.bytes.data(), gid.size());
    return gid;
}

[[nodiscard]] inline fabric::HostAddress host_of(const Gid& gid) noexcept {
    fabric::HostAddress address;
    std::memcpy(address.bytes.data(), gid.data(), gid.size());
    return address;
}

/// Returns whether the GID of an address of @p family is the unspecified address, such as 0.0.0.0.
[[nodiscard]] inline bool is_unspecified(const Gid& gid, sa_family_t family) noexcept {
    constexpr std::ptrdiff_t mapped_prefix = 12; // bytes before the IPv4 address
    return std::all_of(gid.begin() + (family == AF_INET ? mapped_prefix : 0), gid.end(),
                       [](std::uint8_t byte) { return byte == 0; });
}

} // namespace softverbs::cm
