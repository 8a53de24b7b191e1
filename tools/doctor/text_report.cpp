// SPDX-License-Identifier: BSD-3-Clause
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "../format.hpp"
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::size_t narrowest = 40;
constexpr std::size_t widest = 80;

const char* colour_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::pass:
            return "\033[32m";
        case Verdict::fail:
            return "\033[31m";
        case Verdict::unknown:
            break;
    }
    return "\033[33m";
}

/// Returns the verdict in 7 columns, with its colour if the format has colours.
std::string coloured(Verdict verdict, const TextFormat& format) {
    const std::string text = fmt::format("{:<7}", to_string(verdict));
    return format.colours ? colour_of(verdict) + text + "\033[0m" : text;
}

/// The first column of the lines below a verdict.
std::size_t indent_of(const TextFormat& format) {
    return format.width >= 60 ? 16 : 4;
}

/// Formats a verdict and the text behind it: "  pass    C-05  text".
std::string format_line(Verdict verdict, std::string_view name, std::string_view text,
                        const TextFormat& format) {
    const std::string head = fmt::format("{:<4}  ", name);
    const std::size_t column = 2 + 7 + 1 + head.size();
    return fmt::format("  {} {}{}\n", coloured(verdict, format), head,
                       wrap(text, column, indent_of(format), format.width));
}

/// Formats a paragraph below a verdict. @param label  "means", "do" or "run"
std::string format_detail(const char* label, std::string_view text, const TextFormat& format) {
    if (text.empty()) {
        return {};
    }
    const std::size_t indent = indent_of(format);
    const std::string head = fmt::format("{}: ", label);
    return std::string(indent, ' ') + head +
           wrap(text, indent + head.size(), indent + 2, format.width) + "\n";
}

std::string format_advice(const Advice& advice, const TextFormat& format) {
    std::string text =
        format_detail("means", advice.means, format) + format_detail("do", advice.remedy, format);
    if (!advice.command.empty()) {
        // A command is not wrapped, so that it can be copied.
        text += fmt::format("{:{}}run: {}\n", "", indent_of(format), advice.command);
    }
    return text;
}

std::string format_finding(const Finding& finding, const TextFormat& format) {
    std::string text = finding.condition;
    if (!finding.subject.empty()) {
        text += fmt::format(" ({})", fmt::join(finding.subject, ", "));
    }
    if (!finding.found.empty()) {
        text += ": " + finding.found;
    }
    std::string result = format_line(finding.verdict, finding.id, text, format);
    return result + format_advice(finding.advice, format);
}

const char* word_of(const Proof& proof) {
    switch (proof.verdict) {
        case Verdict::pass:
            return "proven";
        case Verdict::fail:
            return proof.wrote ? "no read" : "failed";
        case Verdict::unknown:
            break;
    }
    return "-";
}

template <class Member>
std::vector<std::string> names_of(const std::vector<Proof>& proofs, Member member) {
    std::vector<std::string> names;
    for (const Proof& proof : proofs) {
        if (std::ranges::find(names, proof.*member) == names.end()) {
            names.push_back(proof.*member);
        }
    }
    return names;
}

/// Formats the table of memory and NICs. Returns an empty text if the table is wider than a line.
std::string format_matrix(const std::vector<Proof>& proofs, const TextFormat& format) {
    constexpr std::size_t first = 14;
    const auto nics = names_of(proofs, &Proof::nic);
    std::size_t column = 9;
    for (const std::string& nic : nics) {
        column = std::max(column, nic.size() + 2);
    }
    if (first + nics.size() * column > format.width) {
        return {};
    }
    std::string text(first, ' ');
    for (const std::string& nic : nics) {
        text += fmt::format("{:<{}}", nic, column);
    }
    for (const std::string& memory : names_of(proofs, &Proof::memory)) {
        text += fmt::format("\n  {:<{}}", memory, first - 2);
        for (const std::string& nic : nics) {
            const auto found = std::ranges::find_if(proofs, [&](const Proof& proof) {
                return proof.memory == memory && proof.nic == nic;
            });
            text += fmt::format("{:<{}}", found != proofs.end() ? word_of(*found) : "", column);
        }
    }
    std::istringstream all(text);
    std::string trimmed_text;
    for (std::string line; std::getline(all, line);) {
        trimmed_text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return trimmed_text;
}

std::string format_summary(const Report& report, const TextFormat& format) {
    std::size_t proven = 0;
    std::size_t possible = 0;
    for (const Proof& proof : report.proofs) {
        proven += proof.counts && proof.verdict == Verdict::pass ? 1 : 0;
        possible += proof.counts && proof.verdict != Verdict::unknown ? 1 : 0;
    }
    std::size_t blocking = 0;
    for (const Section& section : report.sections) {
        blocking += static_cast<std::size_t>(
            std::ranges::count_if(section.findings, [](const Finding& finding) {
                return finding.severity == Severity::blocks && finding.verdict == Verdict::fail;
            }));
    }
    std::string text;
    switch (exit_status(report)) {
        case 0:
            text = fmt::format(
                "Result: RDMA on dma-bufs or device memory works. {} of {} pairs of "
                "memory and NIC are proven in both directions.",
                proven, possible);
            break;
        case 1:
            text = fmt::format(
                "Result: no pair of device memory and NIC works. Conditions that "
                "block dma-bufs and failed: {}.",
                blocking);
            break;
        default:
            text = "Result: it is not known whether a pair of memory and NIC works.";
            break;
    }
    return wrap(text, 0, 2, format.width) + "\n";
}

} // namespace

TextFormat text_format() {
    TextFormat format;
    std::size_t columns = widest;
    const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    winsize size{};
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    if (const char* const set = std::getenv("COLUMNS"); set != nullptr) {
        const std::string_view text = set;
        std::from_chars(text.data(), text.data() + text.size(), columns);
    } else if (terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        columns = size.ws_col;
    }
    format.width = std::clamp(columns, narrowest, widest);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    const char* const no_colour = std::getenv("NO_COLOR");
    format.colours = terminal && (no_colour == nullptr || *no_colour == '\0');
    return format;
}

std::string wrap(std::string_view text, std::size_t column, std::size_t indent, std::size_t width) {
    std::string result;
    bool first = true;
    for (const std::string_view word : words(text)) {
        const bool too_long = first ? column > indent && column + word.size() > width
                                    : column + 1 + word.size() > width;
        if (too_long) {
            result += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (!first) {
            result += ' ';
            ++column;
        }
        result += word;
        column += word.size();
        first = false;
    }
    return result;
}

std::string format_section(const Section& section, const TextFormat& format) {
    if (section.findings.empty()) {
        return {};
    }
    std::string text = section.title + "\n";
    for (const Finding& finding : section.findings) {
        text += format_finding(finding, format);
    }
    return text + "\n";
}

std::string format_result(const Report& report, const TextFormat& format) {
    std::string text =
        wrap("Proofs: RDMA write and read of each memory by each NIC", 0, 2, format.width) + "\n";
    if (!report.no_proofs.empty()) {
        text += "  " + wrap(report.no_proofs, 2, 2, format.width) + "\n";
    } else {
        text += format_matrix(report.proofs, format);
        text += "\n";
    }
    for (const Finding& finding : findings_of(report.proofs)) {
        text += format_finding(finding, format);
    }
    return text + "\n" + format_summary(report, format);
}

} // namespace rdmabuf::tools::doctor
