// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "abi/paths.hpp"

namespace softverbs::sysfs {

/// Writes to @p target the generated file for a path below /sys. False: the file is the kernel's.
[[nodiscard]] bool translate(std::string_view path, PathBuffer& target);

/// Turns a resolved path of a generated file, in place, into the path below /sys that it stands
/// for.
void restore(char* path) noexcept;

} // namespace softverbs::sysfs
