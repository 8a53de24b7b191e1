// SPDX-License-Identifier: BSD-3-Clause
//
// What NCCL and the environment select: traffic class, PCIe relaxed ordering, timeouts, merged
// devices.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/transport/handle.hpp>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StrEq;

using NcclNetOptions = NcclNet;

TEST_F(NcclNetOptions, PreferTheTrafficClassOfTheEnvironment) {
    const Variable chosen("NCCL_IB_TC", "0x60");
    ASSERT_EQ(load(106), Result::success);
    forget_calls();
    static_cast<void>(connect());
    EXPECT_THAT(traffic_classes(), ElementsAre(0x60));
}

TEST_F(NcclNetOptions, OfQueuePairsComeFromTheEnvironmentAndTheNcclCommunicator) {
    const Variable level("NCCL_IB_SL", "3");
    const Variable retries("NCCL_IB_RETRY_CNT", "5");
    const Variable timeout("NCCL_IB_TIMEOUT", "18");
    ASSERT_EQ(load(106), Result::success);
    forget_calls();
    static_cast<void>(connect());
    EXPECT_THAT(traffic_classes(), ElementsAre(106));
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

TEST_F(NcclNetOptions, WithoutEffectAreReported) {
    const Variable threshold("NCCL_IB_AR_THRESHOLD", "0");
    const Variable flush("NCCL_GDR_FLUSH_DISABLE", "1");
    const Variable without_value("NCCL_IB_ECE_ENABLE", "");
    const Variable used("NCCL_IB_TC", "0");
    ASSERT_EQ(load(), Result::success);
    EXPECT_THAT(take_log(),
                AllOf(HasSubstr("I NET/rdmabuf : NCCL_IB_AR_THRESHOLD has no effect: the plugin"),
                      HasSubstr("I NET/rdmabuf : NCCL_GDR_FLUSH_DISABLE has no effect: the plugin"),
                      Not(HasSubstr("NCCL_IB_ECE_ENABLE")), Not(HasSubstr("NCCL_IB_TC"))));
}

// Also in a network namespace that has no other interface than lo.
TEST_F(NcclNetOptions, SelectAFamilyOfEachInterface) {
    const Variable family("NCCL_SOCKET_FAMILY", "AF_INET");
    EXPECT_EQ(load(), Result::success) << take_log();
}

TEST_F(NcclNetOptions, SelectTheInterfaceToListenAt) {
    {
        const Variable interface("NCCL_SOCKET_IFNAME", "=nothing0,l");
        EXPECT_EQ(load(), Result::internal_error) << "the name must be exact";
        EXPECT_THAT(take_log(), HasSubstr("no interface matches NCCL_SOCKET_IFNAME"));
    }
    const Variable interface("NCCL_SOCKET_IFNAME", "nothing0,l");
    const Variable family("NCCL_SOCKET_FAMILY", "AF_INET");
    ASSERT_EQ(load(), Result::success);
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    const auto decoded = rdmabuf::transport::Handle::decode(
        std::span(handle).first<rdmabuf::transport::Handle::wire_size>());
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->address(), (std::array<std::uint8_t, 16>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff,
                                                                0xff, 127, 0, 0, 1}));
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

TEST_F(NcclNetOptions, CanDisableThePlugin) {
    const Variable disabled("NCCL_IB_DISABLE", "1");
    EXPECT_EQ(load(), Result::internal_error);
    EXPECT_THAT(take_log(), HasSubstr("NCCL_IB_DISABLE=1"));
}

TEST_F(NcclNetOptions, GiveAConnectionSeveralQueuePairs) {
    const Variable queue_pairs("NCCL_IB_QPS_PER_CONNECTION", "8");
    ASSERT_EQ(load(), Result::success);
    forget_calls();
    static_cast<void>(connect());
    EXPECT_EQ(connected().size(), 8U) << "at each end four, which is the maximum";
}

