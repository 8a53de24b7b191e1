// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace softverbs::tools {

/// Why a command cannot run on softverbs.
struct CannotRun {
    int exit_status; // 126: it is not executable; 127: it does not exist. As in a shell.
    std::string reason;
};

/// The path of the program that execvp(3) would run. Throws CannotRun.
[[nodiscard]] std::string find_executable(const std::string& command);

/// Throws CannotRun for a program that the loader does not preload libraries into: one that runs
/// with more privileges than its user.
void require_preloadable(const std::string& path);

/// Whether the program has no dynamic loader, which preloads libraries.
[[nodiscard]] bool is_static(const std::string& path);

} // namespace softverbs::tools
