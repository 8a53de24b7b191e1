// SPDX-License-Identifier: BSD-3-Clause
//
// What NCCL and the environment select: traffic class, PCIe relaxed ordering, timeouts, merged
// devices.
#include <algorithm>
#include <numeric>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

using NcclNetOptions = NcclNet;

TEST_F(NcclNetOptions, TakeTheTrafficClassOfTheNcclCommunicator) {
    ASSERT_EQ(load(106), Result::success);
    forget_calls();
    static_cast<void>(connect());
    EXPECT_THAT(traffic_classes(), ElementsAre(106));
}

TEST_F(NcclNetOptions, PreferTheTrafficClassOfTheEnvironment) {
    const Variable chosen("NCCL_IB_TC", "0x60");
    ASSERT_EQ(load(106), Result::success);
    forget_calls();
    static_cast<void>(connect());
    EXPECT_THAT(traffic_classes(), ElementsAre(0x60));
}

TEST_F(NcclNetOptions, OfQueuePairsComeFromTheEnvironment) {
    const Variable level("NCCL_IB_SL", "3");
    const Variable retries("NCCL_IB_RETRY_CNT", "5");
    const Variable timeout("NCCL_IB_TIMEOUT", "18");
    ASSERT_EQ(load(), Result::success);
    forget_calls();
    static_cast<void>(connect());
    for (const ibv_qp_attr& attributes : connected()) {
        EXPECT_EQ(attributes.ah_attr.sl, 3);
    }
    bool any = false;
    for (const QpModification& modification : record().modifications) {
        if (modification.attributes.qp_state == IBV_QPS_RTS) {
            any = true;
            EXPECT_EQ(modification.attributes.timeout, 18);
            EXPECT_EQ(modification.attributes.retry_cnt, 5);
        }
    }
    EXPECT_TRUE(any);
}

TEST_F(NcclNetOptions, ThatAreNoNumbersAreIgnoredWithAWarning) {
    const Variable timeout("NCCL_IB_TIMEOUT", "32");
    const Variable level("NCCL_IB_SL", "high");
    ASSERT_EQ(load(), Result::success);
    EXPECT_THAT(take_log(), AllOf(HasSubstr("W NET/rdmabuf : NCCL_IB_TIMEOUT=32 is ignored"),
                                  HasSubstr("W NET/rdmabuf : NCCL_IB_SL=high is ignored")));
}

class NcclNetRelaxedOrdering : public NcclNetOptions {
  protected:
    /// Returns true if host memory and a dma-buf are registered with PCIe relaxed ordering.
    [[nodiscard]] bool is_used() {
        EXPECT_EQ(load(), Result::success);
        const Pair pair = connect();
        forget_calls();
        const auto host = memory(pair.send, 4096);
        const auto device = memory(pair.receive, 4096, true);
        std::vector<bool> relaxed;
        for (const Registration& registration : record().registrations) {
            relaxed.push_back((registration.access & IBV_ACCESS_RELAXED_ORDERING) != 0);
        }
        EXPECT_EQ(relaxed.size(), 2U);
        EXPECT_EQ(relaxed.front(), relaxed.back());
        return relaxed.front();
    }
};

TEST_F(NcclNetRelaxedOrdering, IsUsedByDefault) {
    EXPECT_TRUE(is_used());
}

TEST_F(NcclNetRelaxedOrdering, IsNotUsedIfTheEnvironmentForbidsIt) {
    const Variable ordering("NCCL_IB_PCI_RELAXED_ORDERING", "0");
    EXPECT_FALSE(is_used());
}

class NcclNetMerging : public NcclNetOptions {
  protected:
    NcclNetMerging() { EXPECT_EQ(softverbs_reset("default", 3), 0); }
};

