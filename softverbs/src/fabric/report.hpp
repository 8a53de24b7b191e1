// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::fabric {

/// Prints "softverbs: " and the line on stderr, unless the same line was printed within the last 10
/// seconds. For failures that a program sees only as lost packets.
void report(const std::string& line) noexcept;

} // namespace softverbs::fabric
