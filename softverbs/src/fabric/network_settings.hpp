// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// A process receives packets on the TCP port first_port + its slot (its number among the processes
/// of the host), and needs no daemon. The ports from first_port + 1024 on are for rdma_cm: the
/// first of them is the service directory of the host, and a process receives CM messages on the
/// port first_port + first_cm_slot + its slot in the directory cm.
inline constexpr unsigned service_directory_slot = 1024;
inline constexpr unsigned first_cm_slot = service_directory_slot + 1;
inline constexpr unsigned network_ports = first_cm_slot + 1024;
inline constexpr std::uint16_t default_first_port = 20480;
inline constexpr std::uint16_t highest_first_port = 65535 - (network_ports - 1);
inline constexpr std::size_t shortest_secret = 16;
inline constexpr std::size_t longest_secret = 4096;

/// The settings of the network between hosts. It is disabled if there is no address.
struct NetworkSettings {
    /// The address of this host for each device.
    std::vector<HostAddress> addresses;
    std::uint16_t first_port = default_first_port;
    std::vector<std::byte> secret;
};

/// Reads the file with the secret that all hosts share.
/// @throws std::system_error  with a text that suggests a remedy: the file cannot be opened, is not
///         a regular file, belongs to another user, is accessible to other users, or has a wrong
///         size
[[nodiscard]] std::vector<std::byte> read_secret(const std::string& path);

/// The global addresses of the interfaces of this host that are up, IPv4 addresses first.
/// @throws std::system_error  the error of getifaddrs(3)
[[nodiscard]] std::vector<HostAddress> addresses_of_this_host();

} // namespace softverbs::fabric
