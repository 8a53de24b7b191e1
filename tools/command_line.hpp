// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "options.hpp"

#include <CLI/CLI.hpp>

namespace rdmabuf::tools {

/// Formats help texts in 80 columns, without the notes of CLI11 about types, ranges and excluded
/// options.
class HelpFormatter : public CLI::Formatter {
  public:
    HelpFormatter() { column_width(24); }
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
    std::string make_help(const CLI::App* app, std::string name,
                          CLI::AppFormatMode mode) const override;
};

/// Accepts the values of a list. The error text for another value contains the list, and the
/// suggestion() for the value.
class OneOf : public CLI::Validator {
  public:
    explicit OneOf(std::vector<std::string> values);
};

/// Adds an option with a value. @param placeholder  the name of the value in the help text
template <class T>
CLI::Option* add_option(CLI::App& app, const char* name, const char* placeholder, T& value,
                        const char* help) {
    return app.add_option(name, value, help)->option_text(placeholder);
}

void add_device_options(CLI::App& app, DeviceOptions& options);
/// Adds only the option --device, for subcommands that use no port.
void add_device_name_option(CLI::App& app, DeviceOptions& options);
void add_memory_options(CLI::App& app, MemoryOptions& options);
/// Adds --json, and --help as the last option of a subcommand.
void add_output_options(CLI::App& app, bool& json);

} // namespace rdmabuf::tools
