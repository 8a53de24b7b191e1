// SPDX-License-Identifier: BSD-3-Clause
#include "doctor/kernel_files.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "recorded_machine.hpp"
#include "temporary_directory.hpp"

namespace rdmabuf::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* option = "CONFIG_PCI_P2PDMA";

/// A machine with a compressed configuration in which the option is off, and the configuration file
/// of a distribution in which it is on.
class KernelOptionTest : public ::testing::Test {
  protected:
    KernelOptionTest() {
        const fs::path file = recorded_.root() / "boot/config-";
        fs::create_directories(file.parent_path());
        std::ofstream(file) << option << "=y\n";
    }

    [[nodiscard]] std::string compressed() const {
        return *Machine(recorded_.root()).read("/proc/config.gz").text;
    }
    /// Replaces /proc/config.gz and reads the option.
    [[nodiscard]] KernelOption read_with(std::string_view contents) const {
        std::ofstream(recorded_.root() / "proc/config.gz") << contents;
        return read_kernel_option(Machine(recorded_.root()), option);
    }

  private:
    rdmabuf::testing::RecordedMachine recorded_{fs::path(MACHINES) / "gpus_without_nic.txt"};
};

TEST_F(KernelOptionTest, TheConfigurationOfTheKernelItselfIsReadFirst) {
    const KernelOption found = read_with(compressed());
    EXPECT_EQ(found.state, KernelOption::State::off);
    EXPECT_EQ(found.where, "/proc/config.gz");
}

TEST_F(KernelOptionTest, AnIncompleteConfigurationIsNotUsed) {
    for (const std::string& contents :
         {compressed().substr(0, compressed().size() - 1), compressed().substr(0, 12),
          "x" + compressed(), std::string()}) {
        const KernelOption found = read_with(contents);
        EXPECT_EQ(found.state, KernelOption::State::on) << contents.size();
        EXPECT_EQ(found.where, "/boot/config-") << contents.size();
    }
}

TEST(DecompressTest, ReturnsAllOfALongText) {
    std::string text;
    while (text.size() < 300'000) {
        text += "CONFIG_" + std::to_string(text.size()) + "=y ";
    }
    text += "end";
    const TemporaryDirectory directory;
    const fs::path description = fs::path(directory.path()) / "long.txt";
    std::ofstream(description) << "gzip /proc/config.gz " << text << '\n';
    const rdmabuf::testing::RecordedMachine recorded(description);
    EXPECT_EQ(decompress(Machine(recorded.root()).read("/proc/config.gz").view()), text + "\n");
}

TEST(KernelFilesTest, ADumpHasOnlyTheLinesOfTheLogThatConditionsLookFor) {
    EXPECT_EQ(
        examined_lines("[1.0] Linux version 6.1\n[2.0] Host bridge not in P2PDMA whitelist: "
                       "8086:1\n[3.0] a name\n[4.0] CREATE_MKEY(0x200) failed"),
        "[2.0] Host bridge not in P2PDMA whitelist: 8086:1\n[4.0] CREATE_MKEY(0x200) failed\n");
}

} // namespace
} // namespace rdmabuf::tools::doctor
