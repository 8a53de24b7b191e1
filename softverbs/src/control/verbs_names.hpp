// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Whether a fault can be planned for this verb, given as "ibv_reg_mr".
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Whether the verb destroys an object. Such a verb fails only when a fault names it.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
