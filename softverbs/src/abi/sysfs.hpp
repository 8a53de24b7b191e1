// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "abi/paths.hpp"

namespace softverbs::sysfs {

/// Stores in @p target the path of the generated file for a path below /sys. Returns false if the
/// kernel's file is used.
[[nodiscard]] bool translate(std::string_view path, PathBuffer& target);

/// Replaces, in place, the path of a generated file by the path below /sys that it represents.
void restore(char* path) noexcept;

} // namespace softverbs::sysfs
