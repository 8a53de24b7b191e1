// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "fixture.hpp"

namespace {

unsigned fork_inits = 0;
/// The device that has a data-direct function, and the path of this function.
std::string with_data_direct;
const char* const data_direct_path = "/devices/pci5056:00/5056:00:00.1";

} // namespace

// The plugin calls these functions in place of those of libibverbs and libmlx5.
extern "C" {
int ibv_fork_init() {
    ++fork_inits;
    return 0;
}
int mlx5dv_get_data_direct_sysfs_path(ibv_context* context, char* buffer, std::size_t length) {
    if (context->device->name != with_data_direct) {
        return EOPNOTSUPP;
    }
    std::strncpy(buffer, data_direct_path, length);
    return 0;
}
}

namespace nccl_net_test {

using namespace rdmabuf::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StrEq;

namespace {

using NcclNetProperties = NcclNet;

TEST_F(NcclNetProperties, AreThoseOfTheDevice) {
    ibv_port_attr port = roce_port();
    port.active_speed = 64; // HDR
    port.active_width = 2;  // 4x
    set_port(port);
    change_device([](ibv_device_attr_ex& attributes) {
        attributes.orig_attr.sys_image_guid = htobe64(0x0002c903000ae200);
        attributes.orig_attr.max_qp = 1000;
        attributes.orig_attr.max_cqe = 1 << 20;
    });
    fork_inits = 0;
    ASSERT_EQ(load(), Result::success);
    EXPECT_EQ(fork_inits, 1U) << "the drivers are ready for fork(2)";
    EXPECT_THAT(take_log(),
                AllOf(HasSubstr("GPU Direct RDMA enabled on soft0"), Not(HasSubstr("disabled"))));
    ASSERT_EQ(net().devices(), 1);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(0, properties), Result::success);
    EXPECT_THAT(properties.device.name, StrEq("soft0"));
    EXPECT_THAT(properties.device.pci_path, StrEq("/sys/devices/pci5056:00/5056:00:00.0"));
    EXPECT_EQ(properties.device.guid, 0x0002c903000ae200U);
    EXPECT_EQ(properties.link.speed, 200000);
    EXPECT_EQ(properties.link.port, 1);
    EXPECT_EQ(properties.link.latency, 0.0F);
    EXPECT_EQ(properties.link.max_comms, 999);
    EXPECT_EQ(properties.link.max_receives, 8);
    EXPECT_EQ(properties.device.pointers, abi::pointer_host | abi::pointer_dmabuf)
        << "there is no CUDA here";
    EXPECT_EQ(properties.device.global_memory, 1);
    EXPECT_EQ(properties.force_flush, 0);
    EXPECT_EQ(properties.link.device_type, abi::device_type_host);
    EXPECT_EQ(properties.link.device_version, abi::device_version_none);
    EXPECT_EQ(properties.merged.count, 1);
    EXPECT_EQ(properties.merged.devices[0], 0);
    EXPECT_EQ(properties.max_message, std::size_t{1} << 30U);
    EXPECT_EQ(properties.max_collective, std::size_t{1} << 30U);
    EXPECT_EQ(properties.later.max_multi_request, 1);
    EXPECT_EQ(properties.later.rail, -1);
    EXPECT_EQ(properties.later.plane, -1);
}

TEST_F(NcclNetProperties, LimitTheConnectionsToTheCompletionQueue) {
    change_device([](ibv_device_attr_ex& attributes) {
        attributes.orig_attr.max_qp = 1000;
        attributes.orig_attr.max_cqe = 512 + 192 + 10 * 64;
    });
    ASSERT_EQ(load(), Result::success);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(0, properties), Result::success);
    EXPECT_EQ(properties.link.max_comms, 10);
}

TEST_F(NcclNetProperties, SayWhyDmaBufsCannotBeRegistered) {
    fail_dmabufs(EOPNOTSUPP);
    ASSERT_EQ(load(), Result::success);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(0, properties), Result::success);
    EXPECT_EQ(properties.device.pointers, abi::pointer_host);
    EXPECT_THAT(take_log(),
                AllOf(HasSubstr("GPU Direct RDMA disabled on soft0: import of dma-bufs by soft0: "
                                "no: "),
                      HasSubstr("cannot import dma-bufs"), HasSubstr("nvidia_peermem")));
}

TEST_F(NcclNetProperties, TellPortsOfOneCardApart) {
    use_roce_devices({"mlx5_0", "mlx5_1", "other"});
    for (const unsigned device : {0U, 1U, 2U}) {
        change_device(
            [device](ibv_device_attr_ex& attributes) {
                attributes.orig_attr.sys_image_guid = device < 2 ? htobe64(0xca4d) : 0;
            },
            device);
    }
    ASSERT_EQ(load(), Result::success);
    ASSERT_EQ(net().devices(), 3);
    std::vector<std::pair<std::uint64_t, int>> ports;
    for (int device = 0; device < 3; ++device) {
        abi::PropertiesV12 properties{};
        ASSERT_EQ(net().properties(device, properties), Result::success);
        ports.emplace_back(properties.device.guid, properties.link.port);
        EXPECT_EQ(properties.merged.devices[0], device);
    }
    EXPECT_THAT(ports, ::testing::ElementsAre(std::pair{0xca4dU, 1}, std::pair{0xca4dU, 2},
                                              std::pair{3U, 1}));
}

