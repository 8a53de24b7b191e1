// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fabric/host_address.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Creates a non-blocking TCP socket for the family of @p address. On failure, returns an empty
/// descriptor and sets errno.
[[nodiscard]] UniqueFd tcp_socket(const HostAddress& address) noexcept;

/// Sets the options of a TCP connection: data is sent without delay; if the other host does not
/// respond, the connection fails after some seconds; after a cable is plugged in again,
/// retransmission resumes within 1 second (Linux 6.15 and later).
void set_connection_options(int socket) noexcept;

} // namespace softverbs::fabric
