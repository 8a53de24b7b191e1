// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A global identifier: 128 bits in network byte order, an IPv6 address in form.
struct RDMABUF_EXPORT Gid {
    std::array<std::uint8_t, 16> bytes{};

    [[nodiscard]] static Gid from_native(const union ibv_gid& gid) noexcept;
    [[nodiscard]] union ibv_gid native() const noexcept;

    /// Whether it is ::ffff:a.b.c.d, which is how RoCE spells an IPv4 address.
    [[nodiscard]] bool is_ipv4_mapped() const noexcept;
    /// Whether it lies in fe80::/10.
    [[nodiscard]] bool is_link_local() const noexcept;
    /// Whether all bits are zero: an unused table entry.
    [[nodiscard]] bool is_zero() const noexcept;

    friend bool operator==(const Gid&, const Gid&) noexcept = default;
};

/// In IPv6 notation, as ibv_devinfo -v prints it.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Gid& gid);

/// What a GID table entry is used with. ibv_query_gid_ex(3).
enum class GidType : std::uint8_t {
    infiniband = IBV_GID_TYPE_IB,
    roce_v1 = IBV_GID_TYPE_ROCE_V1,
    roce_v2 = IBV_GID_TYPE_ROCE_V2,
};

/// "IB", "RoCE v1" or "RoCE v2".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(GidType type) noexcept;

/// One used entry of a port's GID table.
struct GidEntry {
    Gid gid;
    /// Its index in the table: what an address handle and a queue pair are given.
    std::uint8_t index = 0;
    GidType type = GidType::infiniband;
    std::uint8_t port = 0;
    /// The network interface it belongs to, as if_nametoindex(3) counts; 0 for InfiniBand.
    std::uint32_t netdev_ifindex = 0;
};

} // namespace rdmabuf
