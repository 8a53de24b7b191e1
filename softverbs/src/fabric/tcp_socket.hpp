// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fabric/host_address.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Creates a non-blocking TCP socket of the address's family. Returns an empty descriptor and sets
/// errno on failure.
[[nodiscard]] UniqueFd tcp_socket(const HostAddress& address) noexcept;

/// Sets the options of a connection. Data is sent at once. A connection to a host that does not
/// respond ends within seconds. If the kernel can limit its retransmission timer, traffic resumes
/// within one second after a cable is plugged in again.
void set_connection_options(int socket) noexcept;

} // namespace softverbs::fabric
