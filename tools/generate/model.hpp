// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace rdmabuf::tools::generate {

/// An option of a command, as CLI11 knows it.
struct OptionModel {
    /// The names with their dashes, short names first.
    std::vector<std::string> names;
    /// The name of the value in the help text, such as "NAME"; empty for a flag.
    std::string placeholder;
    std::string help;
    /// The heading of the option in the help text.
    std::string group;
    /// All valid values; empty if the value is not one of a list.
    std::vector<std::string> choices;
    /// True if the value is a list of choices, separated by commas.
    bool list = false;
};

/// The command `rdmabuf` or one of its subcommands.
struct CommandModel {
    /// "rdmabuf", or the name of the subcommand.
    std::string name;
    /// One line.
    std::string summary;
    std::string description;
    /// The text below the options: paragraphs separated by empty lines.
    std::string notes;
    std::vector<OptionModel> options;
};

/// The command line of `rdmabuf`.
struct ProgramModel {
    CommandModel program;
    std::vector<CommandModel> subcommands;
};

/// Reads the definitions that the command itself uses to parse its command line and to print
/// --help.
[[nodiscard]] ProgramModel read_model();

/// Returns the man page of a command in the language of man(7), for section 1.
[[nodiscard]] std::string man_page(const ProgramModel& model, const CommandModel& command);
/// Returns the name of the man page of a command: "rdmabuf" or "rdmabuf-perf".
[[nodiscard]] std::string page_name(const ProgramModel& model, const CommandModel& command);

[[nodiscard]] std::string bash_completion(const ProgramModel& model);
[[nodiscard]] std::string zsh_completion(const ProgramModel& model);

} // namespace rdmabuf::tools::generate
