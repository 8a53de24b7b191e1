// SPDX-License-Identifier: BSD-3-Clause
// The messages are those that drivers/infiniband/core/nldev.c of the kernel writes.
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resources/kernel_resources.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace rdmabuf::tools::resources;
using testing::IsEmpty;

/// A message of the kernel.
class KernelMessage {
  public:
    [[nodiscard]] const nlmsghdr& header() const { return *nlmsg_hdr(message_.get()); }
    KernelMessage& number(int type, std::uint32_t value) {
        EXPECT_EQ(nla_put_u32(message_.get(), type, value), 0);
        return *this;
    }
    KernelMessage& byte(int type, std::uint8_t value) {
        EXPECT_EQ(nla_put_u8(message_.get(), type, value), 0);
        return *this;
    }
    KernelMessage& wide(int type, std::uint64_t value) {
        EXPECT_EQ(nla_put_u64(message_.get(), type, value), 0);
        return *this;
    }
    KernelMessage& text(int type, const char* value) {
        EXPECT_EQ(nla_put_string(message_.get(), type, value), 0);
        return *this;
    }
    /// Adds a list with one entry for each call of @p fill.
    template <class... Fill>
    KernelMessage& list(int type, int entry_type, const Fill&... fill) {
        nlattr* const list = nla_nest_start(message_.get(), type);
        const auto add = [&](const auto& each) {
            nlattr* const entry = nla_nest_start(message_.get(), entry_type);
            each(*this);
            nla_nest_end(message_.get(), entry);
        };
        (add(fill), ...);
        nla_nest_end(message_.get(), list);
        return *this;
    }

  private:
    std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message_{nlmsg_alloc_simple(0, 0), &nlmsg_free};
};

TEST(ResourceMessages, ADeviceHasItsNumbersOfObjects) {
    KernelMessage message;
    message.number(RDMA_NLDEV_ATTR_DEV_INDEX, 3)
        .text(RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_0")
        .list(
            RDMA_NLDEV_ATTR_RES_SUMMARY, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY,
            [](KernelMessage& entry) {
                entry.text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, "qp")
                    .wide(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 7);
            },
            [](KernelMessage& entry) {
                entry.text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, "mr")
                    .wide(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, 1ULL << 33U);
            });
    std::vector<DeviceResources> devices;
    add_device(message.header(), devices);
    ASSERT_EQ(devices.size(), 1U);
    EXPECT_EQ(devices[0].index, 3U);
    EXPECT_EQ(devices[0].name, "mlx5_0");
    EXPECT_EQ(devices[0].counts.at("qp"), 7U);
    EXPECT_EQ(devices[0].counts.at("mr"), 1ULL << 33U);
}

