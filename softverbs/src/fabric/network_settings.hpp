// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// TCP ports of a host. Each process that creates a queue pair owns a number below 1024, its slot.
/// The process in slot N receives packets on port first_port + N, so no daemon is needed. The ports
/// from first_port + 1024 on are for rdma_cm. On the first of them, one process of the host tells
/// other hosts which process listens to which rdma_cm port. The process in slot N of rdma_cm
/// receives connection manager messages on port first_port + first_cm_slot + N.
inline constexpr unsigned service_directory_slot = 1024;
inline constexpr unsigned first_cm_slot = service_directory_slot + 1;
inline constexpr unsigned network_ports = first_cm_slot + 1024;
inline constexpr std::uint16_t default_first_port = 20480;
inline constexpr std::uint16_t highest_first_port = 65535 - (network_ports - 1);
inline constexpr std::size_t shortest_secret = 16;
inline constexpr std::size_t longest_secret = 4096;

/// Settings of the network between hosts. It is disabled if the list of addresses is empty.
struct NetworkSettings {
    /// The addresses of this host, one per device.
    std::vector<HostAddress> addresses;
    std::uint16_t first_port = default_first_port;
    std::vector<std::byte> secret;
};

/// Reads the secret, which must be the same on all hosts, from a file.
/// @throws std::system_error  if the file cannot be opened, is not a regular file, belongs to
///     another user, is accessible to other users, or has a wrong size. The text suggests a remedy.
[[nodiscard]] std::vector<std::byte> read_secret(const std::string& path);

/// Returns the global addresses of all network interfaces that are up, IPv4 addresses first.
/// @throws std::system_error  if getifaddrs(3) fails
[[nodiscard]] std::vector<HostAddress> addresses_of_this_host();

} // namespace softverbs::fabric