TEST_F(NcclNetProperties, AreThoseOfEachActivePort) {
    ASSERT_EQ(softverbs_set_port_count(0, 3), 0);
    ibv_port_attr port = roce_port();
    port.state = IBV_PORT_DOWN;
    set_port(port, 1);
    port = roce_port();
    port.active_speed = 32;
    port.active_width = 2;
    set_port(port, 2);
    ASSERT_EQ(load(), Result::success);
    ASSERT_EQ(net().devices(), 2);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(0, properties), Result::success);
    EXPECT_EQ(properties.link.port, 2);
    EXPECT_EQ(properties.link.speed, 100000);
    ASSERT_EQ(net().properties(1, properties), Result::success);
    EXPECT_EQ(properties.link.port, 4) << "port 3 of a card that has another device";
    EXPECT_THAT(properties.device.name, StrEq("soft0"));
    static_cast<void>(connect(1));
    for (const ibv_qp_attr& attributes : connected()) {
        EXPECT_EQ(attributes.ah_attr.port_num, 3);
    }
}

TEST_F(NcclNetProperties, LeaveOutWhatCannotBeUsedAndSayWhy) {
    use_roce_devices({"one", "two", "three", "threefold"});
    ibv_port_attr port = roce_port();
    port.state = IBV_PORT_DOWN;
    set_port(port, 1, 1);
    const Variable chosen("NCCL_IB_HCA", "=two,three:1:5:2,threefold:2");
    ASSERT_EQ(load(), Result::success);
    ASSERT_EQ(net().devices(), 1);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(0, properties), Result::success);
    EXPECT_THAT(properties.device.name, StrEq("three"));
    EXPECT_EQ(properties.later.rail, 5);
    EXPECT_EQ(properties.later.plane, 2);
    EXPECT_THAT(take_log(), AllOf(HasSubstr("not using two: none of its ports is active"),
                                  HasSubstr("[0] three port 1")));
    EXPECT_NE(net().properties(1, properties), Result::success);
    EXPECT_THAT(take_log(),
                HasSubstr("W NET/rdmabuf : there is no device 1; the number of devices is 1"));
}

TEST_F(NcclNetProperties, OfMoreDevicesThanNcclSupportsAreNotReported) {
    ASSERT_EQ(softverbs_reset("default", 5), 0);
    for (unsigned device = 0; device < 5; ++device) {
        ASSERT_EQ(softverbs_set_port_count(device, 7), 0);
    }
    ASSERT_EQ(load(), Result::success);
    EXPECT_EQ(net().devices(), 32);
    EXPECT_THAT(take_log(),
                AllOf(HasSubstr("not using soft4 port 5: NCCL supports 32 devices"),
                      HasSubstr("not using soft4 port 7"), HasSubstr("[31] soft4 port 4")));
}

TEST_F(NcclNetProperties, OfMoreMergedDevicesThanTheVersionPermitsAreRefusedWithAReason) {
    ASSERT_EQ(softverbs_reset("default", 5), 0);
    const LoadedPlugin plugin(plugin_path);
    const auto net = plugin.net(newest_version);
    ASSERT_EQ(net->init(), Result::success);
    int device = -1;
    ASSERT_EQ(net->merge({0, 1, 2, 3, 4}, device), Result::success);
    static_cast<void>(take_log());
    abi::PropertiesV12 properties{};
    EXPECT_EQ(plugin.net(11)->properties(device, properties), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0+soft1+soft2+soft3+soft4 has more"));
    net->finalize();
}

TEST_F(NcclNetProperties, AreThoseOfTheDataDirectFunctionUnlessTheEnvironmentForbidsIt) {
    use_roce_devices({"one", "two"});
    with_data_direct = "one";
    for (const bool used : {true, false}) {
        const Variable direct("NCCL_IB_DATA_DIRECT", used ? "1" : "0");
        const LoadedPlugin plugin(plugin_path);
        const auto net = plugin.net(newest_version);
        ASSERT_EQ(net->init(), Result::success);
        abi::PropertiesV12 properties{};
        ASSERT_EQ(net->properties(0, properties), Result::success);
        EXPECT_THAT(properties.device.name, StrEq(used ? "one_dma" : "one"));
        EXPECT_THAT(properties.device.pci_path,
                    StrEq(used ? "/sys/devices/pci5056:00/5056:00:00.1"
                               : "/sys/devices/pci5056:00/5056:00:00.0"));
        EXPECT_EQ(properties.force_flush, used ? 1 : 0);
        ASSERT_EQ(net->properties(1, properties), Result::success);
        EXPECT_THAT(properties.device.name, StrEq("two"));
        EXPECT_EQ(properties.force_flush, 0);
        net->finalize();
    }
    with_data_direct.clear();
}

TEST_F(NcclNetProperties, OfADeviceThatFailsAreNotReported) {
    use_roce_devices({"one", "two"});
    fail_next("alloc_pd", ENOMEM);
    ASSERT_EQ(load(), Result::success);
    EXPECT_EQ(net().devices(), 1);
    EXPECT_THAT(take_log(),
                AllOf(HasSubstr("not using one: "), HasSubstr("ENOMEM"), HasSubstr("[0] two")));
}

TEST_F(NcclNetProperties, AreNoneWithoutADevice) {
    use_no_device();
    EXPECT_EQ(load(), Result::system_error) << "NCCL takes another network then";
    EXPECT_THAT(take_log(), HasSubstr("there is no RDMA device to use"));
}

} // namespace
} // namespace nccl_net_test
