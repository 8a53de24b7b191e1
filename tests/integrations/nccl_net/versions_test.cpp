// SPDX-License-Identifier: BSD-3-Clause
// The tables before the newest one, which NCCL of earlier releases looks up.
#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StrEq;

class NcclNetVersions : public NcclNet, public ::testing::WithParamInterface<int> {
  protected:
    NcclNetVersions() { EXPECT_EQ(softverbs_reset("default", 5), 0); }
};

TEST_P(NcclNetVersions, DescribeDevicesAndMoveMessages) {
    ASSERT_EQ(load(106, GetParam()), Result::success);
    ASSERT_EQ(net().devices(), 5);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(1, properties), Result::success);
    EXPECT_THAT(properties.device.name, StrEq("soft1"));
    EXPECT_EQ(properties.link.max_receives, 8);
    EXPECT_EQ(properties.device.global_memory, 1);
    EXPECT_EQ(properties.link.device_type, abi::device_type_host);
    EXPECT_EQ(properties.merged.devices[0], 1);
    EXPECT_EQ(properties.max_message, std::size_t{1} << 30U);

    rdmabuf::testing::forget_calls();
    const Pair pair = connect();
    if (GetParam() < 10) {
        EXPECT_THAT(traffic_classes(), ElementsAre(0)) << "NCCL has not passed it to the plugin";
    } else if (GetParam() == 10) {
        EXPECT_THAT(traffic_classes(), ElementsAre(0, 106)) << "NCCL passes it to connect() only";
    } else {
        EXPECT_THAT(traffic_classes(), ElementsAre(106));
    }
    Transfer transfer(net(), pair, {.subs = 2}, true);
    run(transfer);
}

TEST_P(NcclNetVersions, MergeDevicesFromVersion10On) {
    ASSERT_EQ(load(abi::undefined_traffic_class, GetParam()), Result::success);
    int device = -1;
    if (GetParam() == 8) {
        EXPECT_EQ(net().merge({0, 1}, device), Result::internal_error) << "there is no function";
        return;
    }
    ASSERT_EQ(net().merge({0, 1}, device), Result::success);
    EXPECT_EQ(device, 5);
    abi::PropertiesV12 properties{};
    ASSERT_EQ(net().properties(device, properties), Result::success);
    EXPECT_EQ(properties.merged.count, 2);
    EXPECT_EQ(properties.merged.devices[1], 1);
    ASSERT_EQ(net().merge({0, 1, 2, 3}, device), Result::success);
    EXPECT_EQ(net().merge({0, 1, 2, 3, 4}, device), Result::invalid_usage);
    EXPECT_THAT(take_log(), HasSubstr("a merged device has 1 to 4 devices"));
}

INSTANTIATE_TEST_SUITE_P(Version, NcclNetVersions, ::testing::Values(8, 10, 11));

} // namespace
} // namespace nccl_net_test
