// SPDX-License-Identifier: BSD-3-Clause
// The ranking of NICs on the machines that people own. The expected lists are written by hand.
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/topology.hpp>

#include "sysfs_tree.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SysfsTree;

MemoryLocation memory_of(std::string_view device, bool c2c = false) {
    return {.device = PciAddress::parse(device), .c2c = c2c};
}

/// "0 mlx5_0 PIX hops=3 200 Gbit/s": rank, name, path and bandwidth rounded down.
std::string line_of(const RankedNic& nic) {
    std::string line = std::to_string(nic.rank) + " " + nic.name + " " + to_string(nic.path.type);
    line += " hops=" + std::to_string(nic.path.hops);
    if (nic.path.numa_distance) {
        line += " distance=" + std::to_string(*nic.path.numa_distance);
    }
    if (nic.path.data_direct) {
        line += " data direct";
    }
    if (nic.path.bandwidth) {
        line += " " + std::to_string(static_cast<int>(std::floor(*nic.path.bandwidth))) + " Gbit/s";
    }
    return nic.usable ? line : line + " unusable";
}

std::vector<std::string> lines(const std::vector<RankedNic>& list) {
    std::vector<std::string> text;
    text.reserve(list.size());
    for (const RankedNic& nic : list) {
        text.push_back(line_of(nic));
    }
    return text;
}

std::vector<std::string> names(const std::vector<RankedNic>& list) {
    std::vector<std::string> text;
    text.reserve(list.size());
    for (const RankedNic& nic : list) {
        text.push_back(nic.name);
    }
    return text;
}

TEST(TopologyTreesTest, OneSwitchIsNearerThanTheHostBridge) {
    const SysfsTree tree(
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0 gpu numa=0 link=16x16\n"
        "pci0000:00/0000:00:02.0/0000:05:00.0 nic=mlx5_1 numa=0 link=16x16 rate=200\n"
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:06:00.0 nic=mlx5_0 numa=0 "
        "link=16x16 rate=200\n");
    tree.add_numa_nodes("0: 10");
    const Topology topology = Topology::read(tree.root());
    EXPECT_THAT(topology.problems(), IsEmpty());
    EXPECT_THAT(lines(topology.nearest(memory_of("0000:03:00.0"))),
                ElementsAre("0 mlx5_0 PIX hops=3 200 Gbit/s", "1 mlx5_1 PHB hops=4 200 Gbit/s"));
}

TEST(TopologyTreesTest, SwitchBehindSwitchIsPxb) {
    const std::string upstream = "pci0001:c3/0001:c3:01.0/0001:c4:00.0/";
    const SysfsTree tree(upstream + "0001:c5:01.0/0001:c7:00.0 gpu numa=1\n" + //
                         upstream +
                         "0001:c5:03.0/0001:c9:00.0/0001:ca:00.0/0001:cb:00.0 "
                         "nic=mlx5_0 numa=1\n" +
                         upstream + "0001:c5:02.0/0001:c8:00.0 nic=mlx5_1 numa=1\n");
    const Topology topology = Topology::read(tree.root());
    EXPECT_THAT(lines(topology.nearest(memory_of("0001:c7:00.0"))),
                ElementsAre("0 mlx5_1 PIX hops=3", "1 mlx5_0 PXB hops=5"));
}

TEST(TopologyTreesTest, TwoSocketsWithTwoHostBridgesEach) {
    const SysfsTree tree(
        "pci0000:16/0000:16:00.0/0000:17:00.0 gpu numa=0 link=32x16\n"
        "pci0000:97/0000:97:00.0/0000:98:00.0 nic=mlx5_0 numa=1 link=32x16 rate=400\n"
        "pci0000:30/0000:30:00.0/0000:31:00.0 nic=mlx5_1 numa=0 link=32x16 rate=400\n"
        "pci0000:16/0000:16:02.0/0000:18:00.0 nic=mlx5_2 numa=0 link=16x8 rate=400\n");
    tree.add_numa_nodes("0: 10 21\n1: 21 10");
    const Topology topology = Topology::read(tree.root());
    // 16 GT/s on 8 lanes limit mlx5_2, but the path type counts before the bandwidth.
    EXPECT_THAT(lines(topology.nearest(memory_of("0000:17:00.0"))),
                ElementsAre("0 mlx5_2 PHB hops=2 126 Gbit/s", "1 mlx5_1 NODE hops=2 400 Gbit/s",
                            "2 mlx5_0 SYS hops=2 distance=21 400 Gbit/s"));
    // Host memory.
    EXPECT_THAT(
        lines(topology.nearest({.numa_node = 1})),
        ElementsAre("0 mlx5_0 PHB hops=1 400 Gbit/s", "1 mlx5_1 SYS hops=1 distance=21 400 Gbit/s",
                    "2 mlx5_2 SYS hops=1 distance=21 126 Gbit/s"));
}

