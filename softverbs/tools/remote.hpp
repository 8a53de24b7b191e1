// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// Sends a command to the process with this PID, which must have the same rendezvous directory.
/// Prints an error on stderr if it fails. Returns the exit status.
[[nodiscard]] int send_command(int process, const std::string& command);

} // namespace softverbs::tools
