// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <sstream>
#include <string_view>

#include "../format.hpp"
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

Colour colour_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::pass:
            return Colour::good;
        case Verdict::fail:
            return Colour::bad;
        case Verdict::unknown:
            break;
    }
    return Colour::unknown;
}

/// Returns the effect of a condition that is not met, in at most five letters. The notes of --help
/// explain the words.
const char* word_of(Severity severity) {
    switch (severity) {
        case Severity::blocks:
            return "block";
        case Severity::no_peer_to_peer:
            return "p2p";
        case Severity::slows:
            return "slow";
        case Severity::gpu_initiated:
            return "gpu";
        case Severity::information:
            break;
    }
    return "note";
}

/// Returns the indentation of the lines below a verdict.
std::string indent_of(const TextStyle& style) {
    return std::string(style.width >= 60 ? 22 : 4, ' ');
}

/// Formats a paragraph below a verdict. @param label  "means" or "do"
std::string format_detail(const char* label, std::string_view text, const TextStyle& style) {
    if (text.empty()) {
        return {};
    }
    const std::string indent = indent_of(style);
    return wrap(style, text, fmt::format("{}{}: ", indent, label), indent + "  ");
}

std::string format_advice(const Advice& advice, const TextStyle& style) {
    std::string text =
        format_detail("means", advice.means, style) + format_detail("do", advice.remedy, style);
    if (!advice.command.empty()) {
        const std::string first = indent_of(style) + "run: ";
        text += wrap_command(style, advice.command, first, std::string(first.size(), ' '));
    }
    return text;
}

std::string format_finding(const Finding& finding, const TextStyle& style) {
    std::string text = finding.condition;
    if (!finding.subject.empty()) {
        text += fmt::format(" ({})", fmt::join(finding.subject, ", "));
    }
    if (!finding.found.empty()) {
        text += ": " + finding.found;
    }
    const std::string verdict =
        paint(style, colour_of(finding.verdict), fmt::format("{:<7}", to_string(finding.verdict)));
    const char* const severity = finding.verdict == Verdict::pass ? "" : word_of(finding.severity);
    return wrap(style, text, fmt::format("  {} {:<5} {:<4}  ", verdict, severity, finding.id),
                indent_of(style)) +
           format_advice(finding.advice, style);
}