// Modelled on the DGX A100: two GPUs and two NICs at each switch, one switch in each of four of
// the eight NUMA nodes, and two NICs for storage.
TEST(TopologyTreesTest, DgxGivesEachGpuANicOfItsOwnAndRanksTheOthersByNumaDistanceAndHops) {
    constexpr const char* table =
        "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:07:00.0 gpu numa=3 link=16x16\n"
        "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:04.0/0000:0c:00.0 nic=mlx5_0 numa=3 "
        "link=16x16 rate=200\n"
        "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:08.0/0000:0f:00.0 gpu numa=3 link=16x16\n"
        "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:0c.0/0000:12:00.0 nic=mlx5_1 numa=3 "
        "link=16x16 rate=200\n"
        "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:00.0/0000:47:00.0 gpu numa=1 link=16x16\n"
        "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0/0000:4b:00.0 nic=mlx5_2 numa=1 "
        "link=16x16 rate=200\n"
        "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:08.0/0000:4e:00.0 gpu numa=1 link=16x16\n"
        "pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:0c.0/0000:54:00.0 nic=mlx5_3 numa=1 "
        "link=16x16 rate=200\n"
        "pci0000:60/0000:60:03.1/0000:61:00.0 nic=mlx5_4 numa=0 link=16x16 rate=200\n"
        "pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:00.0/0000:87:00.0 gpu numa=7 link=16x16\n"
        "pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:04.0/0000:8d:00.0 nic=mlx5_6 numa=7 "
        "link=16x16 rate=200\n"
        "pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:08.0/0000:90:00.0 gpu numa=7 link=16x16\n"
        "pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:0c.0/0000:94:00.0 nic=mlx5_7 numa=7 "
        "link=16x16 rate=200\n"
        "pci0000:b0/0000:b0:01.1/0000:b1:00.0/0000:b2:00.0/0000:b7:00.0 gpu numa=5 link=16x16\n"
        "pci0000:b0/0000:b0:01.1/0000:b1:00.0/0000:b2:04.0/0000:ba:00.0 nic=mlx5_8 numa=5 "
        "link=16x16 rate=200\n"
        "pci0000:b0/0000:b0:01.1/0000:b1:00.0/0000:b2:08.0/0000:bd:00.0 gpu numa=5 link=16x16\n"
        "pci0000:b0/0000:b0:01.1/0000:b1:00.0/0000:b2:0c.0/0000:cc:00.0 nic=mlx5_9 numa=5 "
        "link=16x16 rate=200\n"
        "pci0000:e0/0000:e0:03.1/0000:e1:00.0 nic=mlx5_5 numa=4 link=16x16 rate=200\n";
    constexpr const char* distances =
        "0: 10 12 12 12 32 32 32 32\n"
        "1: 12 10 12 12 32 32 32 32\n"
        "2: 12 12 10 12 32 32 32 32\n"
        "3: 12 12 12 10 32 32 32 32\n"
        "4: 32 32 32 32 10 12 12 12\n"
        "5: 32 32 32 32 12 10 12 12\n"
        "6: 32 32 32 32 12 12 10 12\n"
        "7: 32 32 32 32 12 12 12 10\n";
    const SysfsTree tree(table);
    tree.add_numa_nodes(distances);
    const Topology topology = Topology::read(tree.root());
    const std::vector<std::pair<const char*, const char*>> expected{
        {"0000:07:00.0", "mlx5_0"}, {"0000:0f:00.0", "mlx5_1"}, {"0000:47:00.0", "mlx5_2"},
        {"0000:4e:00.0", "mlx5_3"}, {"0000:87:00.0", "mlx5_6"}, {"0000:90:00.0", "mlx5_7"},
        {"0000:b7:00.0", "mlx5_8"}, {"0000:bd:00.0", "mlx5_9"}};
    for (const auto& [gpu, nic] : expected) {
        const auto list = topology.nearest(memory_of(gpu));
        ASSERT_EQ(list.size(), 10U);
        EXPECT_EQ(line_of(list.front()), std::string("0 ") + nic + " PIX hops=3 200 Gbit/s") << gpu;
    }
    EXPECT_THAT(lines(topology.nearest(memory_of("0000:07:00.0"))),
                ElementsAre("0 mlx5_0 PIX hops=3 200 Gbit/s", "0 mlx5_1 PIX hops=3 200 Gbit/s",
                            "1 mlx5_4 SYS hops=4 distance=12 200 Gbit/s",
                            "2 mlx5_2 SYS hops=6 distance=12 200 Gbit/s",
                            "2 mlx5_3 SYS hops=6 distance=12 200 Gbit/s",
                            "3 mlx5_5 SYS hops=4 distance=32 200 Gbit/s",
                            "4 mlx5_6 SYS hops=6 distance=32 200 Gbit/s",
                            "4 mlx5_7 SYS hops=6 distance=32 200 Gbit/s",
                            "4 mlx5_8 SYS hops=6 distance=32 200 Gbit/s",
                            "4 mlx5_9 SYS hops=6 distance=32 200 Gbit/s"));
    // The four NICs of the other socket are equal for the four GPUs of this socket.
    EXPECT_THAT(names(topology.nearest(memory_of("0000:0f:00.0"))),
                ElementsAre("mlx5_1", "mlx5_0", "mlx5_4", "mlx5_3", "mlx5_2", "mlx5_5", "mlx5_7",
                            "mlx5_8", "mlx5_9", "mlx5_6"));
    EXPECT_THAT(names(topology.nearest(memory_of("0000:4e:00.0"))),
                ElementsAre("mlx5_3", "mlx5_2", "mlx5_4", "mlx5_1", "mlx5_0", "mlx5_5", "mlx5_9",
                            "mlx5_6", "mlx5_7", "mlx5_8"));
}

