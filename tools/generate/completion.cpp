// SPDX-License-Identifier: BSD-3-Clause
#include <string_view>

#include "model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::generate {

namespace {

bool is_file(const OptionModel& option) {
    return option.placeholder == "PATH" || option.placeholder == "FILE" ||
           option.placeholder == "DIR";
}

bool is_device(const OptionModel& option) {
    return option.names.back() == "--device";
}

std::vector<std::string> option_names(const CommandModel& command) {
    std::vector<std::string> names;
    for (const OptionModel& option : command.options) {
        names.insert(names.end(), option.names.begin(), option.names.end());
    }
    return names;
}

/// Returns the branch of `case` that completes the value of an option; empty for a flag.
std::string bash_value(const CommandModel& command, const OptionModel& option) {
    if (option.placeholder.empty()) {
        return {};
    }
    std::string branch = fmt::format("        {}/{})\n", command.name, option.names.back());
    if (is_device(option)) {
        branch += "            words=$(command ls /sys/class/infiniband 2>/dev/null)\n";
    } else if (is_file(option)) {
        branch += fmt::format(
            "            mapfile -t COMPREPLY < <(compgen -{} -- \"$current\")\n"
            "            return\n",
            option.placeholder == "DIR" ? "d" : "f");
    } else if (option.list) {
        branch +=
            "            before=${current%\"${current##*,}\"}\n"
            "            current=${current##*,}\n";
        branch += fmt::format("            words='{}'\n", fmt::join(option.choices, " "));
    } else {
        branch += fmt::format("            words='{}'\n", fmt::join(option.choices, " "));
    }
    return branch + "            ;;\n";
}

/// Returns @p text for a place between single quotes in the explanation of an option of zsh.
std::string zsh_escaped(std::string_view text) {
    std::string out;
    for (const char each : text) {
        if (each == '\'') {
            out += "'\\''";
        } else {
            out += each == '[' || each == ']' || each == ':' || each == '\\' ? "\\" : "";
            out += each;
        }
    }
    return out;
}

std::string zsh_option(const OptionModel& option) {
    std::string value;
    if (!option.placeholder.empty()) {
        value = ":" + option.placeholder + ":";
        if (is_device(option)) {
            value += "_rdmabuf_devices";
        } else if (is_file(option)) {
            value += option.placeholder == "DIR" ? "_files -/" : "_files";
        } else if (!option.choices.empty()) {
            const std::string choices = fmt::format("{}", fmt::join(option.choices, " "));
            value += option.list ? "_values -s , value " + choices : "(" + choices + ")";
        }
    }
    const std::string help = zsh_escaped(option.help);
    if (option.names.size() == 1) {
        return fmt::format("'{}{}[{}]{}'", option.names.front(), value.empty() ? "" : "=", help,
                           value);
    }
    return fmt::format("'({})'{{{}}}'[{}]{}'", fmt::join(option.names, " "),
                       fmt::join(option.names, ","), help, value);
}

std::string zsh_options(const CommandModel& command, std::string_view indent) {
    std::string out;
    for (const OptionModel& option : command.options) {
        out += fmt::format(" \\\n{}{}", indent, zsh_option(option));
    }
    return out;
}

} // namespace

std::string bash_completion(const ProgramModel& model) {
    std::vector<std::string> top;
    top.reserve(model.subcommands.size());
    for (const CommandModel& command : model.subcommands) {
        top.push_back(command.name);
    }
    for (const std::string& name : option_names(model.program)) {
        top.push_back(name);
    }
    std::string out = R"(# bash completion for rdmabuf
# Generated from the definitions of the command line.
_rdmabuf() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local before='' subcommand=${COMP_WORDS[1]} words
    ((COMP_CWORD > 1)) || subcommand=
    # bash splits --option=value into three words.
    if [[ $current == '=' ]]; then
        current=
    elif [[ $previous == '=' ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $subcommand/$previous in
)";
    for (const CommandModel& command : model.subcommands) {
        for (const OptionModel& option : command.options) {
            out += bash_value(command, option);
        }
    }
    out += "        *)\n            case $subcommand in\n";
    out += fmt::format("                '') words='{}' ;;\n", fmt::join(top, " "));
    for (const CommandModel& command : model.subcommands) {
        out += fmt::format("                {}) words='{}' ;;\n", command.name,
                           fmt::join(option_names(command), " "));
    }
    return out + R"(                *) words= ;;
            esac
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$words" -- "$current")
}
complete -F _rdmabuf rdmabuf
)";
}

std::string zsh_completion(const ProgramModel& model) {
    std::string out = R"(#compdef rdmabuf
# Generated from the definitions of the command line.

_rdmabuf_devices() {
    local -a devices=(/sys/class/infiniband/*(N:t))
    _describe -t devices 'RDMA device' devices
}

_rdmabuf() {
    local curcontext=$curcontext state line
    local -a subcommands=(
)";
    for (const CommandModel& command : model.subcommands) {
        out += fmt::format("        '{}:{}'\n", command.name, zsh_escaped(command.summary));
    }
    out += "    )\n    _arguments -C" + zsh_options(model.program, "        ");
    out += " \\\n        '1: :->subcommand' \\\n        '*:: :->options'\n";
    out += R"(    case $state in
        subcommand)
            _describe -t subcommands 'subcommand of rdmabuf' subcommands
            ;;
        options)
            case $words[1] in
)";
    for (const CommandModel& command : model.subcommands) {
        out += fmt::format(
            "                {})\n                    _arguments{}\n"
            "                    ;;\n",
            command.name, zsh_options(command, "                        "));
    }
    return out + R"(            esac
            ;;
    esac
}

_rdmabuf "$@"
)";
}

} // namespace rdmabuf::tools::generate
