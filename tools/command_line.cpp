// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.hpp"

#include <sstream>
#include <utility>

namespace rdmabuf::tools {

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
    const std::size_t width = 79 - column_width_;
    std::istringstream words(option->get_description());
    std::string text;
    std::size_t used = 0;
    for (std::string word; words >> word;) {
        if (!text.empty()) {
            const bool fits = used + 1 + word.size() <= width;
            text += fits ? ' ' : '\n';
            used = fits ? used + 1 : 0;
        }
        text += word;
        used += word.size();
    }
    return text;
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
    // CLI11 separates groups of options by two empty lines. The loop below removes one of these
    // lines.
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) {
        text.erase(at, 1);
    }
    return text;
}

} // namespace rdmabuf::tools
