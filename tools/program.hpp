// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "command.hpp"

#include <CLI/CLI.hpp>

namespace rdmabuf::tools {

/// The command line of `rdmabuf` with all subcommands. run() executes it. The man pages and the
/// completion scripts use its --help texts.
class Program {
  public:
    Program();
    ~Program() = default;
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    [[nodiscard]] CLI::App& app() noexcept { return app_; }
    [[nodiscard]] std::span<const Command> commands() const noexcept { return commands_; }

    /// Parses the command line and executes the subcommand. Errors go to stderr.
    /// @return the exit status
    int run(int argc, char** argv);

  private:
    int execute(int argc, char** argv);

    CLI::App app_;
    bool version_ = false;
    bool json_ = false;
    std::vector<Command> commands_;
};

} // namespace rdmabuf::tools