/// Modelled on Grace Blackwell with ConnectX-8: the NICs are connected to the CPUs in PCI domains
/// of their own, and their data-direct functions share a switch with one GPU each.
class GraceBlackwellTest : public ::testing::Test {
  protected:
    GraceBlackwellTest() {
        // The memory of the GPUs is NUMA nodes too.
        tree_.add_numa_nodes(
            "0: 10 40 80 120\n"
            "1: 40 10 120 80\n"
            "2: 80 120 10 160\n"
            "10: 120 80 160 10\n");
    }

    static void add_data_direct(Topology& topology) {
        const std::vector<std::pair<const char*, const char*>> siblings{
            {"mlx5_0", "/devices/pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:00.0/0008:03:00.0"},
            {"mlx5_1", "/devices/pci0009:00/0009:00:00.0/0009:01:00.0/0009:02:00.0/0009:03:00.0"},
            {"mlx5_2", "/devices/pci0018:00/0018:00:00.0/0018:01:00.0/0018:02:00.0/0018:03:00.0"},
            {"mlx5_3", "/devices/pci0019:00/0019:00:00.0/0019:01:00.0/0019:02:00.0/0019:03:00.0"}};
        for (const auto& [nic, path] : siblings) {
            EXPECT_TRUE(topology.set_data_direct(nic, path)) << nic;
        }
    }

