// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>

namespace {

/// The loader reads it when it is initialised, for which it has to be there before main().
[[maybe_unused]] const int set = ::setenv("ZE_ENABLE_ALT_DRIVERS", LEVEL_ZERO_DRIVER, 1);

} // namespace
