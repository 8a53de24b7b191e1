// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace softverbs::cm {

/// The address family of struct sockaddr_ib, which the C library does not define.
inline constexpr sa_family_t family_ib = 27;

using Gid = std::array<std::uint8_t, 16>;

/// An IPv4, IPv6 or InfiniBand address with a port, as rdma_cm uses it. An InfiniBand address
/// carries its port in the low 16 bits of its service ID, and its port space in the bits above.
class Address {
  public:
    Address() = default;
    /// Copies a sockaddr of @p size bytes. Returns no value if the family is unknown, or if @p size
    /// is not the size of that family's structure.
    [[nodiscard]] static std::optional<Address> parse(const void* sockaddr, std::size_t size);
    /// Returns the unspecified address of a family, with port 0.
    [[nodiscard]] static Address unspecified(sa_family_t family);
    /// Converts a GID to an address of @p family. The GID of an IPv4 address is its IPv4-mapped
    /// IPv6 address.
    [[nodiscard]] static Address from_gid(const Gid& gid, sa_family_t family);

    [[nodiscard]] sa_family_t family() const noexcept { return storage_.ss_family; }
    /// Returns the size of the sockaddr structure of this address in bytes; 0 if the address has no
    /// family.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] const sockaddr_storage& storage() const noexcept { return storage_; }

    [[nodiscard]] std::uint16_t port() const noexcept;
    void set_port(std::uint16_t port) noexcept;
    /// Returns the port space in the service ID of an InfiniBand address; 0 for addresses of other
    /// families.
    [[nodiscard]] std::uint16_t service_port_space() const noexcept;
    /// Sets the port space of an InfiniBand address. Does nothing for addresses of other families.
    void set_service_port_space(std::uint16_t port_space) noexcept;

    /// Returns the address without its port: an IPv4 address as an IPv4-mapped IPv6 address, an
    /// IPv6 address or a GID unchanged.
    [[nodiscard]] Gid gid() const noexcept;
    [[nodiscard]] std::uint32_t scope() const noexcept;
    [[nodiscard]] bool is_unspecified() const noexcept;
    [[nodiscard]] bool is_loopback() const noexcept;
    [[nodiscard]] bool is_multicast() const noexcept;

  private:
    template <class Sockaddr>
    [[nodiscard]] Sockaddr as() const noexcept {
        Sockaddr copy;
        std::memcpy(&copy, &storage_, sizeof copy);
        return copy;
    }

    sockaddr_storage storage_{};
};

/// Returns whether two addresses are equal, without regard to their ports.
[[nodiscard]] bool same_host(const Address& left, const Address& right) noexcept;

/// The position of an address among the addresses of this machine. cm::find_device() selects the
/// RDMA device for the address by this position.
struct LocalAddress {
    bool loopback = false;
    /// Position of the address's interface among the interfaces of this machine that are not
    /// loopback, in the order of interface indices. For a loopback address 127.0.0.N it is N - 1.
    unsigned ordinal = 0;
};
/// Returns the position of @p address; no value if no interface of this machine has the address.
[[nodiscard]] std::optional<LocalAddress> find_local(const Address& address);

/// Returns the names of the network interfaces that have an IPv4 or IPv6 address, in the order of
/// LocalAddress::ordinal. If there is no such interface, returns only "lo".
[[nodiscard]] std::vector<std::string> local_interfaces();

/// Returns the source address that the kernel's routing table selects for @p destination. If there
/// is no route, returns no value and sets errno.
[[nodiscard]] std::optional<Address> route_source(const Address& destination);

} // namespace softverbs::cm