TEST_F(NcclNetMerging, StripesMessagesOverTheDevices) {
    ASSERT_EQ(load(), Result::success);
    ASSERT_EQ(net().devices(), 3);
    abi::PropertiesV12 single{};
    ASSERT_EQ(net().properties(0, single), Result::success);
    int device = -1;
    ASSERT_EQ(net().merge({0, 2}, device), Result::success);
    EXPECT_EQ(device, 3);
    EXPECT_EQ(net().devices(), 4);
    abi::PropertiesV12 merged{};
    ASSERT_EQ(net().properties(device, merged), Result::success);
    EXPECT_THAT(merged.name, StrEq("soft0+soft2"));
    EXPECT_EQ(merged.speed, 2 * single.speed);
    EXPECT_EQ(merged.merged.count, 2);
    EXPECT_EQ(merged.merged.devices[0], 0);
    EXPECT_EQ(merged.merged.devices[1], 2);
    EXPECT_EQ(merged.guid, single.guid);

    const Pair pair = connect(device);
    constexpr std::size_t size = 1 << 20;
    const auto from = memory(pair.send, size);
    const auto to = memory(pair.receive, size);
    fill(from->bytes(0, size), 4);
    const Ticket received = receive(pair.receive, *to, 0, size, 0);
    for (int i = 0; i < 100; ++i) {
        go_on(); // The advertisement of the receive arrives.
    }
    forget_calls();
    const Ticket sent = send(pair.send, *from, 0, size - 1, 0);
    EXPECT_THAT(finish(received), ElementsAre(static_cast<int>(size - 1)));
    EXPECT_THAT(finish(sent), ElementsAre(static_cast<int>(size - 1)));
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, size - 1), to->bytes(0, size - 1)));
    std::vector<std::size_t> written;
    for (const Send& posted : record().sends) {
        if (posted.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
            written.push_back(posted.entries.at(0).length);
        }
    }
    EXPECT_EQ(written.size(), 2U) << "one write by each device";
    EXPECT_EQ(std::accumulate(written.begin(), written.end(), std::size_t{0}), size - 1);
}

// With NCCL_NET_PLUGIN_REF_COUNT=1, NCCL calls devices() and makeVDevice() for its first
// communicator only.
TEST_F(NcclNetMerging, IsKeptForLaterNcclCommunicators) {
    ASSERT_EQ(load(), Result::success);
    int first = -1;
    ASSERT_EQ(net().merge({0, 2}, first), Result::success);
    int again = -1;
    ASSERT_EQ(net().merge({0, 2}, again), Result::success);
    EXPECT_EQ(again, first);
    EXPECT_EQ(net().devices(), 4);
    net().finalize();
    ASSERT_EQ(net().init(), Result::success);
    abi::PropertiesV12 merged{};
    ASSERT_EQ(net().properties(first, merged), Result::success) << take_log();
    EXPECT_THAT(merged.name, StrEq("soft0+soft2"));
    // After the plugin was loaded again, NCCL merges them again.
    EXPECT_EQ(net().devices(), 3);
    ASSERT_EQ(net().merge({0, 2}, again), Result::success);
    EXPECT_EQ(again, first);
    EXPECT_EQ(net().devices(), 4);
}

TEST_F(NcclNetMerging, IsRefusedWithAReason) {
    ASSERT_EQ(load(), Result::success);
    int device = -1;
    EXPECT_EQ(net().merge({0, 0}, device), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("device 0 is listed twice"));
    EXPECT_EQ(net().merge({0, 3}, device), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("there is no device 3 to merge"));
    EXPECT_EQ(net().merge({}, device), Result::invalid_usage);
    ASSERT_EQ(net().merge({0, 1}, device), Result::success);
    EXPECT_EQ(net().merge({2, 3}, device), Result::invalid_usage) << "device 3 is a merged device";
    EXPECT_EQ(net().devices(), 4);
}

TEST_F(NcclNetMerging, CanBeDisabled) {
    const Variable merging("NCCL_IB_MERGE_NICS", "0");
    ASSERT_EQ(load(), Result::success);
    int device = -1;
    EXPECT_EQ(net().merge({0, 1}, device), Result::invalid_usage);
    EXPECT_EQ(net().devices(), 3);
    EXPECT_THAT(take_log(), HasSubstr("NCCL_IB_MERGE_NICS=0"));
}

} // namespace
} // namespace nccl_net_test
