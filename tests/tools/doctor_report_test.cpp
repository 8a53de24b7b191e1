// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/report.hpp"

#include <nlohmann/json.hpp>

namespace rdmabuf::tools::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

Finding failed(Severity severity) {
    return {.id = "C-31",
            .severity = severity,
            .condition = "ACS does not redirect peer-to-peer DMA",
            .subject = {"0000:02:00.0"},
            .verdict = Verdict::fail,
            .found = "ACS control 0x001d, which is a long text that does not fit in one line",
            .advice = {.means = "Transfers between the devices go through the host bridge.",
                       .remedy = "Disable the redirection.",
                       .command = "setpci -s 0000:02:00.0 ECAP_ACS+6.w=0000"},
            .source = "NCCL"};
}

Proof proof(const char* memory, const char* nic, Verdict verdict, bool counts = true) {
    Proof result;
    result.memory = memory;
    result.nic = nic;
    result.counts = counts;
    result.verdict = verdict;
    result.wrote = result.read = verdict == Verdict::pass;
    result.path = verdict == Verdict::pass ? "dmabuf" : "";
    result.text = verdict == Verdict::pass ? "" : "ibv_reg_dmabuf_mr: Operation not supported";
    return result;
}

Report report_of(std::vector<Finding> findings, std::vector<Proof> proofs = {}) {
    Report report;
    report.sections.push_back({.title = "Section", .findings = std::move(findings)});
    report.proofs = std::move(proofs);
    return report;
}

std::size_t longest_line(const std::string& text) {
    std::istringstream all(text);
    std::size_t longest = 0;
    for (std::string line; std::getline(all, line);) {
        // Commands are not wrapped.
        if (line.find("run: ") == std::string::npos) {
            longest = std::max(longest, line.size());
        }
    }
    return longest;
}

TEST(DoctorReportTest, ExitStatusIsZeroOnlyForMemoryOtherThanHostMemory) {
    EXPECT_EQ(exit_status(report_of({failed(Severity::blocks)},
                                    {proof("udmabuf", "mlx5_0", Verdict::pass)})),
              0);
    EXPECT_EQ(exit_status(report_of({}, {proof("host", "mlx5_0", Verdict::pass, false)})), 2);
}

TEST(DoctorReportTest, ExitStatusIsOneIfSomethingThatBlocksHasFailed) {
    EXPECT_EQ(exit_status(report_of({failed(Severity::blocks)})), 1);
    EXPECT_EQ(exit_status(report_of({}, {proof("udmabuf", "mlx5_0", Verdict::fail)})), 1);
}

TEST(DoctorReportTest, ExitStatusIsTwoIfNothingWasProvenAndNothingBlocks) {
    EXPECT_EQ(exit_status(report_of({failed(Severity::slows)})), 2);
    EXPECT_EQ(exit_status(report_of({}, {proof("udmabuf", "mlx5_0", Verdict::unknown)})), 2);
}

TEST(DoctorReportTest, LinesFitTheWidth) {
    Report report =
        report_of({failed(Severity::blocks)}, {proof("udmabuf", "mlx5_0", Verdict::pass),
                                               proof("udmabuf", "mlx5_1", Verdict::fail),
                                               proof("udmabuf", "mlx5_2", Verdict::unknown)});
    for (const std::size_t width : {40U, 60U, 80U}) {
        const TextFormat format{.width = width, .colours = false};
        EXPECT_LE(longest_line(format_section(report.sections.front(), format)), width);
        EXPECT_LE(longest_line(format_result(report, format)), width);
    }
    report.proofs.clear();
    report.no_proofs = "No proof was made, for a reason that is longer than forty characters.";
    EXPECT_LE(longest_line(format_result(report, {.width = 40, .colours = false})), 40U);
}

