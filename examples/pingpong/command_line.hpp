// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <variant>

#include "options.hpp"
#include "support/command_line_parts.hpp"

namespace pingpong {

/// What was typed, each value by itself in order; whether they go together is not judged yet.
struct CommandLine {
    /// With what was given, and defaults for the rest; mode, size and timeout are still open.
    Options options;
    bool listen = false;
    bool loopback = false;
    /// "64K", or empty.
    std::string size;
    unsigned timeout_seconds = 30;
    /// The options that were given: "--heap".
    examples::Given given;

    [[nodiscard]] bool has(const char* option) const { return given.contains(option); }
};

/// @param arguments  without the program's name
/// @throws UsageError for an unknown option, or a value that an option cannot have
[[nodiscard]] std::variant<CommandLine, Help> read_command_line(
    std::span<const char* const> arguments);

} // namespace pingpong
