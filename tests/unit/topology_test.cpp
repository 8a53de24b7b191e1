// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/topology.hpp>

#include "sysfs_tree.hpp"

namespace rdmabuf {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SysfsTree;

TEST(PciAddressTest, ParsesTheFormsThatDriversWrite) {
    const PciAddress expected{.domain = 0, .bus = 0x3b, .device = 0x1f, .function = 7};
    EXPECT_EQ(PciAddress::parse("0000:3b:1f.7"), expected);
    EXPECT_EQ(PciAddress::parse("0000:3B:1F.7"), expected);
    EXPECT_EQ(PciAddress::parse("00000000:3B:1F.7"), expected);
    EXPECT_EQ(to_string(expected), "0000:3b:1f.7");
    const auto vmd = PciAddress::parse("10000:e1:00.0");
    ASSERT_TRUE(vmd);
    EXPECT_EQ(vmd->domain, 0x10000U);
    EXPECT_EQ(to_string(*vmd), "10000:e1:00.0");
}

TEST(PciAddressTest, RefusesAnyOtherText) {
    for (const char* const text :
         {"", "3b:00.0", "000:3b:00.0", "0000:3b:00", "0000:3b:00.", "0000:3b:00.8", "0000:3b:20.0",
          "0000:3b:00.0 ", " 0000:3b:00.0", "0000:3b:00.00", "0000-3b-00.0", "000000000:3b:00.0",
          "-000:3b:00.0", "0x00:3b:00.0", "0000:3g:00.0", "pci0000:3b", "mlx5_core.sf.4"}) {
        EXPECT_FALSE(PciAddress::parse(text)) << text;
    }
}

TEST(PciLinkTest, BandwidthIsThatOfAllLanesWithoutTheLineEncoding) {
    EXPECT_DOUBLE_EQ((PciLink{.transfer_rate = 5, .width = 8}).bandwidth(), 32);
    EXPECT_NEAR((PciLink{.transfer_rate = 16, .width = 16}).bandwidth(), 252.06, 0.01);
    EXPECT_DOUBLE_EQ((PciLink{.transfer_rate = 64, .width = 16}).bandwidth(), 944);
}

TEST(TopologyTest, ReadsTheAttributesOfAFunction) {
    const SysfsTree tree("pci0000:3a/0000:3a:00.0/0000:3b:00.0 gpu numa=1 link=32x16\n");
    // The slot has 8 lanes of an older generation.
    tree.write("devices/pci0000:3a/0000:3a:00.0/max_link_speed", "8.0 GT/s PCIe\n");
    tree.write("devices/pci0000:3a/0000:3a:00.0/max_link_width", "8\n");
    const Topology topology = Topology::read(tree.root());
    const PciFunction* const gpu =
        topology.find_pci_function({.domain = 0, .bus = 0x3b, .device = 0, .function = 0});
    ASSERT_NE(gpu, nullptr);
    EXPECT_THAT(gpu->ancestors, ElementsAre("pci0000:3a", "0000:3a:00.0"));
    EXPECT_EQ(gpu->numa_node, 1);
    EXPECT_EQ(gpu->link, (PciLink{.transfer_rate = 8, .width = 8}));
    EXPECT_EQ(gpu->identity,
              (PciIdentity{.vendor = 0x10de, .device = 0x2330, .class_code = 0x030200}));
    EXPECT_EQ(topology.pci_functions().size(), 2U);
    EXPECT_EQ(topology.find_pci_function({.bus = 0x3c}), nullptr);
    EXPECT_THAT(topology.problems(), IsEmpty());
}

TEST(TopologyTest, TheSlowestLinkAboveTheNicLimitsTheBandwidth) {
    const SysfsTree tree(
        "pci0000:00/0000:00:01.0/0000:01:00.0 link=8x8\n" // upstream port of the switch
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0 gpu link=16x16\n"
        "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0 nic=mlx5_0 link=16x16\n"
        "pci0000:00/0000:00:02.0/0000:05:00.0 gpu link=16x16\n");
    const Topology topology = Topology::read(tree.root());
    const Nic& nic = *topology.find_nic("mlx5_0");
    const Path below = topology.path({.device = PciAddress::parse("0000:03:00.0")}, nic);
    EXPECT_EQ(below.type, PathType::pix);
    EXPECT_NEAR(below.bandwidth.value_or(0), 252.06, 0.01);
    const Path above = topology.path({.device = PciAddress::parse("0000:05:00.0")}, nic);
    EXPECT_EQ(above.type, PathType::phb);
    EXPECT_NEAR(above.bandwidth.value_or(0), 63.02, 0.01);
}

TEST(TopologyTest, ANicWithoutAnActivePortComesLast) {
    const SysfsTree tree(
        "pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_0 rate=400 down\n"
        "pci0000:00/0000:00:01.0/0000:01:00.1 gpu\n"
        "pci0000:40/0000:40:01.0/0000:41:00.0 nic=mlx5_1 rate=100\n");
    tree.add_numa_nodes("0: 10");
    const Topology topology = Topology::read(tree.root());
    EXPECT_EQ(topology.find_nic("mlx5_0")->active, false);
    EXPECT_EQ(topology.find_nic("mlx5_0")->port_speed, std::nullopt);
    EXPECT_EQ(topology.find_nic("mlx5_1")->port_speed, 100.0);
    const auto list = topology.nearest({.device = PciAddress::parse("0000:01:00.1")});
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0].name, "mlx5_1");
    EXPECT_TRUE(list[0].usable);
    EXPECT_EQ(list[1].name, "mlx5_0");
    EXPECT_FALSE(list[1].usable);
    EXPECT_EQ(list[1].path.type, PathType::pix);

    tree.write("class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
    tree.write("class/infiniband/mlx5_0/ports/2/rate", "2.5 Gb/sec (1X SDR)\n");
    const Topology later = Topology::read(tree.root());
    EXPECT_EQ(later.find_nic("mlx5_0")->active, true);
    EXPECT_EQ(later.find_nic("mlx5_0")->port_speed, 2.5);
    EXPECT_EQ(later.nearest({.device = PciAddress::parse("0000:01:00.1")})[0].name, "mlx5_0");
}

