// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// A process listens on the TCP port first_port + its slot. So the port range of a host is
/// first_port to first_port + 1023, and no process depends on another one to be reached.
inline constexpr std::uint16_t default_first_port = 20480;
inline constexpr std::uint16_t highest_first_port = 65535 - 1023;
inline constexpr std::size_t shortest_secret = 16;
inline constexpr std::size_t longest_secret = 4096;

/// What a network between hosts needs. No address: there is no such network.
struct NetworkSettings {
    /// One address of this host for each device.
    std::vector<HostAddress> addresses;
    std::uint16_t first_port = default_first_port;
    std::vector<std::byte> secret;
};

/// The bytes of a file with the secret that all hosts share.
/// @throws std::system_error with a text that says what to do: the file cannot be opened, is no
///         regular file, belongs to another user, can be read by others, or is too short or long.
[[nodiscard]] std::vector<std::byte> read_secret(const std::string& path);

/// The global addresses of the network interfaces of this host that are up, IPv4 ones first.
/// @throws std::system_error what getifaddrs(3) says
[[nodiscard]] std::vector<HostAddress> addresses_of_this_host();

} // namespace softverbs::fabric
