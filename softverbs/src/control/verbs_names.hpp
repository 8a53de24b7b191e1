// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Returns whether @p name is a verb that a planned fault can name, such as "ibv_reg_mr".
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Returns whether the verb destroys an object. Such a verb fails only when a fault names it.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
