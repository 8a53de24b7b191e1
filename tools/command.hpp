// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

// NOLINTNEXTLINE(readability-identifier-naming): CLI11 defines the name of this namespace
namespace CLI {
class App;
}

namespace rdmabuf::tools {

/// A subcommand of `rdmabuf`. Each function below adds one subcommand with its options to the
/// program and returns the subcommand. main() has a list of these functions.
struct Command {
    CLI::App* app;
    /// Executes the subcommand after the command line was parsed.
    /// @throws UsageError if the command line is wrong, std::exception for other errors
    std::function<void()> run;
    /// Returns the exit status of the program after run() has returned. If it is empty, the exit
    /// status is 0.
    std::function<int()> exit_status = {};
};

[[nodiscard]] Command add_doctor(CLI::App& program);
[[nodiscard]] Command add_perf(CLI::App& program);

} // namespace rdmabuf::tools
