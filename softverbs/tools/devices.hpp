// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs::tools {

/// Prints the devices that programs find under `softverbs run`. Returns the exit status.
[[nodiscard]] int list_devices();

} // namespace softverbs::tools
