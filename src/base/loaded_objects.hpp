// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace rdmabuf::detail {

/// Returns how many shared objects this process has loaded so far. The number changes with each
/// dlopen(3) that loads one, so that code that did not find a library knows when to look again.
[[nodiscard]] unsigned long long loaded_objects() noexcept;

/// Whether @p address lies in an executable mapping of a loaded object.
[[nodiscard]] bool is_loaded_code(std::uintptr_t address) noexcept;

} // namespace rdmabuf::detail
