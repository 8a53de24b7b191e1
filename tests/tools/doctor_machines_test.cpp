// SPDX-License-Identifier: BSD-3-Clause
//
// Executes the checks of `rdmabuf doctor` on recorded machines. Each file of machines/ describes a
// machine and its verdicts.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/environment.hpp"
#include "doctor/kernel_files.hpp"
#include "doctor/machine_dump.hpp"
#include "doctor/pci_config.hpp"
#include "doctor/run.hpp"
#include "options.hpp"
#include "recorded_machine.hpp"
#include "temporary_directory.hpp"

namespace rdmabuf::tools::doctor {
namespace {

namespace fs = std::filesystem;
using rdmabuf::testing::ExpectedFinding;
using rdmabuf::testing::RecordedMachine;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
    // Beyond PXB, the level is only a proposal.
    EXPECT_THAT(environment_of("virtual_machine.txt"),
                HasSubstr("\n# export NCCL_NET_GDR_LEVEL=PHB\n"));
    EXPECT_THAT(environment_of("direct_nic.txt"), HasSubstr("\n# export NCCL_NET_GDR_LEVEL=PHB\n"));
}

TEST(DoctorEnvironmentTest, SaysWhyAGpuHasNoVariables) {
    EXPECT_THAT(environment_of("h100_without_nic.txt"),
                HasSubstr("# GPU 0000:00:06.0\n# No near NIC can be used.\n"));
    EXPECT_THAT(environment_of("network_only.txt"), HasSubstr("no GPU"));
}

TEST(DoctorEnvironmentTest, NamesOnlyNicsThatCanBeOpened) {
    EXPECT_THAT(environment_of("container.txt"),
                AllOf(HasSubstr("# mlx5_0 cannot be opened.\n# mlx5_1 cannot be opened.\n"),
                      HasSubstr("export UCX_NET_DEVICES=mlx5_2:1\n")));
}

/// A dump in a file, and the machine that it describes.
class DoctorReplayTest : public ::testing::Test {
  protected:
    [[nodiscard]] ReplayedMachine replay(const std::string& text) const {
        std::ofstream(file_) << text;
        return ReplayedMachine(file_);
    }
    [[nodiscard]] std::string refusal(const std::string& text) const {
        try {
            const ReplayedMachine machine = replay(text);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "accepted";
    }

  private:
    TemporaryDirectory directory_;
    fs::path file_ = fs::path(directory_.path()) / "dump.json";
};

TEST_F(DoctorReplayTest, ReadsTheFunctionsOfRdmaTopo) {
    // A switch port with ACS, a GPU below it, and a NIC. The registers are compressed by zlib.
    const ReplayedMachine files = replay(R"([
        {"realpath": "/sys/devices/pci0000:00/0000:00:01.0",
         "modalias": "pci:v000015B3d0000197Csv00000000sd00000000bc06sc04i00",
         "config": "eNrtxjENACAQBMFDAAkG8IJ/VXxJSwmZKTab3FvHj7ytp1VnAAAA4Gcbg7kAfA=="},
        {"realpath": "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", "numa_node": 1,
         "modalias": "pci:v000010DEd00002901sv000010DEsd00001999bc03sc02i00", "iommu_group": 7},
        {"realpath": "/sys/devices/pci0000:00/0000:00:02.0", "numa_node": -1, "config": null,
         "modalias": "pci:v000015B3d00001023sv000015B3sd00000023bc02sc07i00",
         "subsystems": {"infiniband": ["mlx5_0"], "net": ["ib0"]}}])");
    const Machine machine(files.root());
    ASSERT_EQ(machine.gpus().size(), 1U);
    EXPECT_EQ(machine.gpus()[0].name, "0000:01:00.0");
    EXPECT_EQ(machine.topology().find_pci_function(machine.gpus()[0].address)->numa_node, 1);
    EXPECT_EQ(machine.link_name("/sys/bus/pci/devices/0000:01:00.0/iommu_group"), "7");
    ASSERT_EQ(machine.nics().size(), 1U);
    EXPECT_EQ(machine.nics()[0].name, "mlx5_0");
    EXPECT_EQ(machine.nics()[0].pci, "0000:00:02.0");
    EXPECT_EQ(PciConfig(machine, "0000:00:01.0").acs_control(), 0x1d);
}

TEST_F(DoctorReplayTest, WritesNothingOutsideOfItsDirectory) {
    EXPECT_THAT(refusal(R"({"files": {"/../outside": ""}})"), HasSubstr("not an absolute path"));
    EXPECT_THAT(refusal(R"({"files": {"sys": ""}})"), HasSubstr("not an absolute path"));
    EXPECT_THAT(refusal(R"({"files": {"/a": {"link": "/"}, "/a/b": {"link": "c"}}})"),
                HasSubstr("leads out of the dump"));
}

TEST_F(DoctorReplayTest, RefusesOtherFiles) {
    EXPECT_THAT(refusal("{}"), HasSubstr("neither written by rdmabuf doctor --dump"));
    EXPECT_THAT(refusal("no JSON"), HasSubstr("parse error"));
    EXPECT_LT(refusal("{\"files\": {\"/a\": \"" + std::string(10000, 'x')).size(), 500U);
    EXPECT_THAT(refusal(R"({"rdmabuf_dump": 2, "files": {}})"), HasSubstr("another version"));
    EXPECT_THAT(refusal(R"({"files": {"/a": 5}})"), HasSubstr("is not a file"));
    EXPECT_THAT(refusal(R"([{"realpath": "/sys/devices/x"}])"), HasSubstr("no \"modalias\""));
}

TEST(DoctorDumpTest, HasTheKernelAndItsLog) {
    const TemporaryDirectory directory;
    const fs::path dump = fs::path(directory.path()) / "dump.json";
    const Machine running;
    write_dump(dump, running, Report());
    const ReplayedMachine files(dump);
    const Machine replayed(files.root());
    EXPECT_EQ(replayed.kernel_release(), running.kernel_release());
    EXPECT_EQ(read_kernel_log(replayed).text.has_value(),
              read_kernel_log(running).text.has_value());
}

TEST(DoctorDumpTest, HasTheReasonWhyADeviceNodeCannotBeOpened) {
    const RecordedMachine recorded(fs::path(MACHINES) / "below_a_switch.txt");
    const fs::path node = recorded.root() / "dev/infiniband/uverbs0";
    fs::remove(node);
    ASSERT_EQ(::mknod(node.c_str(), S_IFSOCK | 0600, 0), 0) << "open(2) fails, also for root";
    Machine machine(recorded.root());
    const Report report = inspect(machine, {});
    EXPECT_THAT(describe_result(report), HasSubstr("C-20 on mlx5_0"));
    const TemporaryDirectory directory;
    const fs::path dump = fs::path(directory.path()) / "dump.json";
    write_dump(dump, machine, report);
    const ReplayedMachine files(dump);
    Machine replayed(files.root());
    EXPECT_EQ(to_json(inspect(replayed, {})).dump(), to_json(report).dump());
}

TEST(DoctorDumpTest, HasTheFilesOfDevicesThatWereNotSelected) {
    const TemporaryDirectory directory;
    const fs::path dump = fs::path(directory.path()) / "dump.json";
    const RecordedMachine recorded(fs::path(MACHINES) / "no_iommu.txt");
    Machine dumped(recorded.root());
    write_dump(dump, dumped, inspect(dumped, {.device = "mlx5_1", .gpu = "1", .dump = dump}));
    const ReplayedMachine files(dump);
    Machine replayed(files.root());
    Machine machine(recorded.root());
    EXPECT_EQ(to_json(inspect(replayed, {.pair = true})).dump(),
              to_json(inspect(machine, {.pair = true})).dump());
}

/// Returns the report on a machine of the directory machines.
Report report_of(const char* name, const Options& options) {
    const RecordedMachine recorded(fs::path(MACHINES) / name);
    Machine machine(recorded.root());
    return inspect(machine, options);
}

int status_of(const char* name, const Options& options) {
    return exit_status(report_of(name, options));
}

TEST(DoctorSelectionTest, TheResultIsThatOfTheSelectedPairs) {
    EXPECT_EQ(status_of("one_port_down.txt", {.gpu = "1"}), 2) << "mlx5_0 is active";
    EXPECT_EQ(status_of("one_port_down.txt", {.device = "mlx5_1"}), 1);
    EXPECT_EQ(status_of("gpu_drivers.txt", {.gpu = "6"}), 2);
    EXPECT_EQ(status_of("gpu_drivers.txt", {.gpu = "0"}), 1);
    EXPECT_EQ(status_of("across_host_bridges.txt", {.require_dmabuf = true}), 1);
}

TEST(DoctorSelectionTest, TheResultHasThePciAddressOfTheSelectedGpu) {
    EXPECT_THAT(describe_result(report_of("one_port_down.txt", {.gpu = "1"})),
                StartsWith("Result: GPU 0000:83:00.0: it is not known"));
    EXPECT_THAT(describe_result(report_of("one_port_down.txt", {.gpu = "0000:83:00.0"})),
                StartsWith("Result: GPU 0000:83:00.0: it is not known"));
    EXPECT_THAT(describe_result(report_of("one_port_down.txt", {})),
                StartsWith("Result: it is not known"));
}

TEST(DoctorSelectionTest, AGpuThatDoesNotExistIsRefused) {
    for (const auto& [gpu, text] :
         {std::pair("0000:84:00.0", "is not a GPU; GPUs of this machine: 0000:03:00.0, "),
          std::pair("0000:17:00.0", "is not a GPU; GPUs of this machine: 0000:03:00.0, "),
          std::pair("2", "does not exist; this machine has 2 GPU(s)"),
          std::pair("1x", "is neither a PCI address such as 0000:17:00.0 nor an index")}) {
        try {
            report_of("one_port_down.txt", {.gpu = gpu});
            ADD_FAILURE() << gpu;
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(),
                        AllOf(StartsWith(std::string("--gpu ") + gpu), HasSubstr(text)));
        }
    }
}

class DoctorMachinesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DoctorMachinesTest, HasTheVerdictsOfItsDescription) {
    const RecordedMachine machine(fs::path(MACHINES) / (GetParam() + ".txt"));
    const Options options{.pair = true};
    Machine recorded(machine.root());
    const Report report = inspect(recorded, options);
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
    // A dump of the machine has the same findings.
    const TemporaryDirectory directory;
    const fs::path dump = fs::path(directory.path()) / "dump.json";
    write_dump(dump, recorded, report);
    const ReplayedMachine files(dump);
    Machine replayed(files.root());
    EXPECT_EQ(to_json(inspect(replayed, options)).dump(), to_json(report).dump());
    EXPECT_EQ(exit_status(report), machine.exit_status());
    for (const std::string& result : machine.results()) {
        EXPECT_THAT(describe_result(report), HasSubstr(result));
    }
    EXPECT_THAT(report.no_proofs, HasSubstr("--root"));
    EXPECT_TRUE(report.proofs.empty());
}

INSTANTIATE_TEST_SUITE_P(Machines, DoctorMachinesTest, ::testing::ValuesIn(machines()),
                         [](const auto& each) { return each.param; });

} // namespace
} // namespace rdmabuf::tools::doctor
