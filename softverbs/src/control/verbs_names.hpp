// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Returns whether softverbs_fail_call() can make the verb @p name, such as "ibv_reg_mr", fail.
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Returns whether the verb @p name destroys an object. Such a verb fails only because of a planned
/// fault that contains its name, and not because of a fault for any verb.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
