// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs::fabric {

/// Prints a line on stderr, after "softverbs: ". The same line is printed at most once in 10
/// seconds. Used for failures that the program would see only as lost packets.
void report(std::string_view line) noexcept;

} // namespace softverbs::fabric
