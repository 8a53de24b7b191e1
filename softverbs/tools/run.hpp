// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace softverbs::tools {

/// Executes @p command with softverbs in this process, by execvp(3). Returns, with the exit status,
/// only if this fails.
[[nodiscard]] int run(const std::vector<std::string>& command);

} // namespace softverbs::tools
