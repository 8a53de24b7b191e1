// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "fabric/host_address.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// A non-blocking TCP socket of the address's family. Empty, with errno: there is none.
[[nodiscard]] UniqueFd tcp_socket(const HostAddress& address) noexcept;

/// Sets the options of a connection: data is sent at once, a dead connection ends within seconds,
/// and a cable that comes back is noticed within one second where the kernel can limit its
/// retransmission timer.
void set_connection_options(int socket) noexcept;

} // namespace softverbs::fabric
