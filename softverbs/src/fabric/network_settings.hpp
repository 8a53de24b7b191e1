// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// TCP ports of a host, from first_port on. The first 1024 ports are for queue pairs: each process
/// that creates a queue pair owns a slot N below 1024, and receives packets on port first_port + N.
/// Therefore no daemon is needed. The other ports are for rdma_cm. Each process that uses rdma_cm
/// owns a second slot M below 1024, and receives connection manager messages on port first_port +
/// first_cm_slot + M. All processes that have called rdma_listen() share the last port, as if it
/// belonged to the slot directory_slot. There, other hosts query which process listens on an
/// rdma_cm port.
inline constexpr unsigned max_slots = 1024;
inline constexpr unsigned first_cm_slot = max_slots;
inline constexpr unsigned directory_slot = max_slots;
inline constexpr unsigned network_ports = first_cm_slot + directory_slot + 1;
inline constexpr std::uint16_t default_first_port = 20480;
inline constexpr std::uint16_t highest_first_port = 65535 - (network_ports - 1);
inline constexpr std::size_t shortest_secret = 16;
inline constexpr std::size_t longest_secret = 4096;

/// Settings of the network between hosts. If "addresses" is empty, this network is disabled.
struct NetworkSettings {
    /// The IP addresses of this host, one for each softverbs device.
    std::vector<HostAddress> addresses;
    std::uint16_t first_port = default_first_port;
    std::vector<std::byte> secret;
    /// Added to each slot, on the network: 0 for queue pairs, first_cm_slot for rdma_cm.
    unsigned first_slot = 0;
};

/// Reads the secret, with which hosts authenticate each other, from the file @p path. The secret
/// must be the same on all hosts.
/// @throws std::system_error  if the file cannot be opened, is not a regular file, belongs to
///     another user, is accessible to other users, or has a wrong size. The text suggests a remedy.
[[nodiscard]] std::vector<std::byte> read_secret(const std::string& path);

/// Returns the addresses of this host to which other hosts can connect, from all network interfaces
/// that are up. IPv4 addresses are first.
/// @throws std::system_error  if getifaddrs(3) fails
[[nodiscard]] std::vector<HostAddress> addresses_of_this_host();

} // namespace softverbs::fabric
