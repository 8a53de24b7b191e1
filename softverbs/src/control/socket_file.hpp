// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "fabric/rendezvous.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::control {

/// Removes the control sockets in the rendezvous directory on which no process listens, because
/// their processes were killed. Does not connect to the sockets of processes that exist, because
/// this would wake these processes.
void remove_unused_sockets(const fabric::Rendezvous& directory);

/// Listens on a control socket with this name in the rendezvous directory. On failure, prints a
/// line on stderr and returns an empty descriptor.
[[nodiscard]] fabric::UniqueFd listen_on_socket(const fabric::Rendezvous& directory,
                                                const std::string& name);

} // namespace softverbs::control
