// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace softverbs::tools {

/// Replaces this process by @p command, with libsoftverbs preloaded by LD_PRELOAD. Returns only on
/// failure, with the exit status.
[[nodiscard]] int run(const std::vector<std::string>& command);

/// Prints the devices that programs find under `softverbs run`. Returns the exit status.
[[nodiscard]] int list_devices();

/// Sends a command to the running process with this PID. Both processes must use the same
/// rendezvous directory, in which softverbs processes find each other. Prints an error on stderr if
/// the command fails. Returns the exit status.
[[nodiscard]] int send_command(int process, const std::string& command);

} // namespace softverbs::tools
