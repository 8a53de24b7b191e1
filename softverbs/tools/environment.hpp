// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "installation.hpp"

namespace softverbs::tools {

/// Sets LD_PRELOAD and LD_LIBRARY_PATH in this process. Programs that it executes then find
/// softverbs, whether they are linked with libibverbs or load it with dlopen(3).
/// @throws std::runtime_error  if a directory or a link cannot be created, or if the path of the
///                             directory of the front libraries contains a colon or a semicolon
void set_loader_environment(const Installation& installation);

} // namespace softverbs::tools
