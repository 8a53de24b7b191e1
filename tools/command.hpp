// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

// NOLINTNEXTLINE(readability-identifier-naming): the namespace of CLI11
namespace CLI {
class App;
}

namespace rdmabuf::tools {

/// A subcommand of `rdmabuf`. Each of the functions add_devices() to add_topology() adds one
/// subcommand with its options to the program and returns it. program.cpp has a list of them.
struct Command {
    CLI::App* app;
    /// Executes the subcommand after the command line was parsed.
    /// @return the exit status
    /// @throws UsageError for wrong options, and other exceptions for other failures
    std::function<int()> run;
};

/// Parses the command line and executes the subcommand. Errors go to stderr.
/// @return the exit status
int run_program(int argc, char** argv);

[[nodiscard]] Command add_devices(CLI::App& program);
[[nodiscard]] Command add_doctor(CLI::App& program);
[[nodiscard]] Command add_exporters(CLI::App& program);
[[nodiscard]] Command add_perf(CLI::App& program);
[[nodiscard]] Command add_register(CLI::App& program);
[[nodiscard]] Command add_resources(CLI::App& program);
[[nodiscard]] Command add_topology(CLI::App& program);

/// The exit statuses of the subcommands. exit_usage means that the command line is wrong; for
/// `doctor`, also that the result is not known (see doctor::exit_status()).
inline constexpr int exit_success = 0;
inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;

} // namespace rdmabuf::tools
