// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

namespace softverbs::cm {

/// A GID in network byte order. The GID of an IPv4 address is the IPv4-mapped IPv6 address.
using Gid = std::array<std::uint8_t, 16>;

[[nodiscard]] inline Gid gid_of(const ibv_gid& native) noexcept {
    return std::bit_cast<Gid>(native);
}

/// Returns whether the GID of an address of @p family is the unspecified address, such as 0.0.0.0.
[[nodiscard]] bool is_unspecified(const Gid& gid, sa_family_t family) noexcept;

/// AF_IB, the address family of struct sockaddr_ib. The C library does not define it.
inline constexpr sa_family_t family_ib = 27;

/// An address of rdma_cm: IPv4, IPv6 or InfiniBand, with a port. An InfiniBand address contains a
/// service ID, whose low 16 bits are the port and whose upper bits are the port space.
class Address {
  public:
    Address() = default;
    /// Copies a sockaddr of @p size bytes. Returns no value if the family is unknown, or if the
    /// family needs another size.
    [[nodiscard]] static std::optional<Address> parse(const void* sockaddr, std::size_t size);
    /// Copies as many bytes as the family of the address has; the caller must guarantee that they
    /// are readable. Returns no value if the family is unknown.
    [[nodiscard]] static std::optional<Address> parse(const sockaddr& address);
    /// Returns the unspecified address of a family (such as 0.0.0.0) with port 0.
    [[nodiscard]] static Address unspecified(sa_family_t family);
    /// Converts a GID to an address of @p family. For AF_INET, the GID must be an IPv4-mapped IPv6
    /// address.
    [[nodiscard]] static Address from_gid(const Gid& gid, sa_family_t family);

    [[nodiscard]] sa_family_t family() const noexcept { return storage_.any.ss_family; }
    /// Returns the size of the sockaddr in bytes, or 0 if the address has no family.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] const sockaddr_storage& storage() const noexcept { return storage_.any; }

    [[nodiscard]] std::uint16_t port() const noexcept;
    void set_port(std::uint16_t port) noexcept;
    /// Returns the port space in the service ID of an InfiniBand address. Returns 0 for other
    /// families.
    [[nodiscard]] std::uint16_t service_port_space() const noexcept;
    /// Sets the port space in the service ID of an InfiniBand address. Does nothing for other
    /// families.
    void set_service_port_space(std::uint16_t port_space) noexcept;

    /// Returns the address without the port, in the form of a GID. An IPv4 address becomes an
    /// IPv4-mapped IPv6 address.
    [[nodiscard]] Gid gid() const noexcept;
    [[nodiscard]] bool is_unspecified() const noexcept;
    [[nodiscard]] bool is_loopback() const noexcept;
    [[nodiscard]] bool is_multicast() const noexcept;

  private:
    union Storage {
        sockaddr_storage any{};
        sockaddr_in ipv4;
        sockaddr_in6 ipv6;
        sockaddr_ib ib;
    };
    Storage storage_{};
};

/// Returns whether the addresses are equal. Ignores the ports.
[[nodiscard]] bool same_host(const Address& left, const Address& right) noexcept;

} // namespace softverbs::cm
