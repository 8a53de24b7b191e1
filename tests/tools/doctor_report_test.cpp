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
        longest = std::max(longest, line.size());
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

/// Returns the sentence that begins with "Result:", in one line.
std::string result_of(const Report& report) {
    const std::string text = format_result(report, {.width = 1000});
    return text.substr(text.find("Result:"));
}

Pair pair_of(const char* gpu, const char* nic) {
    return {
        .gpu = gpu, .nic = nic, .vendor = 0x10de, .names = {gpu, "nvidia", nic}, .checked = true};
}

Finding failed_on(const char* id, const char* subject, Severity severity = Severity::blocks) {
    Finding finding = failed(severity);
    finding.id = id;
    finding.condition = "it holds";
    finding.subject = {subject};
    finding.found = "it does not";
    return finding;
}

Proof proof_on_gpu(const char* gpu, const char* nic, Verdict verdict, const char* path = "dmabuf") {
    Proof result = proof("cuda:0", nic, verdict);
    result.on_gpu = true;
    result.gpu = gpu;
    result.path = verdict == Verdict::pass ? path : "";
    return result;
}

TEST(DoctorReportTest, WithAGpuOnlyAProofWithItsMemoryGivesStatusZero) {
    Report report = report_of({}, {proof("udmabuf", "mlx5_0", Verdict::pass)});
    report.pairs = {pair_of("g0", "mlx5_0")};
    report.pairs.front().is_optional = true; // the GPU of a laptop
    EXPECT_EQ(exit_status(report), 0);
    report.pairs.front().is_optional = false;
    EXPECT_EQ(exit_status(report), 2);
    EXPECT_EQ(
        result_of(report),
        "Result: it is not known whether a pair of GPU memory and NIC works. Proven without a "
        "GPU: udmabuf with mlx5_0.\n");
    Proof missing = proof_on_gpu("g0", "mlx5_0", Verdict::unknown);
    missing.no_memory = true;
    missing.text = "this rdmabuf was built without the exporter cuda";
    missing.remedy = "Configure it.";
    report.proofs.push_back(missing);
    EXPECT_THAT(result_of(report),
                HasSubstr("works: this rdmabuf was built without the exporter cuda. Configure it. "
                          "Proven without"));
    report.proofs.push_back(proof_on_gpu("g0", "mlx5_0", Verdict::fail));
    EXPECT_EQ(exit_status(report), 1);
    report.proofs.back() = proof_on_gpu("g0", "mlx5_0", Verdict::pass);
    EXPECT_EQ(exit_status(report), 0);
}

TEST(DoctorReportTest, AConditionOfOneNicExcludesOnlyItsPairs) {
    Report report = report_of({failed_on("C-06", "mlx5_1")});
    report.pairs = {pair_of("g0", "mlx5_0"), pair_of("g0", "mlx5_1")};
    EXPECT_EQ(exit_status(report), 2);
    EXPECT_THAT(result_of(report), HasSubstr("NIC works. Out: C-06 on mlx5_1.\n"));
    EXPECT_EQ(likeliest_cause(report), nullptr);
    report.proofs = {proof_on_gpu("g0", "mlx5_0", Verdict::pass)};
    EXPECT_EQ(exit_status(report), 0);
    EXPECT_THAT(result_of(report), HasSubstr("cuda:0 with mlx5_0. Out: C-06 on mlx5_1.\n"));
    report.proofs = {proof_on_gpu("g0", "mlx5_0", Verdict::fail)};
    EXPECT_EQ(exit_status(report), 1) << "each pair has a failure";
    report.proofs.clear();
    report.sections[0].findings.push_back(failed_on("C-20", "mlx5_0"));
    EXPECT_EQ(exit_status(report), 1);
    report.sections[0].findings.push_back(failed_on("C-60", "g0"));
    ASSERT_NE(likeliest_cause(report), nullptr);
    EXPECT_EQ(likeliest_cause(report)->id, "C-60") << "it excludes all pairs";
    EXPECT_THAT(result_of(report),
                HasSubstr("Likeliest cause: C-60 on g0, \"it holds\" is not met: it "
                          "does not. Also not met: C-20 on mlx5_0; C-06 on mlx5_1."));
}

