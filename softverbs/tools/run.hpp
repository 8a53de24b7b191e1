// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace softverbs::tools {

/// Replaces this process by @p command on softverbs. Returns the exit status only when it cannot be
/// run.
[[nodiscard]] int run(const std::vector<std::string>& command);

} // namespace softverbs::tools
