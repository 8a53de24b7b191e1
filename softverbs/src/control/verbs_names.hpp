// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace softverbs {

/// Whether a fault can be asked for by this name: "ibv_reg_mr".
[[nodiscard]] bool is_verb(std::string_view name) noexcept;
/// Whether it gives something back, so that it only fails when it is named.
[[nodiscard]] bool destroys(std::string_view name) noexcept;

} // namespace softverbs
