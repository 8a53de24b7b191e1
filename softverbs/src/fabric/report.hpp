// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs::fabric {

/// Prints "softverbs: " and @p line on stderr. Prints the same line at most once in 10 seconds,
/// unless 16 other lines were printed in between. Used for failures whose cause the program would
/// otherwise not learn.
void report(std::string_view line) noexcept;

} // namespace softverbs::fabric
