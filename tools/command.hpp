// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace rdmabuf::tools {

/// A subcommand of `rdmabuf`. The functions below add its options to the program and return it;
/// main() lists them.
struct Command {
    CLI::App* app;
    /// Does the work after the command line was parsed. @throws UsageError, std::exception
    std::function<void()> run;
};

[[nodiscard]] Command add_perf(CLI::App& program);

} // namespace rdmabuf::tools
