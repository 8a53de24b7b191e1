// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/device_info.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace rdmabuf::tools::devices;
using rdmabuf::Availability;
using testing::HasSubstr;
using testing::Not;

DeviceInfo mlx5() {
    DeviceInfo device{.name = "mlx5_0",
                      .driver = "mlx5_core",
                      .guid = 0x0002c903000ae254,
                      .nic = {},
                      .opened = OpenedInfo{}};
    ibv_device_attr_ex& attributes = device.opened->attributes.native;
    attributes.orig_attr.max_qp = 1234;
    attributes.max_dm_size = 131072;
    attributes.odp_caps.general_caps = IBV_ODP_SUPPORT;
    attributes.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND;
    device.opened->dmabuf_import = Availability::no("EPROTONOSUPPORT", "use Linux 5.12");
    PortInfo port{.number = 1, .speed = 400};
    port.attributes.state = IBV_PORT_DOWN;
    port.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    port.attributes.active_mtu = IBV_MTU_1024;
    port.attributes.max_msg_sz = 1U << 30U;
    device.opened->ports.push_back(port);
    return device;
}

TEST(DeviceReport, HasFeaturesLimitsQuirkAndPorts) {
    const std::string text = to_text({.devices = {mlx5()}}, {});
    EXPECT_THAT(text, HasSubstr("mlx5_0\n  driver            mlx5_core\n"));
    EXPECT_THAT(text, HasSubstr("  node GUID         0002:c903:000a:e254\n"));
    EXPECT_THAT(text, HasSubstr("  kernel driver     mlx5 registers dma-bufs since Linux 5.12"));
    EXPECT_THAT(text, HasSubstr("  dma-buf import    no: EPROTONOSUPPORT; use Linux 5.12\n"));
    EXPECT_THAT(text, HasSubstr("  on-demand paging  yes; RC: send\n"));
    EXPECT_THAT(text, HasSubstr("  device memory     128 KiB\n"));
    EXPECT_THAT(text, HasSubstr("max_qp 1234"));
    EXPECT_THAT(text, HasSubstr("  port 1            down, Ethernet, 400 Gbit/s, MTU 1024, "
                                "max_msg_sz 1 GiB\n"));
}

TEST(DeviceReport, JsonHasTheSameValues) {
    const auto json = nlohmann::json::parse(to_json({.devices = {mlx5()}}))["devices"][0];
    EXPECT_EQ(json["name"], "mlx5_0");
    EXPECT_EQ(json["dmabuf_import"]["available"], false);
    EXPECT_EQ(json["dmabuf_import"]["remedy"], "use Linux 5.12");
    EXPECT_EQ(json["on_demand_paging"]["rc"][0], "send");
    EXPECT_EQ(json["limits"]["max_qp"], 1234);
    EXPECT_EQ(json["limits"]["max_dm_size"], 131072);
    EXPECT_EQ(json["ports"][0]["state"], "down");
    EXPECT_EQ(json["ports"][0]["active_mtu"], 1024);
    EXPECT_EQ(json["ports"][0]["speed_Gbps"], 400);
    EXPECT_TRUE(json["pci_address"].is_null());
    EXPECT_TRUE(json["problem"].is_null());
}

TEST(DeviceReport, ADeviceThatCannotBeOpenedHasTheReason) {
    DeviceInfo device = mlx5();
    device.opened.reset();
    device.problem = "ibv_open_device: Permission denied (EACCES)";
    EXPECT_THAT(to_text({.devices = {device}}, {}),
                HasSubstr("  not usable        ibv_open_device: Permission denied (EACCES)\n"));
    const auto json = nlohmann::json::parse(to_json({.devices = {device}}))["devices"][0];
    EXPECT_EQ(json["problem"], "ibv_open_device: Permission denied (EACCES)");
    EXPECT_FALSE(json.contains("limits"));
}

TEST(DeviceReport, AnEmptyListHasTheReason) {
    const Report report{.reason = "load ib_uverbs"};
    EXPECT_EQ(to_text(report, {}), "No RDMA device: load ib_uverbs\n");
    EXPECT_EQ(nlohmann::json::parse(to_json(report))["reason"], "load ib_uverbs");
}

TEST(DeviceReport, AnUnknownDriverHasNoQuirk) {
    DeviceInfo device = mlx5();
    device.driver = "";
    EXPECT_THAT(to_text({.devices = {device}}, {}), Not(HasSubstr("kernel driver")));
}

} // namespace
