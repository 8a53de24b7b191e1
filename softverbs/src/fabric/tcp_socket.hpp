// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "fabric/host_address.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Creates a non-blocking TCP socket for the address family of @p address. On failure, returns an
/// empty UniqueFd and sets errno.
[[nodiscard]] UniqueFd tcp_socket(const HostAddress& address) noexcept;

/// Binds a TCP socket to an address and a port, and listens on it. Returns false and sets errno on
/// failure.
/// @param shares_port  whether other processes of this user can listen on the same port
[[nodiscard]] bool listen_at(int socket, const HostAddress& address, std::uint16_t port,
                             bool shares_port = false) noexcept;

/// Sets the options of a TCP connection. Data is sent without delay. If the other host does not
/// respond, the connection fails after about 15 seconds. After an unplugged cable is plugged in
/// again, retransmission resumes within 1 second (Linux 6.15 and later).
void set_connection_options(int socket) noexcept;

} // namespace softverbs::fabric
