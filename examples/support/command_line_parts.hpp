// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the programs' command lines have in common: options as CLI11 has them, in our words.

#include <algorithm>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

#include "memory_choice.hpp"
#include "named.hpp"
#include "usage.hpp"

#include <CLI/CLI.hpp>

namespace examples {

/// Names of values, and of ranges, are in the help texts: what CLI11 would add is noise.
class PlainFormatter : public CLI::Formatter {
  public:
    PlainFormatter() { column_width(24); }
    std::string make_option_opts(const CLI::Option* option) const override {
        return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
    }
};

/// One of @p choices, which have to outlive the parsing.
template <class T>
CLI::Option* add_choice(CLI::App& app, const char* name, T& value,
                        std::span<const Named<T>> choices, const char* help) {
    std::string names;
    for (const Named<T>& choice : choices) {
        names += (names.empty() ? "" : ", ") + std::string(choice.name);
    }
    const auto read = [&value, choices](const std::string& text) {
        const auto found = std::ranges::find(choices, text, &Named<T>::name);
        if (found == choices.end()) {
            return false;
        }
        value = found->value;
        return true;
    };
    return app.add_option_function<std::string>(
        name,
        [name, names, read](const std::string& text) {
            if (!read(text)) {
                throw UsageError(std::string(name) + " " + text + " is not one of: " + names);
            }
        },
        help);
}

template <class T, class Bound>
CLI::Option* add_number(CLI::App& app, const char* name, T& value, Bound least, Bound most,
                        const char* help) {
    return app.add_option(name, value, help)
        ->check(CLI::Range(least, most).description(""))
        ->type_name("N");
}

/// --memory, with @p help, and what goes with some of its types.
void add_memory_options(CLI::App& app, MemoryChoice& choice,
                        std::span<const Named<MemoryType>> types, const char* help);

/// What `--help` prints. CLI11 leaves two empty lines between groups; here it is one.
[[nodiscard]] std::string help_text(const CLI::App& app);

/// The options that were given: "--heap".
using Given = std::set<std::string>;
[[nodiscard]] Given given_options(const CLI::App& app);

/// @throws UsageError for one of @p options that was given although it is @p pointless
void refuse_if(bool pointless, const Given& given, std::initializer_list<const char*> options,
               const char* why);
/// What of add_memory_options() does not go together. @throws UsageError
void check_memory_options(const MemoryChoice& choice, const Given& given);

} // namespace examples