TEST(ResourceMessages, AQueuePairHasItsStateAndItsProcess) {
    KernelMessage message;
    message.list(
        RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY,
        [](KernelMessage& entry) {
            entry.number(RDMA_NLDEV_ATTR_RES_LQPN, 0x11)
                .number(RDMA_NLDEV_ATTR_RES_RQPN, 0x22)
                .number(RDMA_NLDEV_ATTR_PORT_INDEX, 1)
                .byte(RDMA_NLDEV_ATTR_RES_TYPE, 2)
                .byte(RDMA_NLDEV_ATTR_RES_STATE, 3)
                .number(RDMA_NLDEV_ATTR_RES_PID, static_cast<std::uint32_t>(::getpid()));
        },
        [](KernelMessage& entry) {
            entry.number(RDMA_NLDEV_ATTR_RES_LQPN, 1)
                .byte(RDMA_NLDEV_ATTR_RES_TYPE, 77)
                .byte(RDMA_NLDEV_ATTR_RES_STATE, 99)
                .text(RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core");
        });
    DeviceResources device{.name = "mlx5_0"};
    add_queue_pairs(message.header(), device);
    ASSERT_EQ(device.queue_pairs.size(), 2U);
    EXPECT_EQ(device.queue_pairs[0].number, 0x11U);
    EXPECT_EQ(device.queue_pairs[0].remote, 0x22U);
    EXPECT_EQ(device.queue_pairs[0].type, "RC");
    EXPECT_EQ(device.queue_pairs[0].state, "RTS");
    EXPECT_EQ(device.queue_pairs[0].owner, "command_test");
    EXPECT_EQ(device.queue_pairs[1].type, "type 77");
    EXPECT_EQ(device.queue_pairs[1].state, "state 99");
    EXPECT_EQ(device.queue_pairs[1].owner, "ib_core");
}

TEST(ResourceMessages, ARegionHasItsLength) {
    KernelMessage message;
    message.list(RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, [](KernelMessage& entry) {
        entry.number(RDMA_NLDEV_ATTR_RES_MRN, 5)
            .wide(RDMA_NLDEV_ATTR_RES_MRLEN, 1U << 20U)
            .number(RDMA_NLDEV_ATTR_RES_PID, 4194305);
    });
    DeviceResources device{.name = "mlx5_0"};
    add_regions(message.header(), device);
    ASSERT_EQ(device.regions.size(), 1U);
    EXPECT_EQ(device.regions[0].length, 1U << 20U);
    EXPECT_EQ(device.regions[0].pid, 4194305U);
    // The largest process number of Linux is 4194304.
    EXPECT_EQ(device.regions[0].owner, "");
}

TEST(ResourceMessages, AMessageWithoutAttributesAddsNothing) {
    const KernelMessage message;
    std::vector<DeviceResources> devices;
    add_device(message.header(), devices);
    EXPECT_THAT(devices, IsEmpty());
    DeviceResources device;
    add_queue_pairs(message.header(), device);
    add_regions(message.header(), device);
    EXPECT_THAT(device.queue_pairs, IsEmpty());
    EXPECT_THAT(device.regions, IsEmpty());
}

TEST(ResourcesReport, HasObjectsWithLimitsAndOwners) {
    const Report report{
        .devices = {
            {.name = "mlx5_0",
             .counts = {{"mr", 2}, {"qp", 1}, {"ctx", 1}},
             .limits = {{"mr", 100}, {"qp", 50}},
             .queue_pairs = {{.number = 0x11,
                              .remote = 0x22,
                              .port = 1,
                              .type = "RC",
                              .state = "RTS",
                              .pid = 12,
                              .owner = "train"},
                             {.number = 1, .type = "GSI", .state = "RTS", .owner = "ib_core"}},
             .regions = {{.number = 5, .length = 1U << 20U, .pid = 12, .owner = ""}},
             .problem = "limits: no permission"}}};
    EXPECT_EQ(to_text(report, {}),
              "mlx5_0\n"
              "  objects           ctx 1, mr 2 of 100, qp 1 of 50\n"
              "  qp 0x000011       RC RTS, port 1, peer 0x000022, process 12, train\n"
              "  qp 0x000001       GSI RTS, kernel, ib_core\n"
              "  mr 5              1 MiB, process 12\n"
              "  not known         limits: no permission\n");
    const auto json = nlohmann::json::parse(to_json(report))["devices"][0];
    EXPECT_EQ(json["counts"]["mr"], 2);
    EXPECT_EQ(json["limits"]["qp"], 50);
    EXPECT_EQ(json["queue_pairs"][0]["owner"], "train");
    EXPECT_TRUE(json["queue_pairs"][1]["pid"].is_null());
    EXPECT_EQ(json["regions"][0]["length"], 1048576);
}

TEST(ResourcesReport, WithoutAnRdmaSubsystemHasTheReason) {
    const Report report{.reason = "load ib_core"};
    EXPECT_EQ(to_text(report, {}), "No RDMA resources: load ib_core\n");
    EXPECT_EQ(nlohmann::json::parse(to_json(report))["reason"], "load ib_core");
}

} // namespace