TEST(DoctorReportTest, AConditionOfAVendorConcernsOnlyItsGpus) {
    Finding finding = failed_on("C-48", "C-48");
    finding.vendor = 0x1002;
    Report report = report_of({finding});
    report.pairs = {pair_of("g0", "mlx5_0")};
    EXPECT_EQ(exit_status(report), 2);
    report.pairs.front().vendor = 0x1002;
    EXPECT_EQ(exit_status(report), 1);
}

TEST(DoctorReportTest, PeerMemoryRemainsPossibleWithoutDmaBufs) {
    Report report = report_of({failed_on("C-12", "nvidia"), failed_on("C-09", "mlx5_0")});
    for (Finding& finding : report.sections[0].findings) {
        finding.only_dmabufs = true;
    }
    report.pairs = {pair_of("g0", "mlx5_0")};
    EXPECT_EQ(exit_status(report), 1);
    report.peer_memory = "nvidia_peermem";
    EXPECT_EQ(exit_status(report), 2);
    EXPECT_THAT(result_of(report), HasSubstr("works by nvidia_peermem; dma-bufs: C-12, C-09.\n"));
    report.proofs = {proof_on_gpu("g0", "mlx5_0", Verdict::pass, "peermem")};
    EXPECT_EQ(exit_status(report), 0);
    report.require_dmabuf = true;
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_THAT(result_of(report),
                HasSubstr("no dma-buf is proven, as --require asks. Likeliest cause: C-12"));
}

TEST(DoctorReportTest, TheResultNamesPathsThatMayBeSlowOrFail) {
    Report report = report_of({failed_on("C-31", "bridge", Severity::no_peer_to_peer),
                               failed_on("C-28", "g0", Severity::no_peer_to_peer)});
    report.pairs = {pair_of("g0", "mlx5_0"), pair_of("g1", "mlx5_0")};
    report.pairs[1].names.emplace_back("bridge");
    EXPECT_THAT(result_of(report),
                HasSubstr("Slow or failing: C-31 on bridge (g1 with mlx5_0).\n"));
    report.pairs[0].names.emplace_back("bridge");
    EXPECT_THAT(result_of(report), HasSubstr("Slow or failing: C-31 on bridge (all pairs).\n"));
    report.pairs[0].checked = report.pairs[1].checked = false;
    EXPECT_THAT(result_of(report), Not(HasSubstr("Slow")));
}

TEST(DoctorReportTest, TheResultNamesTheMemoryThatWasProvenAndThatFailed) {
    EXPECT_EQ(result_of(report_of({}, {proof("udmabuf", "mlx5_0", Verdict::pass),
                                       proof("drm", "mlx5_0", Verdict::fail),
                                       proof("cuda:0", "mlx5_0", Verdict::unknown),
                                       proof("host", "mlx5_0", Verdict::pass, false)})),
              "Result: RDMA on dma-bufs works. 1 of 2 pairs of memory and NIC are proven in both "
              "directions: udmabuf with mlx5_0. Failed: drm with mlx5_0.\n");
    Proof peer = proof("cuda:0", "mlx5_0", Verdict::pass);
    peer.path = "peermem";
    EXPECT_THAT(result_of(report_of({}, {peer})), HasSubstr("RDMA on device memory works."));
    EXPECT_EQ(result_of(report_of({}, {proof("drm", "mlx5_0", Verdict::fail)})),
              "Result: no pair of device memory and NIC works. Failed: drm with mlx5_0.\n");
}

Finding not_met(const char* id, Severity severity) {
    Finding finding = failed(severity);
    finding.id = id;
    finding.condition = "it holds";
    finding.subject.clear();
    finding.found = "it does not";
    return finding;
}

TEST(DoctorReportTest, TheResultNamesTheConditionsThatBlockWithTheLikeliestCauseFirst) {
    const std::vector findings{
        not_met("C-24", Severity::information), not_met("C-04", Severity::blocks),
        not_met("C-31", Severity::no_peer_to_peer), not_met("C-15", Severity::blocks),
        not_met("C-05", Severity::blocks)};
    EXPECT_EQ(
        result_of(report_of(findings)),
        "Result: no pair of device memory and NIC works. Likeliest cause: C-05, \"it holds\" is "
        "not met: it does not. Also not met: C-04; C-15. Slow or failing: C-31.\n");
    EXPECT_THAT(result_of(report_of({not_met("C-31", Severity::no_peer_to_peer)},
                                    {proof("cuda:0", "mlx5_0", Verdict::fail)})),
                HasSubstr("Likeliest cause: C-31"));
    EXPECT_THAT(result_of(report_of({not_met("C-24", Severity::information)})),
                Not(HasSubstr("cause")));
}

