// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the conditions of `rdmabuf doctor` on recorded machines. Each file of machines/ describes a
// machine and its verdicts.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/environment.hpp"
#include "doctor/run.hpp"
#include "recorded_machine.hpp"

namespace rdmabuf::tools::doctor {
namespace {

namespace fs = std::filesystem;
using rdmabuf::testing::ExpectedFinding;
using rdmabuf::testing::RecordedMachine;
using ::testing::HasSubstr;

std::vector<std::string> machines() {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(MACHINES)) {
        names.push_back(entry.path().stem());
    }
    std::ranges::sort(names);
    return names;
}

std::string subject_of(const Finding& finding) {
    std::string text;
    for (const std::string& part : finding.subject) {
        text += (text.empty() ? "" : " ") + part;
    }
    return text;
}

std::string describe(const Finding& finding) {
    return std::string(to_string(finding.verdict)) + " " + finding.id + " " + subject_of(finding) +
           " ~ " + finding.found;
}

bool matches(const ExpectedFinding& expected, const Finding& finding) {
    const std::string text = finding.found + "\n" + finding.advice.means + "\n" +
                             finding.advice.remedy + "\n" + finding.advice.command;
    return expected.verdict == to_string(finding.verdict) && expected.id == finding.id &&
           expected.subject == subject_of(finding) && text.find(expected.text) != std::string::npos;
}

std::string environment_of(const char* name) {
    const RecordedMachine recorded(fs::path(MACHINES) / name);
    Machine machine(recorded.root());
    const Devices devices(machine, "");
    return format_environment(Check(machine, devices, {}, std::nullopt));
}

TEST(DoctorEnvironmentTest, NamesTheNearestNicAndItsDistance) {
    const std::string text = environment_of("below_a_switch.txt");
    EXPECT_THAT(text, HasSubstr("# GPU 0000:03:00.0\n# The nearest: mlx5_0:1, PIX."));
    EXPECT_THAT(text, HasSubstr("export UCX_NET_DEVICES=mlx5_0:1\nexport NCCL_IB_HCA==mlx5_0:1\n"));
    EXPECT_THAT(text, HasSubstr("export NCCL_NET_GDR_LEVEL=PIX\n"));
    EXPECT_THAT(text, HasSubstr("export NVSHMEM_ENABLE_NIC_PE_MAPPING=1\n"
                                "export NVSHMEM_HCA_LIST=mlx5_0:1\n"));
    EXPECT_THAT(environment_of("virtual_machine.txt"), HasSubstr("NCCL_NET_GDR_LEVEL=PHB\n"));
}

TEST(DoctorEnvironmentTest, SaysWhyAGpuHasNoVariables) {
    EXPECT_THAT(environment_of("h100_without_nic.txt"),
                HasSubstr("# GPU 0000:00:06.0\n# No near NIC has an active port.\n"));
    EXPECT_THAT(environment_of("network_only.txt"), HasSubstr("no GPU"));
}

class DoctorMachinesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DoctorMachinesTest, HasTheVerdictsOfItsDescription) {
    const RecordedMachine machine(fs::path(MACHINES) / (GetParam() + ".txt"));
    const Report report = inspect({.pair = true, .root = machine.root()});
    std::vector<Finding> findings;
    for (const Section& section : report.sections) {
        findings.insert(findings.end(), section.findings.begin(), section.findings.end());
    }
    std::string all;
    for (const Finding& finding : findings) {
        all += describe(finding) + "\n";
    }
    for (const ExpectedFinding& expected : machine.expected()) {
        EXPECT_TRUE(std::ranges::any_of(
            findings, [&](const Finding& each) { return matches(expected, each); }))
            << "missing: " << expected.verdict << ' ' << expected.id << ' ' << expected.subject
            << " ~ " << expected.text << "\nfound:\n"
            << all;
    }
    for (const Finding& finding : findings) {
        if (finding.verdict == Verdict::fail) {
            EXPECT_TRUE(std::ranges::any_of(
                machine.expected(),
                [&](const ExpectedFinding& each) { return matches(each, finding); }))
                << "not in the description: " << describe(finding);
            EXPECT_FALSE(finding.advice.means.empty()) << describe(finding);
        }
    }
    EXPECT_EQ(exit_status(report), machine.exit_status());
    EXPECT_THAT(report.no_proofs, HasSubstr("--root"));
    EXPECT_TRUE(report.proofs.empty());
}

INSTANTIATE_TEST_SUITE_P(Machines, DoctorMachinesTest, ::testing::ValuesIn(machines()),
                         [](const auto& each) { return each.param; });

} // namespace
} // namespace rdmabuf::tools::doctor
