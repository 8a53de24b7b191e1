// SPDX-License-Identifier: BSD-3-Clause
//
// The kinds of memory for which `rdmabuf doctor` makes proofs, with the fake CUDA driver.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/proof.hpp"
#include "fake_driver.hpp"
#include "sysfs_tree.hpp"

namespace rdmabuf::tools::doctor {
namespace {

namespace fs = std::filesystem;
using rdmabuf::testing::SysfsTree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* nic = "pci0000:00/0000:00:05.0 nic=mlx5_0\n";
/// The GPUs of the fake driver.
constexpr const char* gpus =
    "pci0000:3a/0000:3a:00.0/0000:3b:00.0 gpu\n"
    "pci0000:3a/0000:3a:01.0/0000:3c:00.0 gpu\n";

class DoctorMemoryTest : public ::testing::Test {
  protected:
    void SetUp() override { fake_driver::reset(2); }
    void TearDown() override { fake_driver::reset(1); }

    /// Returns the entries of a machine for memory of CUDA.
    static std::vector<MemoryKindEntry> cuda_memory(const SysfsTree& tree,
                                                    const Options& options = {}) {
        const std::vector<MemoryKindEntry> all = all_memory(tree, options);
        std::vector<MemoryKindEntry> found;
        for (const MemoryKindEntry& entry : all) {
            if (entry.options.type == "cuda") {
                found.push_back(entry);
            }
        }
        return found;
    }
    static std::vector<MemoryKindEntry> all_memory(const SysfsTree& tree, const Options& options) {
        Machine machine(tree.root());
        const Devices devices(machine, "");
        const Check check(machine, devices, options, std::nullopt);
        return find_memory(check, options);
    }
    /// Writes a file, with its directories, below the root of the machine.
    static void write(const SysfsTree& tree, const char* path, const char* text = "") {
        const fs::path file = tree.root() / path;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
};

/// Returns "name, GPU" of each entry, with the reason if the memory cannot be allocated.
std::vector<std::string> describe(const std::vector<MemoryKindEntry>& entries) {
    std::vector<std::string> all;
    all.reserve(entries.size());
    for (const MemoryKindEntry& entry : entries) {
        all.push_back(entry.name + ", " + entry.gpu +
                      (entry.missing.empty() ? "" : ": " + entry.missing));
    }
    return all;
}

TEST_F(DoctorMemoryTest, AGpuThatSysfsDoesNotListIsFoundByItsDeviceNode) {
    const SysfsTree tree(nic);
    EXPECT_THAT(cuda_memory(tree), IsEmpty());
    write(tree, "dev/nvidiactl");
    EXPECT_THAT(describe(cuda_memory(tree)),
                ElementsAre("cuda:0, 0000:3b:00.0", "cuda:1, 0000:3c:00.0"));
}

TEST_F(DoctorMemoryTest, TheDeviceNodeOfAnotherGpuIsNotUsed) {
    const SysfsTree tree("pci0000:00/0000:00:06.0 gpu\n");
    tree.write("bus/pci/devices/0000:00:06.0/vendor", "0x1002\n");
    write(tree, "dev/nvidiactl");
    EXPECT_THAT(cuda_memory(tree), IsEmpty());
}

TEST_F(DoctorMemoryTest, TheDriverIsNotInitialisedForModulesThatExportNothing) {
    const SysfsTree tree(nic);
    write(tree, "dev/nvidiactl");
    write(tree, "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module");
    const auto entries = cuda_memory(tree);
    ASSERT_EQ(entries.size(), 1U);
    EXPECT_THAT(entries[0].missing, HasSubstr("C-12"));
    EXPECT_EQ(fake_driver::calls("cuInit"), 0U);
}

TEST_F(DoctorMemoryTest, EachGpuHasAnEntryAndGpuSelectsOne) {
    const SysfsTree tree(gpus);
    EXPECT_THAT(describe(cuda_memory(tree)),
                ElementsAre("cuda:0, 0000:3b:00.0", "cuda:1, 0000:3c:00.0"));
    EXPECT_THAT(describe(all_memory(tree, {.gpu = "1"})), ElementsAre("cuda:1, 0000:3c:00.0"));
}

TEST_F(DoctorMemoryTest, AGpuThatCudaDoesNotListHasTheReason) {
    fake_driver::reset(1);
    const SysfsTree tree(gpus);
    EXPECT_THAT(describe(cuda_memory(tree)),
                ElementsAre("cuda:0, 0000:3b:00.0",
                            "cuda, 0000:3c:00.0: CUDA does not list this GPU "
                            "(CUDA_VISIBLE_DEVICES)"));
}

} // namespace
} // namespace rdmabuf::tools::doctor
