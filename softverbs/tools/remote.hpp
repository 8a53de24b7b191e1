// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// Sends a command to the running process with this PID. Both processes must use the same
/// rendezvous directory, in which softverbs processes find each other. Prints an error on stderr if
/// the command fails. Returns the exit status.
[[nodiscard]] int send_command(int process, const std::string& command);

} // namespace softverbs::tools
