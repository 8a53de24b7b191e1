// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

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
constexpr std::array<std::string_view, 23> causes_first{
    "C-23", "C-05", "C-04", "C-20", "C-22", "C-01", "C-03", "C-60", "C-12", "C-25", "C-13", "C-14",
    "C-15", "C-48", "C-49", "C-50", "C-59", "C-09", "C-11", "C-10", "C-06", "C-07", "C-08"};

/// Calls @p use with each failed finding of the conditions.
template <class Use>
void for_each_failed(const Report& report, const Use& use) {
    for (const Section& section : report.sections) {
        for (const Finding& finding : section.findings) {
            if (finding.verdict == Verdict::fail) {
                use(finding);
            }
        }
    }
}

/// Failed findings of one condition, and the pairs that at least one of them concerns.
struct Cause {
    std::vector<const Finding*> findings = {};
    std::vector<const Pair*> pairs = {};
};

void add_cause(std::vector<Cause>& causes, const Finding& finding,
               const std::vector<const Pair*>& pairs) {
    const auto same = [&](const Cause& cause) { return cause.findings.front()->id == finding.id; };
    auto cause = std::ranges::find_if(causes, same);
    if (cause == causes.end()) {
        cause = causes.insert(cause, Cause());
    }
    cause->findings.push_back(&finding);
    for (const Pair* const pair : pairs) {
        if (std::ranges::find(cause->pairs, pair) == cause->pairs.end()) {
            cause->pairs.push_back(pair);
        }
    }
}

/// Returns the conditions that block pairs. First come those that block all pairs, each part with
/// the likeliest cause first.
std::vector<Cause> blocking_causes(const Report& report) {
    std::vector<Cause> causes;
    for_each_failed(report, [&](const Finding& finding) {
        std::vector<const Pair*> pairs;
        for (const Pair& pair : report.pairs) {
            if (blocks(report, finding, pair)) {
                pairs.push_back(&pair);
            }
        }
        if (!pairs.empty()) {
            add_cause(causes, finding, pairs);
        }
    });
    std::ranges::stable_sort(causes, {}, [&report](const Cause& cause) {
        const auto* const at = std::ranges::find(causes_first, cause.findings.front()->id);
        return std::pair(cause.pairs.size() < report.pairs.size(), at - causes_first.begin());
    });
    return causes;
}

/// Returns the conditions with Severity::no_peer_to_peer that failed on a checked path. Leaves out
/// the distance (C-28), which is a property of the machine.
std::vector<Cause> path_causes(const Report& report) {
    std::vector<Cause> causes;
    for_each_failed(report, [&](const Finding& finding) {
        std::vector<const Pair*> pairs;
        for (const Pair& pair : report.pairs) {
            if (pair.checked && concerns(report, finding, pair)) {
                pairs.push_back(&pair);
            }
        }
        if (finding.severity == Severity::no_peer_to_peer && finding.id != "C-28" &&
            !pairs.empty()) {
            add_cause(causes, finding, pairs);
        }
    });
    return causes;
}

/// Returns the conditions that explain why no pair works: those that block pairs, or if there are
/// none, those of the paths.
std::vector<Cause> likely_causes(const Report& report) {
    std::vector<Cause> causes = blocking_causes(report);
    return causes.empty() ? path_causes(report) : causes;
}

/// Joins up to four texts. If there are more, joins the first three, and counts the others.
std::string shortened(const std::vector<std::string>& texts) {
    constexpr std::size_t most = 3;
    const std::size_t listed = texts.size() <= most + 1 ? texts.size() : most;
    const std::string list = fmt::format(
        "{}", fmt::join(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(listed), ", "));
    return listed == texts.size() ? list
                                  : fmt::format("{} and {} more", list, texts.size() - listed);
}

/// Returns for example "C-06 on mlx5_3".
std::string name_of(const Cause& cause) {
    std::vector<std::string> subjects;
    for (const Finding* const finding : cause.findings) {
        if (!finding->subject.empty() &&
            std::ranges::find(subjects, finding->subject.front()) == subjects.end()) {
            subjects.push_back(finding->subject.front());
        }
    }
    const std::string& id = cause.findings.front()->id;
    return subjects.empty() ? id : fmt::format("{} on {}", id, shortened(subjects));
}

std::string names_of(const std::vector<Cause>& causes) {
    std::vector<std::string> names;
    std::ranges::transform(causes, std::back_inserter(names),
                           [](const Cause& each) { return name_of(each); });
    return fmt::format("{}", fmt::join(names, "; "));
}

/// Names the failed conditions: the first with what was found, and the identifiers of the others.
std::string describe_causes(const std::vector<Cause>& causes) {
    if (causes.empty()) {
        return {};
    }
    const Finding& first = *causes.front().findings.front();
    const std::string text =
        fmt::format(" Likeliest cause: {}, \"{}\" is not met{}.", name_of(causes.front()),
                    first.condition, first.found.empty() ? "" : ": " + first.found);
    const std::vector<Cause> others(causes.begin() + 1, causes.end());
    return others.empty() ? text : fmt::format("{} Also not met: {}.", text, names_of(others));
}