TEST(DoctorReportTest, WithoutANicTheResultNamesTheMemoryThatWasExported) {
    Finding exported = not_met("C-59", Severity::blocks);
    exported.verdict = Verdict::pass;
    exported.subject = {"cuda:0"};
    EXPECT_THAT(
        result_of(report_of({not_met("C-05", Severity::blocks), exported})),
        HasSubstr("The side of the memory is ready: the drivers of cuda:0 export dma-bufs."));
}

TEST(DoctorReportTest, AFailureHasTheSeverityInItsLine) {
    const auto line = [](Severity severity) {
        const Report report = report_of({not_met("C-05", severity)});
        return format_section(report.sections.front(), {});
    };
    EXPECT_THAT(line(Severity::blocks), HasSubstr("\n  fail    block C-05  it holds"));
    EXPECT_THAT(line(Severity::no_peer_to_peer), HasSubstr("fail    p2p   C-05"));
    EXPECT_THAT(line(Severity::slows), HasSubstr("fail    slow  C-05"));
    EXPECT_THAT(line(Severity::gpu_initiated), HasSubstr("fail    gpu   C-05"));
    EXPECT_THAT(line(Severity::information), HasSubstr("fail    note  C-05"));
    Finding passed = not_met("C-05", Severity::blocks);
    passed.verdict = Verdict::pass;
    EXPECT_THAT(format_section(report_of({passed}).sections.front(), {}),
                HasSubstr("\n  pass          C-05  it holds"));
}

TEST(DoctorReportTest, MemoryOnTheNicIsNoProofOfDmaBufs) {
    Proof nic_memory = proof("dm", "mlx5_0", Verdict::pass);
    nic_memory.path = "dm";
    const Report report = report_of({failed(Severity::blocks)},
                                    {proof("udmabuf", "mlx5_0", Verdict::fail), nic_memory});
    EXPECT_EQ(exit_status(report), 0);
    EXPECT_EQ(result_of(report),
              "Result: RDMA on memory on the NIC works, but no dma-buf is proven. 1 of 2 pairs of "
              "memory and NIC are proven in both directions: dm with mlx5_0. Failed: udmabuf with "
              "mlx5_0.\n");
    nic_memory.software = "softverbs";
    EXPECT_THAT(result_of(report_of({}, {nic_memory})),
                HasSubstr("works on softverbs, a software device, but no dma-buf is proven."));
}

TEST(DoctorReportTest, OnRequestOnlyADmaBufGivesStatusZero) {
    Proof nic_memory = proof("dm", "mlx5_0", Verdict::pass);
    nic_memory.path = "dm";
    Report report = report_of({}, {nic_memory});
    EXPECT_EQ(exit_status(report), 0);
    report.require_dmabuf = true;
    EXPECT_EQ(exit_status(report), 2);
    report.proofs.push_back(proof("cuda:0", "mlx5_0", Verdict::fail));
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_EQ(result_of(report),
              "Result: no dma-buf is proven, as --require asks. Proven: dm with mlx5_0. Failed: "
              "cuda:0 with mlx5_0.\n");
    report.proofs.push_back(proof("udmabuf", "mlx5_0", Verdict::pass));
    EXPECT_EQ(exit_status(report), 0);
}

TEST(DoctorReportTest, TheResultSaysThatADeviceIsSoftware) {
    Proof software = proof("memfd", "soft0", Verdict::pass);
    software.software = "softverbs";
    EXPECT_THAT(result_of(report_of({}, {software})),
                HasSubstr("RDMA on dma-bufs works on softverbs, a software device."));
    EXPECT_THAT(result_of(report_of({}, {software, proof("udmabuf", "mlx5_0", Verdict::pass)})),
                HasSubstr("RDMA on dma-bufs works. 2 of 2 pairs"));
}

