// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>

#include <rdmabuf/context.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

class DeviceListTest : public SoftverbsTest {};

TEST_F(DeviceListTest, HoldsTheDevicesThereAre) {
    testing::use_roce_devices({"one", "two"});
    const DeviceList list;
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0].name(), "one");
    EXPECT_EQ(list[1].name(), "two");
    EXPECT_EQ(list.front().name(), "one");
    std::string names;
    for (const Device& device : list) {
        names += device.name();
    }
    EXPECT_EQ(names, "onetwo");
}

TEST_F(DeviceListTest, WithoutAnyDeviceSaysWhatToCheck) {
    testing::use_no_device();
    const DeviceList list;
    EXPECT_TRUE(list.empty());
    EXPECT_EQ(list.size(), 0U);
    for (const auto& error : {error_of([&] { static_cast<void>(list.front()); }),
                              error_of([&] { static_cast<void>(list.find("mlx5_0")); }),
                              error_of([&] { static_cast<void>(list.find(std::uint64_t{7})); }),
                              error_of([] { static_cast<void>(Context::open_first()); })}) {
        EXPECT_THAT(error, fails_with("ibv_get_device_list", ENODEV, "ib_uverbs", "no RDMA device",
                                      "/dev/infiniband"));
    }
}

TEST_F(DeviceListTest, NamesTheDevicesThereAreWhenAskedForAnother) {
    testing::use_roce_devices({"one", "two"});
    testing::change_device([](ibv_device_attr_ex& attributes) {
        attributes.orig_attr.node_guid = htobe64(testing::guid);
    });
    const DeviceList list;
    EXPECT_THAT(error_of([&] { static_cast<void>(list.find("mlx5_0")); }),
                fails_with("ibv_get_device_list", ENODEV,
                           "\"mlx5_0\": there is no such device; there are one (GUID "
                           "0002:c903:000a:e254), two (GUID 0000:0000:0000:0002)"));
    EXPECT_THAT(error_of([&] { static_cast<void>(list.find(std::uint64_t{0x10})); }),
                fails_with("ibv_get_device_list", ENODEV, "GUID 0000:0000:0000:0010: there is no"));
}

TEST_F(DeviceListTest, WithoutKernelSupportSaysWhatToLoad) {
    testing::fail_next("ibv_get_device_list", ENOSYS);
    EXPECT_THAT(error_of([] { const DeviceList list; }),
                fails_with("ibv_get_device_list", ENOSYS, "load ib_uverbs"));
    testing::fail_next("ibv_get_device_list", ENOSYS);
    EXPECT_THAT(error_of([] { const DeviceList list; }),
                fails_with("ibv_get_device_list", ENOSYS, "softverbs run -- PROGRAM"));
    testing::fail_next("ibv_get_device_list", EPERM);
    EXPECT_STREQ(error_of([] { const DeviceList list; })->what(),
                 "ibv_get_device_list: Operation not permitted (EPERM)");
}

class DeviceTest : public SoftverbsTest {};

TEST_F(DeviceTest, WithoutAParentHasNoDriver) {
    EXPECT_EQ(DeviceList().front().driver(), "");
}

TEST(Guid, PrintsAsTheToolsPrintIt) {
    EXPECT_EQ(guid_to_string(0x0002c903000ae254), "0002:c903:000a:e254");
    EXPECT_EQ(guid_to_string(0), "0000:0000:0000:0000");
    EXPECT_EQ(guid_to_string(~std::uint64_t{0}), "ffff:ffff:ffff:ffff");
}

} // namespace
} // namespace rdmabuf
