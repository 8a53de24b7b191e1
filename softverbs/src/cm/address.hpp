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
    /// Copies a sockaddr of @p size bytes. Empty: the family is unknown, or @p size is not the size
    /// of that family's structure.
    [[nodiscard]] static std::optional<Address> parse(const void* sockaddr, std::size_t size);
    /// The unspecified address of a family, port 0.
    [[nodiscard]] static Address unspecified(sa_family_t family);
    /// An IPv4 or IPv6 address in the form of a GID: IPv4 addresses are IPv4-mapped.
    [[nodiscard]] static Address from_gid(const Gid& gid, sa_family_t family);

    [[nodiscard]] sa_family_t family() const noexcept { return storage_.ss_family; }
    /// Size of the family's structure; 0 for an address without a family.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] const sockaddr_storage& storage() const noexcept { return storage_; }

    [[nodiscard]] std::uint16_t port() const noexcept;
    void set_port(std::uint16_t port) noexcept;
    /// The port space in an InfiniBand address's service ID; 0 for the other families.
    [[nodiscard]] std::uint16_t service_port_space() const noexcept;
    /// Of an InfiniBand address; without effect on the other families.
    void set_service_port_space(std::uint16_t port_space) noexcept;

    /// The address without port: IPv4 as an IPv4-mapped IPv6 address, IPv6 and GIDs unchanged.
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

/// Whether the two are equal without their ports.
[[nodiscard]] bool same_host(const Address& left, const Address& right) noexcept;

/// The place of an address among the addresses of this machine.
struct LocalAddress {
    bool loopback = false;
    /// Position among the machine's interfaces that are not loopback, by interface index; for a
    /// loopback address the last byte of 127.0.0.N less one.
    unsigned ordinal = 0;
};
/// Empty: no interface of this machine has the address.
[[nodiscard]] std::optional<LocalAddress> find_local(const Address& address);

/// The names of the network interfaces with an IPv4 or IPv6 address, in the order of their
/// positions in LocalAddress. A machine without such an interface has only "lo".
[[nodiscard]] std::vector<std::string> local_interfaces();

/// The source address that the kernel's routing table selects for a destination; empty, with errno,
/// where there is no route.
[[nodiscard]] std::optional<Address> route_source(const Address& destination);

} // namespace softverbs::cm
