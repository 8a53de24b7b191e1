// SPDX-License-Identifier: BSD-3-Clause
#include "model.hpp"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "../program.hpp"

namespace rdmabuf::tools::generate {

namespace {

/// Returns the values in the description of the validator OneOf: "TEXT:{rc,srd}" has two.
std::vector<std::string> choices_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const std::size_t begin = type.find('{');
    const std::size_t end = type.find('}', begin);
    if (begin == std::string::npos || end == std::string::npos) {
        return {};
    }
    std::istringstream values(type.substr(begin + 1, end - begin - 1));
    std::vector<std::string> choices;
    for (std::string value; std::getline(values, value, ',');) {
        choices.push_back(value);
    }
    return choices;
}

OptionModel model_of(const CLI::Option& option) {
    OptionModel model{.names = {},
                      .placeholder = option.get_option_text(),
                      .help = option.get_description(),
                      .group = option.get_group(),
                      .choices = {},
                      .list = option.get_delimiter() == ','};
    for (const std::string& name : option.get_snames()) {
        model.names.push_back("-" + name);
    }
    for (const std::string& name : option.get_lnames()) {
        model.names.push_back("--" + name);
    }
    if (!model.placeholder.empty()) {
        model.choices = choices_of(option);
    }
    return model;
}

CommandModel model_of(const CLI::App& app, std::string summary) {
    CommandModel model{.name = app.get_name(),
                       .summary = std::move(summary),
                       .description = app.get_description(),
                       .notes = app.get_footer(),
                       .options = {}};
    for (const std::string& group : app.get_groups()) {
        for (const CLI::Option* const option : app.get_options()) {
            if (option->get_group() == group) {
                model.options.push_back(model_of(*option));
            }
        }
    }
    return model;
}

/// Returns the model of a subcommand. Its long description is set when --help is parsed.
CommandModel model_of_subcommand(const std::string& name) {
    Program program;
    CLI::App& app = *program.app().get_subcommand(name);
    const std::string summary = app.get_description();
    try {
        program.app().parse(name + " --help", false);
    } catch (const CLI::CallForHelp&) {
        return model_of(app, summary);
    }
    throw std::logic_error("the subcommand " + name + " has no --help");
}

} // namespace

ProgramModel read_model() {
    Program program;
    ProgramModel model{.program = model_of(program.app(), program.app().get_description()),
                       .subcommands = {}};
    for (const Command& command : program.commands()) {
        model.subcommands.push_back(model_of_subcommand(command.app->get_name()));
    }
    return model;
}

} // namespace rdmabuf::tools::generate
