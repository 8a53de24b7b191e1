// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// Thrown if a command cannot run with softverbs. Contains the reason.
struct CannotRun {
    int exit_status; // as in a shell: 126 is not executable, 127 is not found
    std::string reason;
};

/// Returns the path of the program that execvp(3) would run. Throws CannotRun.
[[nodiscard]] std::string find_executable(const std::string& command);

/// Throws CannotRun for a set-user-ID or set-group-ID program, into which the loader does not
/// preload libraries.
void require_preloadable(const std::string& path);

/// Whether the program is linked statically, so that no library can be preloaded.
[[nodiscard]] bool is_static(const std::string& path);

} // namespace softverbs::tools
