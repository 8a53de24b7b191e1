// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <set>

#include <rdmabuf/version.hpp>

#include "../format.hpp"
#include "../json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr const char* proof_source = "mori issue 566, rocm-systems issue 6987";

/// If Proof::bandwidth is less than this share of Proof::link, the report says that the pair of
/// memory and NIC is slow.
constexpr double slow_share = 0.7;

bool is_slow(const Proof& proof) {
    return proof.bandwidth && proof.link && *proof.bandwidth < slow_share * *proof.link;
}

/// Returns the text "means" of a failed proof (test transfers): which transfers arrive. Empty if
/// the memory could not be registered, because no transfer was made.
std::string meaning_of(const Proof& proof) {
    if (proof.read) {
        return "Single writes and reads arrive, but a stream of writes fails.";
    }
    if (proof.wrote) {
        return "Writes arrive and reads do not. The NIC can write to the memory, and does not get "
               "the right answer when it reads: a program can receive into this memory but cannot "
               "send from it.";
    }
    return proof.path.empty() ? "" : "The memory is registered, but data does not arrive in it.";
}

std::string describe_proven(const Proof& proof) {
    std::string text = fmt::format("written and read by {}", proof.path);
    if (!proof.mapping.empty() && proof.mapping != "standard") {
        text += fmt::format(", mapping {}", proof.mapping);
    }
    if (!proof.distance.empty()) {
        text += fmt::format(", distance {}", proof.distance);
    }
    if (proof.bandwidth) {
        text += ", " + format_bandwidth(*proof.bandwidth);
    }
    if (proof.bandwidth && proof.link) {
        text += fmt::format(", {:.0f} % of the link", 100 * *proof.bandwidth / *proof.link);
    }
    return text;
}

Json json_of(const Finding& finding) {
    return {{"id", finding.id},
            {"severity", to_string(finding.severity)},
            {"condition", finding.condition},
            {"subject", finding.subject},
            {"verdict", to_string(finding.verdict)},
            {"found", finding.found},
            {"means", or_null(finding.advice.means)},
            {"remedy", or_null(finding.advice.remedy)},
            {"command", or_null(finding.advice.command)},
            {"source", finding.source}};
}

Json json_of(const Proof& proof) {
    return {{"memory", proof.memory},
            {"nic", proof.nic},
            {"verdict", to_string(proof.verdict)},
            {"counts", proof.counts},
            {"wrote", proof.wrote},
            {"read", proof.read},
            {"path", or_null(proof.path)},
            {"mapping", or_null(proof.mapping)},
            {"distance", or_null(proof.distance)},
            {"bytes_per_second", or_null(proof.bandwidth)},
            {"link_bytes_per_second", or_null(proof.link)},
            {"moved_to_system_memory", proof.moved},
            {"reason", or_null(proof.text)}};
}

} // namespace

bool has_gpu(const Report& report) noexcept {
    return std::ranges::any_of(
        report.pairs, [](const Pair& pair) { return !pair.gpu.empty() && !pair.is_optional; });
}

bool is_sufficient(const Report& report, const Proof& proof) noexcept {
    return proof.counts && proof.verdict == Verdict::pass && (proof.on_gpu || !has_gpu(report)) &&
           (!report.require_dmabuf || proof.path.starts_with("dmabuf"));
}

bool concerns(const Report& report, const Finding& finding, const Pair& pair) noexcept {
    if (finding.vendor != 0 && pair.vendor != 0 && finding.vendor != pair.vendor) {
        return false;
    }
    return std::ranges::none_of(finding.subject, [&](const std::string& name) {
        const auto has_name = [&name](const Pair& each) {
            return std::ranges::find(each.names, name) != each.names.end();
        };
        return !has_name(pair) && std::ranges::any_of(report.pairs, has_name);
    });
}

bool leaves_peer_memory(const Report& report, const Finding& finding, const Pair& pair) noexcept {
    return !report.peer_memory.empty() && pair.vendor == nvidia_vendor && finding.only_dmabufs;
}

bool blocks(const Report& report, const Finding& finding, const Pair& pair) noexcept {
    return finding.verdict == Verdict::fail && finding.severity == Severity::blocks &&
           (report.require_dmabuf || !leaves_peer_memory(report, finding, pair)) &&
           concerns(report, finding, pair);
}

bool is_of(const Proof& proof, const Pair& pair) noexcept {
    return (pair.nic.empty() || proof.nic == pair.nic) &&
           (pair.gpu.empty() || (proof.on_gpu && (proof.gpu.empty() || proof.gpu == pair.gpu)));
}

