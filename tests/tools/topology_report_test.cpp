// SPDX-License-Identifier: BSD-3-Clause
// The expected texts are written by hand.
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../unit/sysfs_tree.hpp"
#include "topology/machine.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace rdmabuf::tools;
using rdmabuf::Topology;
using rdmabuf::testing::SysfsTree;
using testing::HasSubstr;
using testing::IsEmpty;

/// A GPU and a NIC at one PCIe switch, and a second NIC and a GPU at other host bridges.
constexpr const char* two_sockets =
    "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0 gpu numa=0 link=32x16\n"
    "pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0 nic=mlx5_0 numa=0 "
    "link=32x16 rate=400\n"
    "pci0000:97/0000:97:01.0/0000:98:00.0 nic=mlx5_1 numa=1 link=32x16 rate=400\n"
    "pci0000:c7/0000:c7:01.0/0000:c8:00.0 gpu numa=1 link=32x16\n";

class TopologyReport : public testing::Test {
  protected:
    Topology read() {
        tree.add_numa_nodes("0: 10 21\n1: 21 10");
        return Topology::read(tree.root());
    }

    SysfsTree tree{two_sockets};
    Topology machine = read();
};

TEST_F(TopologyReport, ShowsTheBridgesTheBestNicAndThePathTypes) {
    EXPECT_EQ(topology::to_text(machine, {}),
              "PCI functions\n"
              "pci0000:16 host bridge\n"
              "`- 0000:16:01.0 bridge\n"
              "   `- 0000:17:00.0 bridge\n"
              "      +- 0000:18:00.0 bridge\n"
              "      |  `- 0000:19:00.0 GPU, NVIDIA 10de:2330, NUMA node 0, PCIe 32 GT/s x16\n"
              "      `- 0000:18:01.0 bridge\n"
              "         `- 0000:1a:00.0 NIC mlx5_0, 400 Gbit/s, NUMA node 0, PCIe 32 GT/s x16\n"
              "pci0000:97 host bridge\n"
              "`- 0000:97:01.0 bridge\n"
              "   `- 0000:98:00.0 NIC mlx5_1, 400 Gbit/s, NUMA node 1, PCIe 32 GT/s x16\n"
              "pci0000:c7 host bridge\n"
              "`- 0000:c7:01.0 bridge\n"
              "   `- 0000:c8:00.0 GPU, NVIDIA 10de:2330, NUMA node 1, PCIe 32 GT/s x16\n"
              "\n"
              "Best NIC\n"
              "  0000:19:00.0      mlx5_0, PIX, 3 hops, 400 Gbit/s\n"
              "  0000:c8:00.0      mlx5_1, NODE, 2 hops, 400 Gbit/s\n"
              "  NUMA node 0       mlx5_0, PHB, 3 hops, 400 Gbit/s\n"
              "  NUMA node 1       mlx5_1, PHB, 1 hop, 400 Gbit/s\n"
              "\n"
              "Path types\n"
              "                 mlx5_0   mlx5_1\n"
              "0000:19:00.0        PIX      SYS\n"
              "0000:c8:00.0        SYS     NODE\n"
              "NUMA node 0         PHB      SYS\n"
              "NUMA node 1         SYS      PHB\n");
}

TEST(TopologyText, HasNoEscapeSequenceOfAName) {
    SysfsTree tree("pci0000:00/0000:01:00.0 nic=mlx5\x1b[2J\npci0000:00/0000:02:00.0 gpu");
    EXPECT_THAT(topology::to_text(Topology::read(tree.root()), {}),
                testing::AllOf(testing::Not(HasSubstr("\x1b")), HasSubstr("mlx5?[2J")));
}

