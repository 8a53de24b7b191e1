// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace softverbs {

/// The definition of @p name in the real libibverbs, under its default version; null when it has
/// none.
[[nodiscard]] void* real_symbol(const char* name);

} // namespace softverbs