    SysfsTree tree_{
        "pci0000:00/0000:00:00.0/0000:01:00.0 nic=mlx5_0 numa=0 link=32x16 rate=800\n"
        "pci0002:00/0002:00:00.0/0002:01:00.0 nic=mlx5_1 numa=0 link=32x16 rate=800\n"
        "pci0010:00/0010:00:00.0/0010:01:00.0 nic=mlx5_2 numa=1 link=32x16 rate=800\n"
        "pci0012:00/0012:00:00.0/0012:01:00.0 nic=mlx5_3 numa=1 link=32x16 rate=800\n"
        "pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:00.0/0008:03:00.0 dma numa=0 link=64x16\n"
        "pci0008:00/0008:00:00.0/0008:01:00.0/0008:02:03.0/0008:06:00.0 gpu numa=0 link=64x16\n"
        "pci0009:00/0009:00:00.0/0009:01:00.0/0009:02:00.0/0009:03:00.0 dma numa=0 link=64x16\n"
        "pci0009:00/0009:00:00.0/0009:01:00.0/0009:02:03.0/0009:06:00.0 gpu numa=0 link=64x16\n"
        "pci0018:00/0018:00:00.0/0018:01:00.0/0018:02:00.0/0018:03:00.0 dma numa=1 link=64x16\n"
        "pci0018:00/0018:00:00.0/0018:01:00.0/0018:02:03.0/0018:06:00.0 gpu numa=1 link=64x16\n"
        "pci0019:00/0019:00:00.0/0019:01:00.0/0019:02:00.0/0019:03:00.0 dma numa=1 link=64x16\n"
        "pci0019:00/0019:00:00.0/0019:01:00.0/0019:02:03.0/0019:06:00.0 gpu numa=1 link=64x16\n"};
};

TEST_F(GraceBlackwellTest, PrefersTheNicWhoseDataDirectFunctionIsAtTheGpu) {
    Topology topology = Topology::read(tree_.root());
    add_data_direct(topology);
    EXPECT_THAT(
        lines(topology.nearest(memory_of("0008:06:00.0", true))),
        ElementsAre("0 mlx5_0 PIX hops=3 data direct 800 Gbit/s", "1 mlx5_1 C2C hops=1 504 Gbit/s",
                    "2 mlx5_2 SYS hops=4 distance=40 504 Gbit/s",
                    "2 mlx5_3 SYS hops=4 distance=40 504 Gbit/s"));
    EXPECT_THAT(
        lines(topology.nearest(memory_of("0019:06:00.0", true))),
        ElementsAre("0 mlx5_3 PIX hops=3 data direct 800 Gbit/s", "1 mlx5_2 C2C hops=1 504 Gbit/s",
                    "2 mlx5_1 SYS hops=4 distance=40 504 Gbit/s",
                    "2 mlx5_0 SYS hops=4 distance=40 504 Gbit/s"));
}

TEST_F(GraceBlackwellTest, WithoutDataDirectSharesTheNicsOfTheCpu) {
    const Topology topology = Topology::read(tree_.root());
    EXPECT_THAT(lines(topology.nearest(memory_of("0008:06:00.0", true))),
                ElementsAre("0 mlx5_0 C2C hops=1 504 Gbit/s", "0 mlx5_1 C2C hops=1 504 Gbit/s",
                            "1 mlx5_2 SYS hops=4 distance=40 504 Gbit/s",
                            "1 mlx5_3 SYS hops=4 distance=40 504 Gbit/s"));
    EXPECT_THAT(names(topology.nearest(memory_of("0009:06:00.0", true))),
                ElementsAre("mlx5_1", "mlx5_0", "mlx5_3", "mlx5_2"));
}

TEST_F(GraceBlackwellTest, WithoutAChipToChipLinkTheNicsOfTheCpuAreAtOtherHostBridges) {
    const Topology topology = Topology::read(tree_.root());
    EXPECT_THAT(lines(topology.nearest(memory_of("0008:06:00.0"))),
                ElementsAre("0 mlx5_0 NODE hops=4 504 Gbit/s", "0 mlx5_1 NODE hops=4 504 Gbit/s",
                            "1 mlx5_2 SYS hops=4 distance=40 504 Gbit/s",
                            "1 mlx5_3 SYS hops=4 distance=40 504 Gbit/s"));
}

TEST(TopologyTreesTest, StringPrefixesOfPathsAreNoAncestors) {
    // As strings, mlx5_0 shares "pci1000" and mlx5_1 shares "pci1000:00/1000:00:0" with the GPU.
    const SysfsTree tree(
        "pci1000:00/1000:00:01.0/1000:01:00.0 gpu numa=0\n"
        "pci10000:00/10000:00:01.0/10000:01:00.0 nic=mlx5_0 numa=1\n"
        "pci1000:00/1000:00:02.0/1000:02:00.0 nic=mlx5_1 numa=0\n"
        "pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_2 numa=0\n");
    tree.add_numa_nodes("0: 10 21\n1: 21 10");
    const Topology topology = Topology::read(tree.root());
    EXPECT_EQ(topology.find_nic("mlx5_0")->pci->address.domain, 0x10000U);
    EXPECT_THAT(lines(topology.nearest(memory_of("1000:01:00.0"))),
                ElementsAre("0 mlx5_1 PHB hops=2", "1 mlx5_2 NODE hops=2",
                            "2 mlx5_0 SYS hops=2 distance=21"));
}