TEST_F(TopologyReport, JsonHasTheTreeAndTheRankingForEachMemory) {
    const auto json = nlohmann::json::parse(topology::to_json(machine));
    ASSERT_EQ(json["tree"].size(), 3U);
    EXPECT_EQ(json["tree"][0]["type"], "host bridge");
    const auto& bridges = json["tree"][0]["children"][0]["children"][0]["children"];
    EXPECT_EQ(bridges[0]["children"][0]["type"], "GPU");
    EXPECT_EQ(bridges[0]["children"][0]["function"]["vendor"], 0x10de);
    EXPECT_EQ(bridges[1]["children"][0]["nics"][0], "mlx5_0");
    EXPECT_EQ(json["nics"][1]["pci_address"], "0000:98:00.0");
    EXPECT_EQ(json["nics"][1]["active"], true);
    ASSERT_EQ(json["memory"].size(), 4U);
    EXPECT_EQ(json["memory"][0]["gpu"], "0000:19:00.0");
    EXPECT_EQ(json["memory"][0]["nics"][0]["nic"], "mlx5_0");
    EXPECT_EQ(json["memory"][0]["nics"][0]["type"], "PIX");
    EXPECT_EQ(json["memory"][0]["nics"][1]["numa_distance"], 21);
    EXPECT_EQ(json["memory"][3]["numa_node"], 1);
    EXPECT_TRUE(json["memory"][3]["gpu"].is_null());
    EXPECT_EQ(json["problems"].size(), 0U);
}

TEST_F(TopologyReport, FitsTerminalsOf80And40Columns) {
    for (const std::size_t width : {80U, 40U}) {
        std::istringstream lines(topology::to_text(machine, {.width = width}));
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), width) << line;
        }
    }
}

TEST(TopologyReportTest, SplitsTheTableOfManyNics) {
    std::string table;
    for (int nic = 0; nic < 10; ++nic) {
        table += fmt::format("pci0000:0{0}/0000:0{0}:00.0 nic=mlx5_{0} numa=0\n", nic);
    }
    const SysfsTree tree(table);
    const std::string text = topology::to_text(Topology::read(tree.root()), {});
    // Seven columns of 9 characters fit beside the names.
    EXPECT_THAT(text, HasSubstr("   mlx5_6\nNUMA node 0 "));
    EXPECT_THAT(text, HasSubstr("\n\n                 mlx5_7   mlx5_8   mlx5_9\nNUMA node 0 "));
}

TEST(TopologyReportTest, NamesEqualNicsAndInactivePorts) {
    const SysfsTree tree(
        "pci0000:00/0000:00:05.0 gpu\n"
        "pci0000:00/0000:00:07.0 nic=mlx5_0\n"
        "pci0000:00/0000:00:08.0 nic=mlx5_1\n"
        "pci0000:00/0000:00:09.0 nic=mlx5_2 down\n");
    const std::string text = topology::to_text(Topology::read(tree.root()), {});
    EXPECT_THAT(text, HasSubstr("0000:00:05.0      mlx5_0, PHB, 0 hops; equal: mlx5_1\n"));
    EXPECT_THAT(text, HasSubstr("+- 0000:00:08.0 NIC mlx5_1\n"));
    EXPECT_THAT(text, HasSubstr("`- 0000:00:09.0 NIC mlx5_2, no active port\n"));
}

TEST(TopologyReportTest, ADisplayOfABoardManagementControllerIsNoGpu) {
    const SysfsTree tree("pci0000:00/0000:00:05.0 gpu\n");
    EXPECT_EQ(topology::gpus(Topology::read(tree.root())).size(), 1U);
    tree.write("devices/pci0000:00/0000:00:05.0/vendor", "0x1a03\n");
    EXPECT_THAT(topology::gpus(Topology::read(tree.root())), IsEmpty());
}

TEST(TopologyReportTest, ANicThatIsNotOnPciHasTheReason) {
    const SysfsTree tree("");
    tree.write("devices/virtual/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    tree.link("class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
    const Topology machine = Topology::read(tree.root());
    ASSERT_EQ(machine.nics().size(), 1U);
    EXPECT_THAT(topology::to_text(machine, {}), HasSubstr("\nrxe0: "));
}

TEST(TopologyReportTest, AMachineWithoutNicsAndGpusHasTheProblem) {
    const SysfsTree nothing;
    const Topology machine = Topology::read(nothing.root());
    EXPECT_THAT(topology::to_text(machine, {}), HasSubstr("no NIC and no GPU on PCI\n"));
    EXPECT_THAT(topology::to_text(machine, {}), HasSubstr("\nProblems\n"));
    EXPECT_EQ(nlohmann::json::parse(topology::to_json(machine))["problems"].size(), 1U);
}

} // namespace