class NcclNetGids : public NcclNetOptions {
  protected:
    NcclNetGids() {
        set_gids({gid_entry("fe80::1", 0, IBV_GID_TYPE_ROCE_V2),
                  gid_entry("::ffff:10.1.0.1", 1, IBV_GID_TYPE_ROCE_V1),
                  gid_entry("::ffff:10.1.0.1", 2, IBV_GID_TYPE_ROCE_V2),
                  gid_entry("::ffff:10.2.0.1", 3, IBV_GID_TYPE_ROCE_V2),
                  gid_entry("fd00::1", 4, IBV_GID_TYPE_ROCE_V2),
                  gid_entry("fd00:1::1", 5, IBV_GID_TYPE_ROCE_V2)});
    }
    /// Returns the index of the GID that a connection uses.
    [[nodiscard]] int used() {
        EXPECT_EQ(load(), Result::success);
        forget_calls();
        static_cast<void>(connect());
        return connected().front().ah_attr.grh.sgid_index;
    }
};

TEST_F(NcclNetGids, AreSelectedByTheVersionOfRoce) {
    const Variable version("NCCL_IB_ROCE_VERSION_NUM", "1");
    EXPECT_EQ(used(), 1);
}

TEST_F(NcclNetGids, AreSelectedByARangeOfAddresses) {
    const Variable range("NCCL_IB_ADDR_RANGE", "10.2.0.0/15");
    EXPECT_EQ(used(), 3);
}

TEST_F(NcclNetGids, AreSelectedByTheFamilyAndARangeOfAddresses) {
    const Variable family("NCCL_IB_ADDR_FAMILY", "AF_INET6");
    const Variable range("NCCL_IB_ADDR_RANGE", "fd00:1::/32");
    EXPECT_EQ(used(), 5);
}

TEST_F(NcclNetGids, AreSelectedByTheirIndexBeforeAnythingElse) {
    const Variable range("NCCL_IB_ADDR_RANGE", "10.2.0.0/16");
    const Variable index("NCCL_IB_GID_INDEX", "2");
    EXPECT_EQ(used(), 2);
}

TEST_F(NcclNetGids, OutsideOfTheTableOfAPortLeaveItOut) {
    for (const char* const variable : {"NCCL_IB_GID_INDEX", "NCCL_IB_PKEY"}) {
        SCOPED_TRACE(variable);
        const Variable index(variable, "200");
        static_cast<void>(load());
        EXPECT_THAT(take_log(),
                    HasSubstr("W NET/rdmabuf : not using soft0: " + std::string(variable) +
                              "=200, and the table of the port "
                              "has "));
    }
}

TEST_F(NcclNetGids, AreNotSelectedByTheirIndexOnInfiniBand) {
    use_infiniband_device();
    const Variable index("NCCL_IB_GID_INDEX", "200");
    ASSERT_EQ(load(), Result::success) << take_log();
    static_cast<void>(connect());
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

    static constexpr std::size_t size = 1 << 20;

    /// Sends a message of size - 1 bytes.
    void transfer(const Pair& pair, bool dmabuf = false) {
        const auto from = memory(pair.send, size);
        const auto to = memory(pair.receive, size, dmabuf);
        fill(from->bytes(0, size), 4);
        const Ticket received = receive(pair.receive, *to, 0, size, 0);
        const Ticket sent = send(pair.send, *from, 0, size - 1, 0);
        EXPECT_THAT(finish(received), ElementsAre(static_cast<int>(size - 1)));
        EXPECT_THAT(finish(sent), ElementsAre(static_cast<int>(size - 1)));
        EXPECT_TRUE(std::ranges::equal(from->bytes(0, size - 1), to->bytes(0, size - 1)));
    }
    /// Sends a message and expects that each of so many queue pairs writes a part of it.
    void expect_striped(int device, std::size_t queue_pairs) {
        const Pair pair = connect(device);
        forget_calls();
        transfer(pair);
        std::vector<std::size_t> written;
        for (const Send& posted : record().sends) {
            if (posted.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
                written.push_back(posted.entries.at(0).length);
            }
        }
        EXPECT_EQ(written.size(), queue_pairs) << "one write by each queue pair";
        EXPECT_EQ(std::accumulate(written.begin(), written.end(), std::size_t{0}), size - 1);
    }
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
    EXPECT_THAT(merged.device.name, StrEq("soft0+soft2"));
    EXPECT_EQ(merged.link.speed, 2 * single.link.speed);
    EXPECT_EQ(merged.merged.count, 2);
    EXPECT_EQ(merged.merged.devices[0], 0);
    EXPECT_EQ(merged.merged.devices[1], 2);
    EXPECT_EQ(merged.device.guid, single.device.guid);

    expect_striped(device, 2);
}

