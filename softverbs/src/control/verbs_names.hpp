// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Returns whether a planned fault can name this verb, such as "ibv_reg_mr".
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Returns whether the verb destroys an object. Such a verb fails only if a planned fault contains
/// its name. A planned fault without the name of a verb does not apply to it.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
