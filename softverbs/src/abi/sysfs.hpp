// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "abi/paths.hpp"

namespace softverbs::sysfs {

/// Translates a path in /sys to the path of the generated file, and stores it in @p target. Returns
/// false if softverbs does not replace the kernel's file.
[[nodiscard]] bool translate(std::string_view path, PathBuffer& target);

/// Replaces, in @p path, the path of a generated file by the original path in /sys. Does nothing
/// for other paths. The result is never longer than the generated path, so it fits into the same
/// buffer.
void restore(char* path) noexcept;

} // namespace softverbs::sysfs
