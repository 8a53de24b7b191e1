// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace softverbs::tools {

/// Replaces this process by @p command, with libsoftverbs preloaded by LD_PRELOAD. Returns only on
/// failure, with the exit status.
[[nodiscard]] int run(const std::vector<std::string>& command);

} // namespace softverbs::tools
