// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

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

/// Adds an option with a value. @param placeholder  the name of the value in the help text
template <class T>
CLI::Option* add_option(CLI::App& app, const char* name, const char* placeholder, T& value,
                        const char* help) {
    return app.add_option(name, value, help)->option_text(placeholder);
}

} // namespace rdmabuf::tools