TEST_F(NcclNetMerging, MergesUpToEightDevices) {
    EXPECT_EQ(softverbs_reset("default", 8), 0);
    const Variable queue_pairs("NCCL_IB_QPS_PER_CONNECTION", "4");
    ASSERT_EQ(load(), Result::success);
    int device = -1;
    ASSERT_EQ(net().merge({0, 1, 2, 3, 4, 5, 6, 7}, device), Result::success);
    abi::PropertiesV12 merged{};
    ASSERT_EQ(net().properties(device, merged), Result::success);
    EXPECT_THAT(merged.merged.devices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(merged.merged.count, 8);
    expect_striped(device, 16);
    EXPECT_EQ(net().merge({0, 1, 2, 3, 4, 5, 6, 7, 8}, device), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("a merged device has 1 to 8 devices"));
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
    EXPECT_THAT(merged.device.name, StrEq("soft0+soft2"));
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

TEST_F(NcclNetMerging, IsRefusedIfTheSelectedGidsHaveDifferentIndices) {
    for (unsigned device = 0; device < 3; ++device) {
        const std::string number = std::to_string(device + 1);
        const std::vector gids{gid_entry(("fe80::" + number).c_str(), 0, IBV_GID_TYPE_ROCE_V2),
                               gid_entry(("::ffff:10.1.0." + number).c_str(), device == 2 ? 2 : 1,
                                         IBV_GID_TYPE_ROCE_V2)};
        ASSERT_EQ(softverbs_set_gid_table(device, 1, gids.data(), gids.size()), 0);
    }
    const Variable range("NCCL_IB_ADDR_RANGE", "10.1.0.0/16");
    ASSERT_EQ(load(), Result::success);
    int device = -1;
    EXPECT_EQ(net().merge({0, 2}, device), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("soft2 and soft0 use GIDs of different indices"));
    EXPECT_EQ(net().merge({0, 1}, device), Result::success);
}

TEST_F(NcclNetMerging, GoesOnWithTheDevicesThatHaveNotFailed) {
    ASSERT_EQ(load(), Result::success);
    for (const int other : {1, 2}) {
        SCOPED_TRACE(other);
        int device = -1;
        ASSERT_EQ(net().merge({0, other}, device), Result::success);
        std::vector<Pair> pairs{connect(device)};
        ASSERT_EQ(softverbs_reset_device(static_cast<unsigned>(other)), 0);
        // The first call after the failure connects, or registers memory.
        if (other == 2) {
            pairs.insert(pairs.begin(), connect(device));
        }
        for (const Pair& pair : pairs) {
            transfer(pair);
            transfer(pair, true);
        }
    }
}

TEST_F(NcclNetMerging, CanBeDisabled) {
    const Variable merging("NCCL_IB_MERGE_NICS", "0");
    ASSERT_EQ(load(), Result::success);
    int device = -1;
    EXPECT_EQ(net().merge({0, 1}, device), Result::invalid_usage);
    EXPECT_EQ(net().devices(), 3);
    EXPECT_THAT(take_log(), HasSubstr("NCCL_IB_MERGE_NICS=0"));
    // NCCL 2.26 does this for each device, and would repeat it for ever after an error.
    ASSERT_EQ(net().merge({1}, device), Result::success);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(device, properties), Result::success);
    EXPECT_THAT(properties.device.name, StrEq("soft1"));
}

} // namespace
} // namespace nccl_net_test
