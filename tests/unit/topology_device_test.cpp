// SPDX-License-Identifier: BSD-3-Clause
// The topology of softverbs' devices. The program defines the function of libmlx5 that returns the
// data-direct function of a NIC; the library finds it at run time.
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <rdmabuf/topology.hpp>

#include "softverbs_fixture.hpp"
#include "sysfs_tree.hpp"

namespace {

/// The result of the next calls.
struct DataDirect {
    int error = 0;
    const char* path = "";
    ibv_context* context = nullptr;
};
DataDirect data_direct;

} // namespace

extern "C" {
int mlx5dv_get_data_direct_sysfs_path(ibv_context* context, char* buffer, std::size_t length) {
    data_direct.context = context;
    if (data_direct.error == 0) {
        std::strncpy(buffer, data_direct.path, length);
    }
    return data_direct.error;
}
}

namespace rdmabuf {
namespace {

using ::testing::HasSubstr;
using testing::SoftverbsTest;
using testing::SysfsTree;

class TopologyDeviceTest : public SoftverbsTest {
  public:
    TopologyDeviceTest() { data_direct = {}; }
};

TEST_F(TopologyDeviceTest, ReadsTheDevicesOfThisMachine) {
    testing::use_roce_devices({"one", "two"});
    const Topology topology = Topology::read();
    const Nic* const two = topology.find_nic("two");
    ASSERT_NE(two, nullptr);
    ASSERT_TRUE(two->pci) << two->reason;
    EXPECT_EQ(to_string(two->pci->address), "5056:00:00.1");
    EXPECT_EQ(two->active, true);
    ASSERT_NE(topology.find_nic("one"), nullptr);
    // Both are equally near to a device that is at the same host bridge.
    const auto list = topology.nearest({.device = two->pci->address});
    ASSERT_GE(list.size(), 2U);
    EXPECT_EQ(list[0].name, "two");
    EXPECT_EQ(list[0].path.type, PathType::loc);
    EXPECT_EQ(list[1].name, "one");
    EXPECT_EQ(list[1].path.type, PathType::phb);
}

TEST_F(TopologyDeviceTest, QueriesTheDataDirectFunction) {
    const Context context = Context::open_first();
    const SysfsTree tree("pci0000:00/0000:00:01.0/0000:01:00.0 nic=" + context.device_name() +
                         "\npci0008:00/0008:00:00.0/0008:03:00.0 dma\n");
    Topology topology = Topology::read(tree.root());
    data_direct.path = "/devices/pci0008:00/0008:00:00.0/0008:03:00.0";
    EXPECT_EQ(topology.query_data_direct(context).reason, "data-direct function 0008:03:00.0");
    EXPECT_EQ(data_direct.context, context.native());
    const Nic* const nic = topology.find_nic(context.device_name());
    ASSERT_NE(nic, nullptr);
    ASSERT_TRUE(nic->data_direct);
    EXPECT_EQ(to_string(nic->data_direct->address), "0008:03:00.0");
}

TEST_F(TopologyDeviceTest, SaysWhyThereIsNoDataDirectFunction) {
    const Context context = Context::open_first();
    const SysfsTree tree("pci0000:00/0000:00:01.0/0000:01:00.0 nic=" + context.device_name());
    Topology topology = Topology::read(tree.root());
    const auto reason_for = [&](int error) {
        data_direct.error = error;
        const Availability answer = topology.query_data_direct(context);
        EXPECT_FALSE(answer);
        return answer.reason;
    };
    EXPECT_THAT(reason_for(ENODEV), HasSubstr("has no data-direct function"));
    EXPECT_THAT(reason_for(EOPNOTSUPP), HasSubstr("is not an mlx5 device"));
    EXPECT_THAT(reason_for(EPROTONOSUPPORT), HasSubstr("older than 6.12"));
    EXPECT_THAT(reason_for(ENOSPC), HasSubstr("No space left on device"));
    data_direct.path = "/devices/pci0009:00/0009:03:00.0";
    EXPECT_THAT(reason_for(0), HasSubstr("0009:03:00.0 of soft0 is not in /sys/bus/pci/devices"));
    EXPECT_FALSE(topology.find_nic(context.device_name())->data_direct);
}

} // namespace
} // namespace rdmabuf
