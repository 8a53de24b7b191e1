// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Returns whether a planned fault can name this verb, such as "ibv_reg_mr".
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Returns whether the verb destroys an object. A planned fault applies to such a verb only if the
/// fault contains the name of the verb.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
