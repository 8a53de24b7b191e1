// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "fabric/rendezvous.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::control {

/// Removes the control sockets on which no process listens, because their processes were killed. @p
/// directory contains the control sockets of this host. Does not connect to the sockets of
/// processes that exist, because this would wake these processes.
void remove_unused_sockets(const fabric::Rendezvous& directory);

/// Creates the control socket with the file name @p name in @p directory, and listens on it. On
/// failure, prints a line on stderr and returns an empty UniqueFd.
[[nodiscard]] fabric::UniqueFd listen_on_socket(const fabric::Rendezvous& directory,
                                                const std::string& name);

} // namespace softverbs::control
