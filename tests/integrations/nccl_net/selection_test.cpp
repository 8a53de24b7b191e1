// SPDX-License-Identifier: BSD-3-Clause
//
// How devices are selected by name and ordered, without the plugin.
#include <deque>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nic.hpp>
#include <settings.hpp>

namespace nccl_net {
namespace {

/// Returns the names of devices, each with one or two ports, that a list selects.
std::vector<std::string> selected(const char* text) {
    const NameList list(text);
    std::vector<std::string> found;
    for (const char* const name : {"mlx5_1", "mlx5_10", "ibp0"}) {
        for (const int port : {1, 2}) {
            const NameList::Entry* entry = nullptr;
            if (list.selects(name, port, entry)) {
                found.push_back(name + (":" + std::to_string(port)));
            }
        }
    }
    return found;
}

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(NcclNetNames, SelectAsNcclDoes) {
    EXPECT_THAT(selected(""), SizeIs(6));
    EXPECT_THAT(selected("mlx5_1:2"), ElementsAre("mlx5_1:2", "mlx5_10:2")) << "by prefix";
    EXPECT_THAT(selected("=mlx5_1"), ElementsAre("mlx5_1:1", "mlx5_1:2"));
    EXPECT_THAT(selected("=mlx5_1:2,,ibp0:1"), ElementsAre("mlx5_1:2", "ibp0:1"));
    EXPECT_THAT(selected("^mlx5"), ElementsAre("ibp0:1", "ibp0:2"));
    EXPECT_THAT(selected("^=mlx5_1:1,ibp0"), ElementsAre("mlx5_1:2", "mlx5_10:1", "mlx5_10:2"));
    EXPECT_THAT(selected("none"), IsEmpty());
    EXPECT_THAT(selected("ibp0:"), ElementsAre("ibp0:1", "ibp0:2"));
}

TEST(NcclNetNames, HaveRailsAndPlanes) {
    const NameList list("mlx5_1:1:3:2,mlx5_1:2::4");
    const NameList::Entry* entry = nullptr;
    ASSERT_TRUE(list.selects("mlx5_1", 1, entry));
    EXPECT_EQ(entry->rail, 3);
    EXPECT_EQ(entry->plane, 2);
    ASSERT_TRUE(list.selects("mlx5_1", 2, entry));
    EXPECT_EQ(entry->rail, -1);
    EXPECT_EQ(entry->plane, 4);
}

TEST(NcclNetPciPaths, OfThePortsOfACardAreEqual) {
    rdmabuf::PciFunction function{.address = *rdmabuf::PciAddress::parse("0000:3b:00.1"),
                                  .ancestors = {"pci0000:3a", "0000:3a:00.0"}};
    EXPECT_EQ(card_path(function, true), "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0");
    function.address = *rdmabuf::PciAddress::parse("0000:3b:01.3");
    EXPECT_EQ(card_path(function, true), "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0")
        << "a virtual function";
    EXPECT_EQ(card_path(function, false), "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:01.0");
}

/// Returns a device at a PCI address; without an address if @p text is empty.
Nic at(const char* text) {
    Nic nic{};
    nic.pci_address = rdmabuf::PciAddress::parse(text);
    return nic;
}

TEST(NcclNetPciPaths, OrderTheDevices) {
    std::deque<Nic> nics;
    for (const char* const address :
         {"", "10000:01:00.0", "0000:c1:00.0", "0000:3b:00.1", "0000:3b:00.0"}) {
        nics.push_back(at(address));
    }
    sort_by_pci_address(nics);
    std::vector<std::string> addresses;
    addresses.reserve(nics.size());
    for (const Nic& nic : nics) {
        addresses.push_back(nic.pci_address ? to_string(*nic.pci_address) : "");
    }
    EXPECT_THAT(addresses,
                ElementsAre("0000:3b:00.0", "0000:3b:00.1", "0000:c1:00.0", "10000:01:00.0", ""));
}

} // namespace
} // namespace nccl_net
