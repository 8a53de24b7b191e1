// SPDX-License-Identifier: BSD-3-Clause
#include "program.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include <rdmabuf/error.hpp>

#include "command_line.hpp"
#include "names.hpp"
#include "options.hpp"
#include "text.hpp"
#include "version.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools {

namespace {

/// All subcommands, in the order of the help text.
constexpr std::array subcommands{add_devices,  add_doctor,    add_exporters, add_topology,
                                 add_register, add_resources, add_perf};

std::vector<std::string> names_of_commands(std::span<const Command> all) {
    std::vector<std::string> names;
    names.reserve(all.size());
    for (const Command& command : all) {
        names.push_back(command.app->get_name());
    }
    return names;
}

/// Returns the long options of @p app with their dashes.
std::vector<std::string> options_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* const option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            names.push_back("--" + name);
        }
    }
    return names;
}

/// Returns the error text for an argument that @p app does not accept; the text suggests the
/// nearest option.
std::string describe_unknown(const CLI::App& app) {
    const std::vector<std::string> unknown = app.remaining();
    const std::string first = unknown.empty() ? "" : unknown.front();
    const std::string name = first.substr(0, first.find('='));
    if (!name.starts_with("-")) {
        return fmt::format("unexpected argument '{}'", first);
    }
    return fmt::format("there is no option '{}'{}", name, suggestion(name, options_of(app)));
}

/// Prints an error to stderr in lines of 80 columns. @param name  the command; may be empty
void print_error(const std::string& name, std::string_view text) {
    const std::string first = name.empty() ? "" : name + ": ";
    fmt::print(stderr, "{}", wrap({}, text, first, name.empty() ? "" : "  "));
}

} // namespace

Program::Program() : app_("RDMA on dma-bufs and device memory.", "rdmabuf") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_help_flag("-h,--help", "Print this text");
    app_.add_flag("--version", version_,
                  "Print the version, what the command was built with, and the libraries and "
                  "functions that it finds on this machine");
    app_.add_flag("--json", json_, "With --version: print one JSON object");
    app_.require_subcommand(0, 1);
    app_.footer(
        "rdmabuf SUBCOMMAND --help describes the options of a subcommand.\n\n"
        "Exit status: 0 success, 1 failure, 2 wrong command line.");
    for (const auto& add : subcommands) {
        commands_.push_back(add(app_));
    }
}

int Program::execute(int argc, char** argv) {
    if (argc > 1 && argv[1][0] != '-') {
        const std::vector<std::string> names = names_of_commands(commands_);
        if (std::ranges::find(names, argv[1]) == names.end()) {
            throw UsageError(
                fmt::format("there is no subcommand '{}'{}", argv[1], suggestion(argv[1], names)));
        }
    }
    try {
        app_.parse(argc, argv);
    } catch (const CLI::ExtrasError&) {
        const auto parsed = app_.get_subcommands();
        throw UsageError(describe_unknown(parsed.empty() ? app_ : *parsed.front()));
    } catch (const CLI::ConversionError& error) {
        // The text of CLI11 is "Could not convert: --gpu = x". Keep only the option and its value.
        const std::string_view text = error.what();
        throw UsageError(fmt::format("{}: not a number, or out of range",
                                     text.substr(std::min(text.find("--"), text.size()))));
    } catch (const CLI::Success& help) {
        app_.exit(help);
        return exit_success;
    }
    if (version_) {
        write_stdout(json_ ? to_json(read_versions())
                           : to_text(read_versions(), style_of_stdout()));
        return exit_success;
    }
    const auto chosen =
        std::ranges::find_if(commands_, [](const Command& c) { return c.app->parsed(); });
    if (chosen == commands_.end() && json_) {
        throw UsageError("--json requires --version or a subcommand");
    }
    if (chosen == commands_.end()) {
        write_stdout(app_.help());
        return exit_success;
    }
    if (json_) {
        throw UsageError(fmt::format("--json before a subcommand requires --version: use {} --json",
                                     chosen->app->get_name()));
    }
    return chosen->run();
}

int Program::run(int argc, char** argv) {
    std::string name = "rdmabuf";
    if (const auto names = names_of_commands(commands_);
        argc > 1 && std::ranges::find(names, argv[1]) != names.end()) {
        name += fmt::format(" {}", argv[1]);
    }
    const auto wrong_usage = [&name](const std::exception& error) {
        print_error(name, error.what());
        print_error("", fmt::format("{} --help describes the command line", name));
        return exit_usage;
    };
    try {
        return execute(argc, argv);
    } catch (const CLI::ParseError& error) {
        return wrong_usage(error);
    } catch (const UsageError& error) {
        return wrong_usage(error);
    } catch (const Error& error) {
        // Print no error if stdout is a pipe whose reader has closed it: the reader needs no more
        // output.
        if (error.error() != EPIPE || std::ferror(stdout) == 0) {
            print_error(name, error.what());
        }
        return exit_failure;
    } catch (const std::exception& error) {
        print_error(name, error.what());
        return exit_failure;
    }
}

int run_program(int argc, char** argv) {
    try {
        Program program;
        return program.run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "rdmabuf: {}\n", error.what());
        return exit_failure;
    }
}

} // namespace rdmabuf::tools
