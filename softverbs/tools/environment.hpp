// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "installation.hpp"

namespace softverbs::tools {

/// Sets LD_PRELOAD and LD_LIBRARY_PATH so that a program that is run from this process, and its
/// children, find softverbs in whichever way they load libibverbs. Throws std::runtime_error.
void set_loader_environment(const Installation& installation);

} // namespace softverbs::tools
