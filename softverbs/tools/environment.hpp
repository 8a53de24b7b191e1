// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "installation.hpp"

namespace softverbs::tools {

/// Sets LD_PRELOAD and LD_LIBRARY_PATH for programs that this process runs, and for their children.
/// They find softverbs whether they link libibverbs or load it with dlopen(3).
/// @throws std::runtime_error  a directory or link cannot be created
void set_loader_environment(const Installation& installation);

} // namespace softverbs::tools