TEST(TopologyTest, ASubfunctionIsAtItsPciFunction) {
    const SysfsTree tree("pci0000:00/0000:00:01.0/0000:01:00.0 gpu\n");
    const std::string child = "devices/pci0000:00/0000:00:01.0/0000:01:00.0/mlx5_core.sf.4/";
    tree.write(child + "infiniband/mlx5_3/ports/1/state", "4: ACTIVE\n");
    tree.link(child + "infiniband/mlx5_3/device", "../../../mlx5_core.sf.4");
    tree.link("class/infiniband/mlx5_3", "../../" + child + "infiniband/mlx5_3");
    const Topology topology = Topology::read(tree.root());
    ASSERT_TRUE(topology.find_nic("mlx5_3")->pci);
    EXPECT_EQ(to_string(topology.find_nic("mlx5_3")->pci->address), "0000:01:00.0");
}

TEST(TopologyTest, ASoftwareDeviceHasNoPathAndSaysWhy) {
    const SysfsTree tree(
        "pci0000:00/0000:00:01.0/0000:01:00.0 gpu\n"
        "pci0000:00/0000:00:01.0/0000:01:00.1 nic=mlx5_0\n");
    tree.write("devices/virtual/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    tree.link("class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
    tree.write("devices/virtual/net/dummy0/infiniband/rxe1/parent", "dummy0\n");
    tree.link("devices/virtual/net/dummy0/infiniband/rxe1/device", "../../../dummy0");
    tree.link("class/infiniband/rxe1", "../../devices/virtual/net/dummy0/infiniband/rxe1");
    const Topology topology = Topology::read(tree.root());
    EXPECT_THAT(topology.problems(), IsEmpty());
    const auto list = topology.nearest({.device = PciAddress::parse("0000:01:00.0")});
    ASSERT_EQ(list.size(), 3U);
    EXPECT_EQ(list[0].name, "mlx5_0");
    EXPECT_EQ(list[1].name, "rxe0");
    EXPECT_EQ(list[1].path.type, PathType::unknown);
    EXPECT_THAT(list[1].path.reason, HasSubstr("rxe0 has no parent device"));
    EXPECT_EQ(list[2].path.reason, "rxe1 is not a PCI device");
}

TEST(TopologyTest, MemoryOfADeviceThatSysfsDoesNotShowHasNoPath) {
    const SysfsTree tree("pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_0\n");
    const Topology topology = Topology::read(tree.root());
    const Path path =
        topology.path({.device = PciAddress::parse("0000:99:00.0")}, *topology.find_nic("mlx5_0"));
    EXPECT_EQ(path.type, PathType::unknown);
    EXPECT_THAT(path.reason, AllOf(HasSubstr("0000:99:00.0"), HasSubstr("/sys/bus/pci/devices")));
    // The reason why a location is unknown is that of the path.
    EXPECT_EQ(topology.path({.reason = "the driver is gone"}, *topology.find_nic("mlx5_0")).reason,
              "the driver is gone");
}

TEST(TopologyTest, RefusesADataDirectFunctionThatIsNotThere) {
    const SysfsTree tree("pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_0\n");
    Topology topology = Topology::read(tree.root());
    EXPECT_THAT(topology.set_data_direct("mlx5_0", "/devices/pci0008:00/0008:03:00.0").reason,
                HasSubstr("0008:03:00.0 of mlx5_0 is not in /sys/bus/pci/devices"));
    EXPECT_THAT(topology.set_data_direct("mlx5_0", "").reason, HasSubstr("is not a PCI function"));
    EXPECT_THAT(topology.set_data_direct("mlx5_7", "0000:01:00.0").reason,
                HasSubstr("no RDMA device \"mlx5_7\""));
    EXPECT_FALSE(topology.find_nic("mlx5_0")->data_direct);
}

TEST(TopologyTest, DataDirectIsUsedInThePciDomainOfTheMemoryOnly) {
    const SysfsTree tree(
        "pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_0 numa=1\n"
        "pci0008:00/0008:00:00.0/0008:01:00.0 dma numa=0\n"
        "pci0009:00/0009:00:00.0/0009:01:00.0 gpu numa=0\n"
        "pci0008:00/0008:00:00.0/0008:01:00.1 gpu numa=0\n");
    Topology topology = Topology::read(tree.root());
    ASSERT_TRUE(topology.set_data_direct("mlx5_0", "0008:01:00.0"));
    const Nic& nic = *topology.find_nic("mlx5_0");
    const Path other = topology.path({.device = PciAddress::parse("0009:01:00.0")}, nic);
    EXPECT_EQ(other.type, PathType::sys);
    EXPECT_FALSE(other.data_direct);
    const Path same = topology.path({.device = PciAddress::parse("0008:01:00.1")}, nic);
    EXPECT_EQ(same.type, PathType::pix);
    EXPECT_TRUE(same.data_direct);
    EXPECT_FALSE(topology.path({.numa_node = 0}, nic).data_direct);
}

class MalformedSysfsTest : public ::testing::Test {
  protected:
    Topology read() { return Topology::read(tree_.root()); }
    const PciFunction& gpu(const Topology& topology) {
        return *topology.find_pci_function({.bus = 0x01, .function = 1});
    }

    const std::string gpu_ = "devices/pci0000:00/0000:00:01.0/0000:01:00.1/";
    SysfsTree tree_{
        "pci0000:00/0000:00:01.0/0000:01:00.0 nic=mlx5_0 numa=0 link=16x16\n"
        "pci0000:00/0000:00:01.0/0000:01:00.1 gpu numa=0 link=16x16\n"};
};

TEST_F(MalformedSysfsTest, AttributesAreUnknownAndNamed) {
    for (const char* const text : {"", "\n", "zero", "0 1", "99999999999999999999", "0x"}) {
        tree_.write(gpu_ + "numa_node", text);
        tree_.write(gpu_ + "max_link_width", text);
        tree_.write(gpu_ + "max_link_speed", text);
        tree_.write(gpu_ + "class", text);
        const Topology topology = read();
        EXPECT_EQ(gpu(topology).numa_node, std::nullopt) << text;
        EXPECT_EQ(gpu(topology).link, std::nullopt) << text;
        EXPECT_EQ(gpu(topology).identity, std::nullopt) << text;
        EXPECT_EQ(topology.problems().size(), 4U) << text;
        EXPECT_THAT(topology.problems(), Contains(AllOf(HasSubstr("0000:01:00.1/numa_node"),
                                                        HasSubstr("is malformed"))));
        EXPECT_EQ(topology.nearest({.device = gpu(topology).address})[0].path.type, PathType::pix);
    }
}

TEST_F(MalformedSysfsTest, UnknownLinksOfTheKernelAreNoProblem) {
    tree_.write(gpu_ + "max_link_speed", "Unknown\n");
    tree_.write(gpu_ + "max_link_width", "255\n");
    const Topology topology = read();
    EXPECT_EQ(gpu(topology).link, std::nullopt);
    EXPECT_THAT(topology.problems(), IsEmpty());
}

TEST_F(MalformedSysfsTest, MissingAttributesAreUnknown) {
    for (const char* const name : {"numa_node", "max_link_speed", "max_link_width", "class"}) {
        std::filesystem::remove(tree_.sys() / gpu_ / name);
    }
    const Topology topology = read();
    EXPECT_EQ(gpu(topology).numa_node, std::nullopt);
    EXPECT_EQ(gpu(topology).link, std::nullopt);
    EXPECT_EQ(gpu(topology).identity, std::nullopt);
    EXPECT_THAT(topology.problems(), IsEmpty());
}

TEST_F(MalformedSysfsTest, ADirectoryInPlaceOfAnAttributeIsUnknown) {
    std::filesystem::remove(tree_.sys() / gpu_ / "numa_node");
    tree_.write(gpu_ + "numa_node/file", "0\n");
    EXPECT_EQ(gpu(read()).numa_node, std::nullopt);
}

TEST_F(MalformedSysfsTest, LinksOfFunctionsThatLeadNowhereOrOutAreNamed) {
    tree_.link("bus/pci/devices/0000:02:00.0", "../../../devices/pci0000:00/0000:02:00.0");
    tree_.link("bus/pci/devices/0000:03:00.0", "/etc");
    tree_.link("bus/pci/devices/0000:04:00.0", "../../../devices/pci0000:00/0000:00:01.0");
    tree_.link("bus/pci/devices/0000:05:00.0", "0000:05:00.0");
    tree_.write("bus/pci/devices/nonsense/class", "0x030200\n");
    const Topology topology = read();
    EXPECT_EQ(topology.pci_functions().size(), 3U);
    EXPECT_THAT(topology.problems(),
                ElementsAre(AllOf(HasSubstr("0000:02:00.0"), HasSubstr("No such file")),
                            AllOf(HasSubstr("0000:03:00.0"), HasSubstr("out of /sys/devices")),
                            AllOf(HasSubstr("0000:04:00.0"), HasSubstr("another function")),
                            AllOf(HasSubstr("0000:05:00.0"), HasSubstr("symbolic links")),
                            AllOf(HasSubstr("nonsense"), HasSubstr("not a PCI address"))));
}

TEST_F(MalformedSysfsTest, NicsWhoseDeviceIsBrokenSayWhy) {
    tree_.write("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
    tree_.link("class/infiniband/mlx5_1/device", "/etc");
    tree_.write("class/infiniband/mlx5_2/ports/1/state", "maybe\n");
    tree_.link("class/infiniband/mlx5_2/device", "device");
    std::filesystem::create_directories(tree_.sys() / "devices/pci0000:00/0000:09:00.0");
    tree_.link("class/infiniband/mlx5_3/device", "../../../devices/pci0000:00/0000:09:00.0");
    const Topology topology = read();
    EXPECT_THAT(topology.find_nic("mlx5_1")->reason, HasSubstr("leads out of /sys/devices"));
    EXPECT_THAT(topology.find_nic("mlx5_2")->reason, HasSubstr("symbolic links"));
    EXPECT_THAT(topology.find_nic("mlx5_3")->reason,
                AllOf(HasSubstr("0000:09:00.0"), HasSubstr("is not in /sys/bus/pci/devices")));
    EXPECT_EQ(topology.find_nic("mlx5_2")->active, std::nullopt);
    EXPECT_THAT(topology.problems(), ElementsAre(HasSubstr("\"maybe\" is malformed")));
    EXPECT_EQ(topology.nearest({.numa_node = 0}).size(), 4U);
}

TEST_F(MalformedSysfsTest, NumaNodesWithOtherDistancesHaveNone) {
    tree_.write(gpu_ + "numa_node", "7\n");
    tree_.add_numa_nodes("0: 10 21 31\n1: 21 ten");
    tree_.write("devices/system/node/node_x/distance", "10\n");
    tree_.write("devices/system/node/possible", "0-1\n");
    const Topology topology = read();
    EXPECT_THAT(topology.problems(),
                ElementsAre(AllOf(HasSubstr("node1/distance"), HasSubstr("is malformed")),
                            AllOf(HasSubstr("node0/distance"), HasSubstr("3 distances for 2"))));
    const Path path = topology.path({.numa_node = 7}, *topology.find_nic("mlx5_0"));
    EXPECT_EQ(path.type, PathType::sys);
    EXPECT_EQ(path.numa_distance, std::nullopt);
}

TEST(MemoryLocationTest, DeviceMemoryIsAtTheAddressThatTheExporterReports) {
    Allocation allocation{.base = 0x1000, .length = 0x1000, .pci_address = "0000:3b:00.0"};
    EXPECT_EQ(to_string(locate_memory(allocation).device.value_or(PciAddress())), "0000:3b:00.0");
    EXPECT_FALSE(locate_memory(allocation).c2c);
    allocation.c2c = true;
    EXPECT_TRUE(locate_memory(allocation).c2c);

    allocation.pci_address = "somewhere";
    EXPECT_FALSE(locate_memory(allocation).device);
    EXPECT_THAT(locate_memory(allocation).reason, HasSubstr("\"somewhere\""));
    allocation.pci_address = "";
    EXPECT_THAT(locate_memory(allocation).reason, HasSubstr("does not report the PCI address"));
}

TEST(MemoryLocationTest, HostMemoryIsAtTheNodeOfItsPage) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    void* const memory =
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    static_cast<char*>(memory)[0] = 1;
    // Where the system call is forbidden, the location says so.
    const MemoryLocation present = locate_host_memory(address + 100);
    EXPECT_NE(present.numa_node.has_value(), !present.reason.empty());
    EXPECT_GE(present.numa_node.value_or(0), 0);
    const MemoryLocation absent = locate_host_memory(address + page);
    EXPECT_FALSE(absent.numa_node);
    EXPECT_THAT(absent.reason, HasSubstr("move_pages()"));
    // An allocation of host memory: the PCI address of the device that pinned it does not count.
    const Allocation pinned{.base = address,
                            .length = page,
                            .kind = MemoryKind::pinned_host,
                            .pci_address = "0000:3b:00.0"};
    EXPECT_FALSE(locate_memory(pinned).device);
    EXPECT_EQ(locate_memory(pinned).numa_node, present.numa_node);
    ::munmap(memory, 2 * page);
    EXPECT_FALSE(locate_host_memory(address).numa_node);
}

} // namespace
} // namespace rdmabuf