TEST(DoctorReportTest, TheMatrixHasOneColumnForEachNic) {
    const Report report = report_of(
        {}, {proof("udmabuf", "mlx5_0", Verdict::pass), proof("udmabuf", "mlx5_1", Verdict::fail)});
    const std::string text = format_result(report, {.width = 80, .colours = false});
    EXPECT_THAT(text, HasSubstr("              mlx5_0   mlx5_1\n"
                                "  udmabuf     proven   failed\n"));
    EXPECT_THAT(text, HasSubstr("1 of 2 pairs"));
    // 40 columns have no room for a third NIC, so only the list remains.
    Report wide = report;
    wide.proofs.push_back(proof("udmabuf", "mlx5_2", Verdict::pass));
    EXPECT_THAT(format_result(wide, {.width = 40, .colours = false}),
                Not(HasSubstr("mlx5_0   mlx5_1")));
}

TEST(DoctorReportTest, MemoryThatCannotBeAllocatedHasOneFinding) {
    Proof missing = proof("drm", "mlx5_0", Verdict::unknown);
    missing.no_memory = true;
    Proof other = missing;
    other.nic = "mlx5_1";
    const auto findings = findings_of({missing, other});
    ASSERT_THAT(findings, SizeIs(1));
    EXPECT_THAT(findings[0].subject, ::testing::ElementsAre("drm"));
}

TEST(DoctorReportTest, ASlowPairAndMovedMemoryHaveFindingsOfTheirOwn) {
    Proof slow = proof("rocm", "mlx5_0", Verdict::pass);
    slow.bandwidth = 10e9;
    slow.link = 50e9;
    slow.moved = true;
    const auto findings = findings_of({slow});
    ASSERT_THAT(findings, SizeIs(3));
    EXPECT_THAT(findings[0].found, HasSubstr("20 % of the link"));
    EXPECT_EQ(findings[1].id, "C-36");
    EXPECT_EQ(findings[2].severity, Severity::slows);
    EXPECT_EQ(findings[2].found, "10.0 GB/s of 50.0 GB/s");
    slow.bandwidth = 36e9;
    slow.moved = false;
    EXPECT_THAT(findings_of({slow}), SizeIs(1));
}

TEST(DoctorReportTest, ColoursAreOnlyInTheOutputForATerminal) {
    const Report report = report_of({failed(Severity::blocks)});
    const Section& section = report.sections.front();
    EXPECT_THAT(format_section(section, {.width = 80, .colours = true}), HasSubstr("\033[31mfail"));
    EXPECT_THAT(format_section(section, {.width = 80, .colours = false}), Not(HasSubstr("\033")));
}

TEST(DoctorReportTest, TheScriptHasEachCommandOfAFailedConditionOnce) {
    Finding passed = failed(Severity::blocks);
    passed.verdict = Verdict::pass;
    passed.advice.command = "never";
    const std::string script =
        format_script(report_of({failed(Severity::blocks), failed(Severity::blocks), passed}));
    EXPECT_THAT(script, ::testing::StartsWith("#!/bin/sh\n"));
    EXPECT_THAT(script, Not(HasSubstr("never")));
    const std::size_t first = script.find("\nsetpci -s 0000:02:00.0 ECAP_ACS+6.w=0000\n");
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(script.find("\nsetpci", first + 1), std::string::npos);
    EXPECT_THAT(format_script(report_of({})), HasSubstr("No failed condition has a command."));
}

TEST(DoctorReportTest, JsonReplacesBytesThatAreNotText) {
    Finding finding = failed(Severity::blocks);
    finding.found = "\xff\xfe";
    const auto json = nlohmann::json::parse(format_json(report_of({finding})));
    EXPECT_EQ(json["exit_status"], 1);
    EXPECT_EQ(json["findings"][0]["id"], "C-31");
    EXPECT_EQ(json["findings"][0]["subject"][0], "0000:02:00.0");
    EXPECT_EQ(json["findings"][0]["found"], "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(json["pairs"].size(), 0U);
}

TEST(DoctorReportTest, WrapDividesNoWord) {
    EXPECT_EQ(wrap("one two three", 0, 2, 8), "one two\n  three");
    EXPECT_EQ(wrap("/a/path/that/is/longer/than/a/line", 4, 2, 10),
              "\n  /a/path/that/is/longer/than/a/line");
    EXPECT_EQ(wrap("", 0, 2, 8), "");
}

} // namespace
} // namespace rdmabuf::tools::doctor
