// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// Sends a command to a process that uses softverbs in the same directory. Prints what is wrong;
/// returns the exit status.
[[nodiscard]] int send_command(int process, const std::string& command);

} // namespace softverbs::tools