const char* word_of(const Proof& proof) {
    switch (proof.verdict) {
        case Verdict::pass:
            return "proven";
        case Verdict::fail:
            return proof.wrote && !proof.read ? "no read" : "failed";
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
std::string format_matrix(const std::vector<Proof>& proofs, const TextStyle& style) {
    constexpr std::size_t first = 14;
    const auto nics = names_of(proofs, &Proof::nic);
    std::size_t column = 9;
    for (const std::string& nic : nics) {
        column = std::max(column, nic.size() + 2);
    }
    if (first + nics.size() * column > style.width) {
        return {};
    }
    std::string text(first, ' ');
    for (const std::string& nic : nics) {
        text += fmt::format("{:<{}}", printable(nic), column);
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

/// Returns a text such as " on rxe, a software device" if the NICs of all proven pairs are
/// software; otherwise an empty text.
std::string describe_software(const std::vector<const Proof*>& proven) {
    std::set<std::string> drivers;
    for (const Proof* const proof : proven) {
        drivers.insert(proof->software);
    }
    if (drivers.contains("")) {
        return {};
    }
    return fmt::format(" on {}, {}", fmt::join(drivers, " and "),
                       drivers.size() == 1 ? "a software device" : "software devices");
}

/// Says what works, by the kinds of memory that were proven.
std::string describe_success(const std::vector<const Proof*>& proven) {
    bool dmabufs = false;
    bool device_memory = false; // by a kernel module of the GPU's driver, without a dma-buf
    bool nic_memory = false;
    for (const Proof* const proof : proven) {
        if (proof->path.starts_with("dmabuf")) {
            dmabufs = true;
        } else if (proof->path == "dm") {
            nic_memory = true;
        } else {
            device_memory = true;
        }
    }
    const std::string software = describe_software(proven);
    if (!dmabufs && !device_memory) {
        return fmt::format("RDMA on memory on the NIC works{}, but no dma-buf is proven", software);
    }
    std::vector<std::string_view> kinds;
    if (dmabufs) {
        kinds.emplace_back("dma-bufs");
    }
    if (device_memory) {
        kinds.emplace_back("device memory");
    }
    if (nic_memory) {
        kinds.emplace_back("memory on the NIC");
    }
    return fmt::format("RDMA on {} works{}", fmt::join(kinds, " and "), software);
}

std::string describe_pairs(const std::vector<const Proof*>& proofs) {
    std::string text;
    for (const Proof* const proof : proofs) {
        text += fmt::format("{}{} with {}", text.empty() ? "" : ", ", proof->memory, proof->nic);
    }
    return text;
}

/// Conditions in the order of cause and effect: if one is not met, later ones can fail because of
/// it.
constexpr std::array<std::string_view, 22> causes_first{
    "C-23", "C-05", "C-04", "C-20", "C-22", "C-01", "C-03", "C-12", "C-25", "C-13", "C-14",
    "C-15", "C-48", "C-49", "C-50", "C-59", "C-09", "C-11", "C-10", "C-06", "C-07", "C-08"};

/// Returns the failed conditions that explain why no pair works, the likeliest cause first.
/// Includes conditions with Severity::no_peer_to_peer only if a proof failed.
std::vector<const Finding*> causes_of(const Report& report, bool proof_failed) {
    std::vector<const Finding*> causes;
    for (const Severity severity : {Severity::blocks, Severity::no_peer_to_peer}) {
        if (severity == Severity::no_peer_to_peer && !proof_failed) {
            continue;
        }
        const auto begin = static_cast<std::ptrdiff_t>(causes.size());
        for (const Section& section : report.sections) {
            for (const Finding& finding : section.findings) {
                if (finding.verdict == Verdict::fail && finding.severity == severity) {
                    causes.push_back(&finding);
                }
            }
        }
        std::ranges::stable_sort(causes.begin() + begin, causes.end(), {}, [](const Finding* each) {
            return std::ranges::find(causes_first, each->id) - causes_first.begin();
        });
    }
    return causes;
}

/// Names the failed conditions: the first with what was found, and the identifiers of the others.
std::string describe_causes(const std::vector<const Finding*>& causes) {
    if (causes.empty()) {
        return {};
    }
    const Finding& first = *causes.front();
    std::string text = fmt::format(" Likeliest cause: {}, \"{}\" is not met{}.", first.id,
                                   first.condition, first.found.empty() ? "" : ": " + first.found);
    std::vector<std::string> others;
    for (const Finding* const cause : causes) {
        if (cause->id != first.id && std::ranges::find(others, cause->id) == others.end()) {
            others.push_back(cause->id);
        }
    }
    if (!others.empty()) {
        text += fmt::format(" Also not met: {}.", fmt::join(others, ", "));
    }
    return text;
}

/// Names the memory that was exported although no NIC could register it.
std::string describe_exports(const Report& report) {
    std::vector<std::string> memory;
    for (const Section& section : report.sections) {
        for (const Finding& finding : section.findings) {
            if (finding.id == "C-59" && finding.verdict == Verdict::pass) {
                memory.insert(memory.end(), finding.subject.begin(), finding.subject.end());
            }
        }
    }
    return memory.empty() ? ""
                          : fmt::format(
                                " The side of the memory is ready: the drivers of {} export "
                                "dma-bufs.",
                                fmt::join(memory, ", "));
}

std::string format_summary(const Report& report, const TextStyle& style) {
    std::vector<const Proof*> proven;
    std::vector<const Proof*> failed;
    for (const Proof& proof : report.proofs) {
        if (proof.counts && proof.verdict != Verdict::unknown) {
            (proof.verdict == Verdict::pass ? proven : failed).push_back(&proof);
        }
    }
    std::string text;
    switch (exit_status(report)) {
        case 0:
            text = fmt::format(
                "Result: {}. {} of {} pairs of memory and NIC are proven in both directions: {}.",
                describe_success(proven), proven.size(), proven.size() + failed.size(),
                describe_pairs(proven));
            break;
        case 1:
            text = "Result: no pair of device memory and NIC works." +
                   describe_causes(causes_of(report, !failed.empty())) + describe_exports(report);
            break;
        default:
            text = "Result: it is not known whether a pair of memory and NIC works.";
            break;
    }
    if (report.require_dmabuf && exit_status(report) != 0 && !proven.empty()) {
        text = fmt::format("Result: no dma-buf is proven, as --require asks.{} Proven: {}.",
                           describe_causes(causes_of(report, !failed.empty())),
                           describe_pairs(proven));
    }
    if (!failed.empty()) {
        text += fmt::format(" Failed: {}.", describe_pairs(failed));
    }
    return wrap(style, text, "", "  ");
}

} // namespace

std::string format_section(const Section& section, const TextStyle& style) {
    if (section.findings.empty()) {
        return {};
    }
    std::string text = section.title + "\n";
    for (const Finding& finding : section.findings) {
        text += format_finding(finding, style);
    }
    return text + "\n";
}

std::string format_result(const Report& report, const TextStyle& style) {
    std::string text =
        wrap(style, "Proofs: RDMA write and read of each memory by each NIC", "", "  ");
    if (!report.no_proofs.empty()) {
        text += wrap(style, report.no_proofs, "  ", "  ");
    } else {
        text += format_matrix(report.proofs, style);
        text += "\n";
    }
    for (const Finding& finding : findings_of(report.proofs)) {
        text += format_finding(finding, style);
    }
    return text + "\n" + format_summary(report, style);
}

} // namespace rdmabuf::tools::doctor