int exit_status(const Report& report) noexcept {
    const auto sufficient = [&](const Proof& proof) { return is_sufficient(report, proof); };
    if (std::ranges::any_of(report.proofs, sufficient)) {
        return 0;
    }
    const auto fails = [&](const Pair& pair) {
        const auto failed = [&pair](const Proof& proof) {
            return proof.verdict == Verdict::fail && is_of(proof, pair);
        };
        const auto blocked = [&](const Section& section) {
            return std::ranges::any_of(section.findings, [&](const Finding& finding) {
                return blocks(report, finding, pair);
            });
        };
        return std::ranges::any_of(report.proofs, failed) ||
               std::ranges::any_of(report.sections, blocked);
    };
    return std::ranges::all_of(report.pairs, fails) ? 1 : 2;
}

std::vector<Finding> findings_of(const std::vector<Proof>& proofs) {
    std::vector<Finding> findings;
    std::set<std::string> missing;
    for (const Proof& proof : proofs) {
        // Memory that cannot be allocated gets one finding, and not one for each NIC.
        if (proof.no_memory && !missing.insert(proof.memory).second) {
            continue;
        }
        Finding finding{.id = "C-55",
                        .severity = Severity::blocks,
                        .condition = "RDMA writes and reads arrive",
                        .subject = proof.no_memory ? std::vector{proof.memory}
                                                   : std::vector{proof.memory, proof.nic},
                        .verdict = proof.verdict,
                        .source = proof_source};
        finding.found = proof.verdict == Verdict::pass ? describe_proven(proof) : proof.text;
        finding.advice.remedy = proof.remedy;
        if (proof.verdict == Verdict::fail) {
            finding.advice.means = meaning_of(proof);
        }
        findings.push_back(std::move(finding));
        if (proof.moved) {
            findings.push_back(
                {.id = "C-36",
                 .severity = Severity::no_peer_to_peer,
                 .condition = "the memory stays on the GPU",
                 .subject = {proof.memory, proof.nic},
                 .verdict = Verdict::fail,
                 .found = "mem_info_gtt_used has grown by the size of the buffer",
                 .advice = {.means = "The driver moved the memory to system memory, so transfers "
                                     "cross PCIe twice.",
                            .remedy = "Use Linux 6.15 or newer, and a path that permits "
                                      "peer-to-peer DMA (C-28, C-30, C-31)."},
                 .source = "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c"});
        }
        if (is_slow(proof)) {
            findings.push_back(
                {.id = "C-55",
                 .severity = Severity::slows,
                 .condition = "the bandwidth is that of the link",
                 .subject = {proof.memory, proof.nic},
                 .verdict = Verdict::fail,
                 .found = fmt::format("{} of {}", format_bandwidth(*proof.bandwidth),
                                      format_bandwidth(*proof.link)),
                 .advice = {.means = "Both directions share the link when a device sends to "
                                     "itself, so up to half of the bandwidth may be lost by that.",
                            .remedy = "See the distance (C-28), the PCIe link (C-38) and whether "
                                      "the driver moved the memory (C-36)."},
                 .source = proof_source});
        }
    }
    return findings;
}

Json to_json(const Report& report, bool only_failed) {
    const auto to_array = [only_failed](Json& array, const auto& all) {
        for (const auto& each : all) {
            if (!only_failed || each.verdict == Verdict::fail) {
                array.push_back(json_of(each));
            }
        }
    };
    Json findings = Json::array();
    for (const Section& section : report.sections) {
        to_array(findings, section.findings);
    }
    to_array(findings, findings_of(report.proofs));
    Json pairs = Json::array();
    to_array(pairs, report.proofs);
    const Finding* const cause = likeliest_cause(report);
    return {{"version", version()},
            {"exit_status", exit_status(report)},
            {"result", describe_result(report)},
            {"likeliest_cause", cause != nullptr ? json_of(*cause) : Json()},
            {"no_proofs", or_null(report.no_proofs)},
            {"findings", std::move(findings)},
            {"pairs", std::move(pairs)}};
}

std::string format_script(const Report& report) {
    std::string text =
        "#!/bin/sh\n"
        "# The commands that correct the conditions that `rdmabuf doctor` found to fail. Run them\n"
        "# as root. Read each of them first: some need a reboot, or weaken the isolation of PCI\n"
        "# devices.\n";
    std::set<std::string> printed;
    for (const Section& section : report.sections) {
        for (const Finding& finding : section.findings) {
            const std::string& command = finding.advice.command;
            if (finding.verdict == Verdict::fail && !command.empty() &&
                printed.insert(command).second) {
                const std::string subject =
                    finding.subject.empty() ? "this machine"
                                            : fmt::format("{}", fmt::join(finding.subject, ", "));
                text += fmt::format("\n# {}: {} ({})\n{}\n", finding.id, finding.condition,
                                    printable(subject), printable(command));
            }
        }
    }
    return printed.empty() ? text + "\n# No failed condition has a command.\n" : text;
}

} // namespace rdmabuf::tools::doctor
