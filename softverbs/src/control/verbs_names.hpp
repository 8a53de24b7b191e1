// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Returns whether the verb @p name, such as "ibv_reg_mr", can fail because of a planned fault (an
/// error that the test configuration injects).
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Returns whether the verb @p name destroys an object. Such a verb fails only because of a planned
/// fault that contains its name, and not because of a fault for any verb.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