TEST(DoctorReportTest, LinesFitTheWidth) {
    Report report =
        report_of({failed(Severity::blocks)}, {proof("udmabuf", "mlx5_0", Verdict::pass),
                                               proof("udmabuf", "mlx5_1", Verdict::fail),
                                               proof("udmabuf", "mlx5_2", Verdict::unknown)});
    for (const std::size_t width : {40U, 60U, 80U}) {
        const TextStyle style{.width = width};
        EXPECT_LE(longest_line(format_section(report.sections.front(), style)), width);
        EXPECT_LE(longest_line(format_result(report, style)), width);
    }
    report.proofs.clear();
    report.no_proofs = "No proof was made, for a reason that is longer than forty characters.";
    EXPECT_LE(longest_line(format_result(report, {.width = 40})), 40U);
}

TEST(DoctorReportTest, AProofThatFailedSaysHowFarItGot) {
    Proof failure = proof("cuda:0", "mlx5_0", Verdict::fail);
    EXPECT_EQ(findings_of({failure}).at(0).advice.means, "") << "it was not registered";
    failure.path = "dmabuf";
    failure.remedy = "See C-32.";
    EXPECT_THAT(findings_of({failure}).at(0).advice.means, HasSubstr("does not arrive"));
    EXPECT_EQ(findings_of({failure}).at(0).advice.remedy, "See C-32.");
    failure.wrote = true;
    EXPECT_THAT(findings_of({failure}).at(0).advice.means,
                HasSubstr("Writes arrive and reads do not"));
    EXPECT_THAT(format_result(report_of({}, {failure}), {}), HasSubstr("  cuda:0      no read\n"));
    failure.read = true;
    EXPECT_THAT(findings_of({failure}).at(0).advice.means, HasSubstr("a stream of writes fails"));
    EXPECT_THAT(format_result(report_of({}, {failure}), {}), HasSubstr("  cuda:0      failed\n"));
    EXPECT_EQ(exit_status(report_of({}, {failure})), 1);
}

TEST(DoctorReportTest, TheMatrixHasOneColumnForEachNic) {
    const Report report = report_of(
        {}, {proof("udmabuf", "mlx5_0", Verdict::pass), proof("udmabuf", "mlx5_1", Verdict::fail)});
    const std::string text = format_result(report, {});
    EXPECT_THAT(text, HasSubstr("              mlx5_0   mlx5_1\n"
                                "  udmabuf     proven   failed\n"));
    EXPECT_THAT(text, HasSubstr("1 of 2 pairs"));
    // 40 columns have no room for a third NIC, so only the list remains.
    Report wide = report;
    wide.proofs.push_back(proof("udmabuf", "mlx5_2", Verdict::pass));
    EXPECT_THAT(format_result(wide, {.width = 40}), Not(HasSubstr("mlx5_0   mlx5_1")));
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
    EXPECT_THAT(format_section(section, {.colour = true}), HasSubstr("\033[31mfail"));
    EXPECT_THAT(format_section(section, {}), Not(HasSubstr("\033")));
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

TEST(DoctorReportTest, ANameWithANewlineAddsNoCommandToTheScript) {
    Finding finding = failed(Severity::blocks);
    finding.subject = {"mlx5_0\nreboot"};
    EXPECT_THAT(format_script(report_of({finding})), Not(HasSubstr("\nreboot")));
}

TEST(DoctorReportTest, JsonReplacesBytesThatAreNotText) {
    Finding finding = failed(Severity::blocks);
    finding.found = "\xff\xfe";
    const auto json = nlohmann::json::parse(to_json(report_of({finding})).dump());
    EXPECT_EQ(json["exit_status"], 1);
    EXPECT_THAT(json["result"], ::testing::StartsWith("Result: no pair of device memory"));
    EXPECT_EQ(json["likeliest_cause"], json["findings"][0]);
    EXPECT_TRUE(nlohmann::json::parse(to_json(report_of({})).dump())["likeliest_cause"].is_null());
    EXPECT_EQ(json["findings"][0]["id"], "C-31");
    EXPECT_EQ(json["findings"][0]["subject"][0], "0000:02:00.0");
    EXPECT_EQ(json["findings"][0]["found"], "\xEF\xBF\xBD\xEF\xBF\xBD");
    EXPECT_EQ(json["pairs"].size(), 0U);
}

} // namespace
} // namespace rdmabuf::tools::doctor
