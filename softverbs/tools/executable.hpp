// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// The exception for a command that cannot run with softverbs.
struct CannotRun {
    int exit_status; // as in a shell: 126 is not executable, 127 is not found
    std::string reason;
};

/// Returns the path of the program that execvp(3) executes for @p command. Throws CannotRun if
/// there is none.
[[nodiscard]] std::string find_executable(const std::string& command);

/// Throws CannotRun if the loader ignores LD_PRELOAD for this program, because it is a set-user-ID
/// or set-group-ID program or has file capabilities.
void require_preloadable(const std::string& path);

/// Returns whether the program is statically linked. The loader preloads no library into such a
/// program.
[[nodiscard]] bool is_static(const std::string& path);

} // namespace softverbs::tools