TEST(TopologyTreesTest, VirtualMachineWithoutBridgesSpreadsItsGpus) {
    const SysfsTree tree(
        "pci0000:00/0000:00:05.0 gpu\n"
        "pci0000:00/0000:00:06.0 gpu\n"
        "pci0000:00/0000:00:07.0 nic=mlx5_0 rate=100\n"
        "pci0000:00/0000:00:08.0 nic=mlx5_1 rate=100\n"
        "pci0000:00/0000:00:09.0 nic=mlx5_2 rate=200\n");
    tree.add_numa_nodes("0: 10");
    const Topology topology = Topology::read(tree.root());
    EXPECT_THAT(lines(topology.nearest(memory_of("0000:00:05.0"))),
                ElementsAre("0 mlx5_2 PHB hops=0 200 Gbit/s", "1 mlx5_0 PHB hops=0 100 Gbit/s",
                            "1 mlx5_1 PHB hops=0 100 Gbit/s"));
    EXPECT_THAT(names(topology.nearest(memory_of("0000:00:06.0"))),
                ElementsAre("mlx5_2", "mlx5_1", "mlx5_0"));
}

TEST(TopologyTreesTest, VirtualMachineWithAHostBridgeForEachDeviceHasNoKnownPaths) {
    const std::string bus = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/";
    const SysfsTree tree(bus + "47505500-0001/pci0001:00/0001:00:00.0 gpu\n" + bus +
                         "47505500-0002/pci0002:00/0002:00:00.0 gpu\n" + bus +
                         "47505500-0101/pci0101:00/0101:00:00.0 nic=mlx5_0\n" + bus +
                         "47505500-0102/pci0102:00/0102:00:00.0 nic=mlx5_1\n");
    tree.add_numa_nodes("0: 10 21\n1: 21 10");
    const Topology topology = Topology::read(tree.root());
    const auto list = topology.nearest(memory_of("0001:00:00.0"));
    EXPECT_THAT(lines(list), ElementsAre("0 mlx5_0 unknown hops=0", "0 mlx5_1 unknown hops=0"));
    EXPECT_THAT(list[0].path.reason, HasSubstr("the NUMA node of 0001:00:00.0 is not known"));
    // The second GPU begins with the second NIC all the same.
    EXPECT_THAT(names(topology.nearest(memory_of("0002:00:00.0"))),
                ElementsAre("mlx5_1", "mlx5_0"));

    // On a machine with one NUMA node, all devices are at that node.
    std::filesystem::remove_all(tree.sys() / "devices/system/node/node1");
    tree.write("devices/system/node/node0/distance", "10\n");
    EXPECT_THAT(lines(Topology::read(tree.root()).nearest(memory_of("0001:00:00.0"))),
                ElementsAre("0 mlx5_0 NODE hops=0", "0 mlx5_1 NODE hops=0"));
}

TEST(TopologyTreesTest, MachineWithoutAnything) {
    const SysfsTree empty;
    const Topology nothing = Topology::read(empty.root());
    EXPECT_THAT(nothing.nics(), IsEmpty());
    EXPECT_THAT(nothing.nearest(memory_of("0000:03:00.0")), IsEmpty());
    EXPECT_THAT(nothing.nearest({.numa_node = 0}), IsEmpty());
    EXPECT_THAT(nothing.problems(), ElementsAre(HasSubstr("/sys/devices: No such file")));

    const Topology no_root = Topology::read(empty.root() / "no such directory");
    EXPECT_THAT(no_root.problems(), ElementsAre(HasSubstr("/sys/devices: No such file")));

    const SysfsTree no_devices("");
    const Topology no_nics = Topology::read(no_devices.root());
    EXPECT_THAT(no_nics.problems(), IsEmpty());
    EXPECT_THAT(no_nics.nearest(memory_of("0000:03:00.0")), IsEmpty());
}

} // namespace
} // namespace rdmabuf