/// Says which paths may be slow or fail, and why.
std::string describe_paths(const Report& report) {
    const auto checked = std::ranges::count_if(report.pairs, &Pair::checked);
    std::vector<std::string> texts;
    for (const Cause& cause : path_causes(report)) {
        std::vector<std::string> pairs;
        for (const Pair* const pair : cause.pairs) {
            pairs.push_back(fmt::format("{} with {}", pair->gpu, pair->nic));
        }
        texts.push_back(!has_gpu(report) ? name_of(cause)
                        : std::ssize(pairs) == checked && checked > 1
                            ? name_of(cause) + " (all pairs)"
                            : fmt::format("{} ({})", name_of(cause), shortened(pairs)));
    }
    return texts.empty() ? "" : fmt::format(" Slow or failing: {}.", fmt::join(texts, "; "));
}

/// Says that the result is not known: names the conditions that exclude only dma-bufs, and the
/// reasons why memory of GPUs was not tested.
std::string describe_unknown(const Report& report) {
    std::vector<std::string> dmabufs;
    for_each_failed(report, [&](const Finding& finding) {
        const auto left = [&](const Pair& pair) {
            return leaves_peer_memory(report, finding, pair) && concerns(report, finding, pair);
        };
        if (std::ranges::any_of(report.pairs, left) &&
            std::ranges::find(dmabufs, finding.id) == dmabufs.end()) {
            dmabufs.push_back(finding.id);
        }
    });
    std::string text = fmt::format("it is not known whether a pair of {}memory and NIC works",
                                   has_gpu(report) ? "GPU " : "");
    if (!dmabufs.empty()) {
        text += fmt::format(" by {}; dma-bufs: {}", report.peer_memory, fmt::join(dmabufs, ", "));
    }
    std::set<std::string> reasons;
    for (const Proof& proof : report.proofs) {
        if (proof.on_gpu && proof.no_memory) {
            reasons.insert(
                fmt::format("{}.{}{}", proof.text, proof.remedy.empty() ? "" : " ", proof.remedy));
        }
    }
    text += reasons.empty() ? "." : fmt::format(": {}", fmt::join(reasons, " "));
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

} // namespace

const Finding* likeliest_cause(const Report& report) {
    const auto causes = likely_causes(report);
    return exit_status(report) == 1 && !causes.empty() ? causes.front().findings.front() : nullptr;
}

std::string describe_result(const Report& report) {
    std::vector<const Proof*> proven;
    std::vector<const Proof*> insufficient;
    std::vector<const Proof*> failed;
    for (const Proof& proof : report.proofs) {
        if (is_sufficient(report, proof)) {
            proven.push_back(&proof);
        } else if (proof.counts && proof.verdict != Verdict::unknown) {
            (proof.verdict == Verdict::pass ? insufficient : failed).push_back(&proof);
        }
    }
    const int status = exit_status(report);
    auto blocked = blocking_causes(report);
    std::erase_if(blocked, [&proven](const Cause& cause) {
        return std::ranges::all_of(cause.pairs, [&proven](const Pair* pair) {
            return std::ranges::any_of(proven,
                                       [pair](const Proof* proof) { return is_of(*proof, *pair); });
        });
    });
    std::string text;
    if (status == 0) {
        text =
            fmt::format("{}. {} of {} pairs of memory and NIC are proven in both directions: {}.",
                        describe_success(proven), proven.size(), proven.size() + failed.size(),
                        describe_pairs(proven));
    } else if (report.require_dmabuf && !insufficient.empty()) {
        text = "no dma-buf is proven, as --require asks.";
    } else if (status == 1) {
        text =
            fmt::format("no pair of {} memory and NIC works.", has_gpu(report) ? "GPU" : "device");
    } else {
        text = describe_unknown(report);
    }
    if (status == 1) {
        text += describe_causes(likely_causes(report)) + describe_exports(report);
    } else if (!blocked.empty()) {
        text += fmt::format(" Out: {}.", names_of(blocked));
    }
    if (status != 1 || !blocked.empty()) {
        text += describe_paths(report);
    }
    if (!insufficient.empty()) {
        text += fmt::format(" Proven{}: {}.", has_gpu(report) ? " without a GPU" : "",
                            describe_pairs(insufficient));
    }
    if (!failed.empty()) {
        text += fmt::format(" Failed: {}.", describe_pairs(failed));
    }
    return fmt::format("Result: {}{}",
                       report.selected_gpu.empty() ? "" : "GPU " + report.selected_gpu + ": ",
                       text);
}

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
    return text + "\n" + wrap(style, describe_result(report), "", "  ");
}

} // namespace rdmabuf::tools::doctor
