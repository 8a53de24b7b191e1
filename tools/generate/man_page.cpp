// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include <rdmabuf/version.hpp>

#include "model.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::generate {

namespace {

/// Returns @p text so that roff prints each character as it is.
std::string escaped(std::string_view text) {
    std::string out;
    for (const char each : text) {
        if (each == '\\') {
            out += "\\e";
        } else if (each == '-') {
            out += "\\-";
        } else {
            out += each;
        }
    }
    // A line that begins with one of these characters would be a request.
    return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string upper(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char each) {
        return static_cast<char>(std::toupper(each));
    });
    return text;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::vector<std::string> paragraphs_of(const std::string& text) {
    std::vector<std::string> paragraphs;
    std::string paragraph;
    for (const std::string& line : lines_of(text + "\n\n")) {
        if (!line.empty()) {
            paragraph += line + "\n";
        } else if (!paragraph.empty()) {
            paragraphs.push_back(std::move(paragraph));
            paragraph.clear();
        }
    }
    return paragraphs;
}

/// Returns a paragraph in roff. Lines that begin with two spaces keep their line breaks.
std::string roff_paragraph(const std::string& paragraph) {
    std::string out = ".PP\n";
    bool example = false;
    for (const std::string& line : lines_of(paragraph)) {
        const bool indented = line.starts_with("  ");
        if (indented != example) {
            out += indented ? ".RS 4\n.EX\n" : ".EE\n.RE\n.PP\n";
            example = indented;
        }
        out += escaped(indented ? line.substr(2) : line) + "\n";
    }
    return out + (example ? ".EE\n.RE\n" : "");
}

/// Returns the sections of the text below the options. Its paragraphs "Examples:" and "Exit
/// status:" are sections of their own.
std::string roff_notes(const std::string& notes) {
    std::string section;
    std::string out;
    for (std::string paragraph : paragraphs_of(notes)) {
        std::string wanted = "NOTES";
        for (const char* const title : {"Examples", "Exit status"}) {
            const std::string begin = std::string(title) + ":";
            if (paragraph.starts_with(begin)) {
                wanted = upper(title);
                paragraph.erase(0, paragraph.find_first_not_of(" \n", begin.size()));
                if (wanted == "EXAMPLES") {
                    paragraph.insert(0, "  ");
                }
            }
        }
        if (wanted != section) {
            out += fmt::format(".SH {}\n", wanted);
            section = wanted;
        }
        out += roff_paragraph(paragraph);
    }
    return out;
}

std::string roff_options(const CommandModel& command, bool grouped) {
    std::string out = ".SH OPTIONS\n";
    std::string group;
    for (const OptionModel& option : command.options) {
        if (grouped && option.group != group) {
            group = option.group;
            out += fmt::format(".SS {}\n", escaped(group));
        }
        std::string names;
        for (const std::string& name : option.names) {
            names += (names.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
        }
        out += ".TP\n" + names;
        out += option.placeholder.empty() ? "" : " \\fI" + escaped(option.placeholder) + "\\fR";
        out += "\n" + escaped(option.help) + "\n";
    }
    return out;
}

} // namespace

std::string page_name(const ProgramModel& model, const CommandModel& command) {
    const std::string& program = model.program.name;
    return command.name == program ? program : program + "-" + command.name;
}

std::string man_page(const ProgramModel& model, const CommandModel& command) {
    const bool is_program = command.name == model.program.name;
    const std::string name = page_name(model, command);
    std::string summary = command.summary;
    summary.erase(summary.find_last_not_of('.') + 1);
    std::string out = fmt::format(
        ".\\\" Generated from the definitions of the command line.\n"
        ".TH \"{}\" 1 \"\" \"rdmabuf {}\" \"User Commands\"\n"
        ".nh\n.ad l\n"
        ".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
        escaped(upper(name)), version(), escaped(name), escaped(summary));
    if (is_program) {
        out += fmt::format(
            ".B {0}\n.I SUBCOMMAND\n[\\fIoption\\fR...]\n.br\n.B {0} "
            "\\-\\-version\n[\\fB\\-\\-json\\fR]\n",
            escaped(command.name));
    } else {
        out += fmt::format(".B {} {}\n[\\fIoption\\fR...]\n", escaped(model.program.name),
                           escaped(command.name));
    }
    out += ".SH DESCRIPTION\n";
    for (const std::string& paragraph : paragraphs_of(command.description)) {
        out += roff_paragraph(paragraph);
    }
    if (is_program) {
        out += ".SH SUBCOMMANDS\n";
        for (const CommandModel& each : model.subcommands) {
            out += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(page_name(model, each)),
                               escaped(each.summary));
        }
    }
    out += roff_options(command, !is_program);
    out += roff_notes(command.notes);
    out +=
        ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nIf it is set and not empty, the output has no "
        "colours.\n"
        ".TP\n.B TERM\nIf it is \"dumb\" or not set, the output has no colours.\n"
        ".SH SEE ALSO\n";
    std::string references;
    for (const CommandModel* const each : [&] {
             std::vector<const CommandModel*> all{&model.program};
             for (const CommandModel& subcommand : model.subcommands) {
                 all.push_back(&subcommand);
             }
             return all;
         }()) {
        if (each->name != command.name) {
            references += fmt::format("\\fB{}\\fR(1), ", escaped(page_name(model, *each)));
        }
    }
    return out + references + "\\fBrdmabuf\\fR(7), \\fBsoftverbs\\fR(7)\n";
}

} // namespace rdmabuf::tools::generate
