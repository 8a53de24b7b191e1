// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A global identifier (GID): 128 bits in network byte order, in the format of an IPv6 address.
struct RDMABUF_EXPORT Gid {
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] static Gid from_native(const union ibv_gid& gid) noexcept;
    [[nodiscard]] union ibv_gid native() const noexcept;

    /// Returns true if the GID is an IPv4-mapped address (RFC 4291), as RoCE uses for IPv4.
    [[nodiscard]] bool is_ipv4_mapped() const noexcept;
    /// Returns true if the GID is a link-local address (fe80::/10).
    [[nodiscard]] bool is_link_local() const noexcept;
    /// Returns true if all bits of the GID are zero, as in an unused entry of a GID table.
    [[nodiscard]] bool is_zero() const noexcept;

    friend bool operator==(const Gid&, const Gid&) noexcept = default;
};

/// Formats a GID in IPv6 notation.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Gid& gid);

/// The protocol that uses an entry of the GID table. See ibv_query_gid_ex(3).
enum class GidType : std::uint8_t {
    infiniband = IBV_GID_TYPE_IB,
    roce_v1 = IBV_GID_TYPE_ROCE_V1,
    roce_v2 = IBV_GID_TYPE_ROCE_V2,
};

/// Returns "IB", "RoCE v1" or "RoCE v2".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(GidType type) noexcept;

/// An entry of the GID table of a port. The GID of the entry is not zero.
struct GidEntry {
    Gid gid;
    /// The index of this entry in the GID table. AddressHandleOptions::gid_index and
    /// QueuePairOptions::gid_index take this index.
    std::uint8_t index = 0;
    GidType type = GidType::infiniband;
    std::uint8_t port = 0;
    /// The index of the network interface to which the GID belongs, as if_nametoindex(3) returns
    /// the index; 0 for InfiniBand.
    std::uint32_t netdev_ifindex = 0;
};

} // namespace rdmabuf
