// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "memory_fixture.hpp"

namespace {

using softverbs_test::open_descriptors;
using softverbs_test::UniqueAh;
using softverbs_test::UniqueContext;
using softverbs_test::UniqueCq;
using softverbs_test::UniqueMr;
using softverbs_test::UniquePd;
using softverbs_test::UniqueQp;
using softverbs_test::UniqueSrq;
using softverbs_test::VerbsTest;

/// The device list, which is freed on destruction.
class List {
  public:
    List() : devices_(ibv_get_device_list(&count_)) {}
    ~List() { ibv_free_device_list(devices_); }
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ibv_device* operator[](std::size_t i) const { return devices_[i]; }
    [[nodiscard]] int count() const { return count_; }

  private:
    int count_ = -1;
    ibv_device** devices_;
};

bool is_soft(ibv_device* device) {
    return std::string(ibv_get_device_name(device)).starts_with("soft");
}

TEST(DeviceList, NamesAsManyDevicesAsWereAskedForEachWithItsOwnGuid) {
    ASSERT_EQ(softverbs_reset("default", 3), 0);
    {
        const List list;
        ASSERT_GE(list.count(), 3);
        for (std::size_t i = 0; i < 3; ++i) {
            EXPECT_EQ(ibv_get_device_name(list[i]), "soft" + std::to_string(i));
            EXPECT_EQ(be64toh(ibv_get_device_guid(list[i])), 0x5076'65ff'fe00'0001 + i);
            EXPECT_EQ(ibv_get_device_index(list[i]), -1);
        }
        EXPECT_EQ(list[static_cast<std::size_t>(list.count())], nullptr);
        EXPECT_EQ(softverbs_live(SOFTVERBS_LIST), 1U);
        const List another;
        EXPECT_EQ(another[0], list[0]);
        EXPECT_EQ(softverbs_live(SOFTVERBS_LIST), 2U);
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_LIST), 0U);
}

TEST(DeviceList, IsEmptyWithoutDevices) {
    ASSERT_EQ(softverbs_reset("default", SOFTVERBS_NO_DEVICES), 0);
    const List list;
    EXPECT_TRUE(list.count() == 0 || !is_soft(list[0]));
}

TEST(Reset, IsRefusedWhileTheProgramHasAListOrAContext) {
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    UniqueContext context;
    {
        const List list;
        EXPECT_EQ(softverbs_reset("default", 1), EBUSY);
        context.reset(ibv_open_device(list[0]));
        ASSERT_NE(context, nullptr);
    }
    EXPECT_EQ(softverbs_reset("default", 1), EBUSY);
    context.reset();
    EXPECT_EQ(softverbs_reset("default", 1), 0);
}

TEST(Reset, KnowsItsProfilesAndHowManyDevicesThereCanBe) {
    EXPECT_EQ(softverbs_reset("no-such-profile", 1), EINVAL);
    EXPECT_EQ(softverbs_reset("default", 9), EINVAL);
    ASSERT_EQ(softverbs_reset("mlx5", 8), 0);
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(softverbs_get_device_attr(7, &attributes), 0);
    EXPECT_EQ(attributes.max_dm_size, std::uint64_t{128} << 10);
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    EXPECT_EQ(softverbs_get_device_attr(7, &attributes), ENODEV);
}

TEST(Reset, UndoesWhatWasSet) {
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    ASSERT_EQ(softverbs_set_device_name(0, "other0"), 0);
    ASSERT_EQ(softverbs_fail_call("ibv_alloc_pd", 1, ENOMEM), 0);
    ASSERT_EQ(softverbs_set_features(0, 0), 0);
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    EXPECT_STREQ(ibv_get_device_name(List()[0]), "soft0");
    EXPECT_EQ(softverbs_pending_faults(), 0U);
    EXPECT_NE(softverbs_features(0) & SOFTVERBS_FEATURE_DM, 0U);
}

TEST(Names, ThatAreNoneAreRefused) {
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    EXPECT_EQ(softverbs_set_device_name(0, ""), EINVAL);
    EXPECT_EQ(softverbs_set_device_name(0, nullptr), EINVAL);
    EXPECT_EQ(softverbs_set_device_name(0, std::string(64, 'x').c_str()), EINVAL);
    EXPECT_EQ(softverbs_set_device_name(1, "soft1"), ENODEV);
    EXPECT_EQ(softverbs_set_device_name(0, std::string(63, 'x').c_str()), 0);
}

class DeviceTest : public VerbsTest {};

TEST_F(DeviceTest, IsClosedAsInLibibverbsWhileSomethingOfItIsThere) {
    ibv_context* const another = ibv_open_device(context->device);
    ASSERT_NE(another, nullptr);
    ibv_pd* const left = ibv_alloc_pd(another);
    ASSERT_NE(left, nullptr);
    EXPECT_EQ(ibv_close_device(another), 0);
    expected_violations = 1;
    EXPECT_EQ(softverbs_live(SOFTVERBS_CONTEXT), 1U);
    EXPECT_EQ(ibv_dealloc_pd(left), 0);
}

TEST_F(DeviceTest, LeavesNoDescriptorOpenWhenItIsClosed) {
    const auto before = open_descriptors();
    {
        const UniqueContext another(ibv_open_device(context->device));
        ASSERT_NE(another, nullptr);
        EXPECT_EQ(open_descriptors(), before + 2) << "of cmd_fd and async_fd";
        EXPECT_NE(another->cmd_fd, context->cmd_fd);
        EXPECT_EQ(::fcntl(another->cmd_fd, F_GETFD), FD_CLOEXEC);
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(DeviceTest, FillsOnlyAsMuchOfTheAttributesAsTheProgramKnows) {
    struct {
        ibv_device_attr_ex attributes;
        std::array<std::uint8_t, 64> behind;
    } newer{};
    std::memset(&newer, 0xee, sizeof newer);
    auto* const verbs = verbs_get_ctx(context.get());
    const auto size = offsetof(ibv_device_attr_ex, tso_caps);
    ASSERT_EQ(verbs->query_device_ex(context.get(), nullptr, &newer.attributes, size), 0);
    EXPECT_EQ(newer.attributes.hca_core_clock, 1'000'000U);
    EXPECT_EQ(newer.attributes.tso_caps.max_tso, 0xeeeeeeeeU);
    // Members of a newer structure that softverbs does not have are set to 0.
    ASSERT_EQ(verbs->query_device_ex(context.get(), nullptr, &newer.attributes, sizeof newer), 0);
    EXPECT_EQ(newer.attributes.max_dm_size, std::uint64_t{8} << 20);
    EXPECT_EQ(newer.behind, (std::array<std::uint8_t, 64>{}));
    EXPECT_EQ(verbs->query_device_ex(context.get(), nullptr, &newer.attributes, 8), EINVAL);
    const ibv_query_device_ex_input input{1};
    EXPECT_EQ(
        verbs->query_device_ex(context.get(), &input, &newer.attributes, sizeof newer.attributes),
        EINVAL);
}

TEST_F(DeviceTest, DescribesItsPortAlsoToProgramsThatAreOlder) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(port.lid, 1);
    std::memset(&port, 0xee, sizeof port);
    ASSERT_EQ((ibv_query_port)(context.get(), 1, reinterpret_cast<_compat_ibv_port_attr*>(&port)),
              0);
    EXPECT_EQ(port.lid, 1);
    EXPECT_EQ(port.port_cap_flags2, 0xeeee);
    EXPECT_EQ(ibv_query_port(context.get(), 0, &port), EINVAL);
    EXPECT_EQ(ibv_query_port(context.get(), 2, &port), EINVAL);
}

TEST_F(DeviceTest, HasOneGidAndRoomForMore) {
    ibv_gid gid{};
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
    EXPECT_EQ(be64toh(gid.global.subnet_prefix), 0xfe80'0000'0000'0000);
    EXPECT_EQ(gid.global.interface_id, ibv_get_device_guid(context->device));
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 15, &gid), 0);
    EXPECT_EQ(gid.global.subnet_prefix, 0U);
    EXPECT_EQ(gid.global.interface_id, 0U);
    for (const int index : {-1, 16}) {
        errno = 0;
        EXPECT_EQ(ibv_query_gid(context.get(), 1, index, &gid), -1);
        EXPECT_EQ(errno, EINVAL);
    }
    ibv_gid_entry entry{};
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &entry, 0), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_IB));
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 15, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 16, &entry, 0), EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 2, 0, &entry, 0), EINVAL);
    EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &entry, 1), EOPNOTSUPP);
}

TEST_F(DeviceTest, ShowsTheGidTableThatWasSet) {
    std::array<ibv_gid_entry, 2> set{};
    set[0].gid.raw[15] = 7;
    set[0].gid_index = 3;
    set[0].gid_type = IBV_GID_TYPE_ROCE_V2;
    set[1].gid.raw[15] = 9;
    set[1].gid_index = 20; // more than there was room for
    ASSERT_EQ(softverbs_set_gid_table(0, 1, set.data(), set.size()), 0);
    std::array<ibv_gid_entry, 3> got{};
    ASSERT_EQ(ibv_query_gid_table(context.get(), got.data(), got.size(), 0), 2);
    EXPECT_EQ(got[0].gid_index, 3U);
    EXPECT_EQ(got[0].gid.raw[15], 7);
    EXPECT_EQ(got[0].gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(got[0].port_num, 1U);
    EXPECT_EQ(got[1].gid_index, 20U);
    EXPECT_EQ(ibv_query_gid_table(context.get(), got.data(), 1, 0), -EINVAL);
    EXPECT_EQ(ibv_query_gid_table(context.get(), got.data(), 3, 1), -EOPNOTSUPP);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.gid_tbl_len, 21);
    set[0].gid_index = 1024;
    EXPECT_EQ(softverbs_set_gid_table(0, 1, set.data(), set.size()), EINVAL);
    EXPECT_EQ(softverbs_set_gid_table(0, 2, set.data(), set.size()), EINVAL);
}

TEST_F(DeviceTest, HasTheDefaultPartitionKey) {
    __be16 pkey = 0;
    ASSERT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), 0);
    EXPECT_EQ(pkey, 0xffff);
    EXPECT_EQ(ibv_get_pkey_index(context.get(), 1, pkey), 0);
    EXPECT_EQ(ibv_get_pkey_index(context.get(), 1, 0x1234), -1);
    EXPECT_EQ(ibv_query_pkey(context.get(), 1, 1, &pkey), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(DeviceTest, TakesFeaturesAwayFromContextsThatAreOpen) {
    ASSERT_EQ(
        softverbs_set_features(
            0, ~0U & ~unsigned{SOFTVERBS_FEATURE_DM} & ~unsigned{SOFTVERBS_FEATURE_CREATE_CQ_EX} &
                   ~unsigned{SOFTVERBS_FEATURE_CREATE_QP_EX} & ~unsigned{SOFTVERBS_FEATURE_MW}),
        0);
    ibv_alloc_dm_attr dm{64, 0, 0};
    EXPECT_EQ(ibv_alloc_dm(context.get(), &dm), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_cq_init_attr_ex cq_attributes{};
    cq_attributes.cqe = 1;
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(context.get(), &cq_attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    const auto cq = make_cq(1);
    auto init = qp_attributes(IBV_QPT_RC, cq.get());
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context.get(), &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(DeviceTest, FallsBackToTheBasicAttributesWithoutTheExtendedOnes) {
    ASSERT_EQ(softverbs_set_features(0, ~0U & ~unsigned{SOFTVERBS_FEATURE_QUERY_DEVICE_EX}), 0);
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attributes), 0);
    EXPECT_EQ(attributes.orig_attr.phys_port_cnt, 1);
    EXPECT_EQ(attributes.max_dm_size, 0U);
}

TEST_F(DeviceTest, HasTheAttributesThatWereSet) {
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(softverbs_get_device_attr(0, &attributes), 0);
    attributes.orig_attr.max_mr_size = 4096;
    attributes.orig_attr.phys_port_cnt = 77; // follows the ports, and not this
    ASSERT_EQ(softverbs_set_device_attr(0, &attributes), 0);
    ibv_device_attr got{};
    ASSERT_EQ(ibv_query_device(context.get(), &got), 0);
    EXPECT_EQ(got.max_mr_size, 4096U);
    EXPECT_EQ(got.phys_port_cnt, 1);
    ASSERT_EQ(softverbs_set_completion_vectors(0, 9), 0);
    EXPECT_EQ(context->num_comp_vectors, 9);
    EXPECT_EQ(softverbs_set_completion_vectors(0, 0), EINVAL);
}

TEST_F(DeviceTest, GetsMorePortsWithAddressesOfTheirOwn) {
    ASSERT_EQ(softverbs_set_port_count(0, 2), 0);
    EXPECT_EQ(attributes().phys_port_cnt, 2);
    ibv_port_attr first{};
    ibv_port_attr second{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &first), 0);
    ASSERT_EQ(ibv_query_port(context.get(), 2, &second), 0);
    EXPECT_NE(first.lid, second.lid);
    std::array<ibv_gid_entry, 4> gids{};
    ASSERT_EQ(ibv_query_gid_table(context.get(), gids.data(), gids.size(), 0), 2);
    EXPECT_EQ(gids[1].port_num, 2U);
    EXPECT_NE(gids[0].gid.global.interface_id, gids[1].gid.global.interface_id);
    EXPECT_EQ(softverbs_set_port_count(0, 0), EINVAL);
    EXPECT_EQ(softverbs_set_port_count(0, 9), EINVAL);
    ASSERT_EQ(softverbs_set_port_count(0, 1), 0);
    EXPECT_EQ(ibv_query_port(context.get(), 2, &second), EINVAL);
}

TEST_F(DeviceTest, AnswersAMessageToWhereItCameFrom) {
    ibv_wc completion{};
    completion.slid = 1;
    completion.sl = 3;
    ibv_ah_attr address{};
    ASSERT_EQ(ibv_init_ah_from_wc(context.get(), 1, &completion, nullptr, &address), 0);
    EXPECT_EQ(address.dlid, 1);
    EXPECT_EQ(address.sl, 3);
    EXPECT_EQ(address.is_global, 0);

    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6U << 28 | 0x12U << 20 | 0x34567);
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &grh.dgid), 0);
    grh.sgid = grh.dgid;
    grh.sgid.raw[15] = 99;
    completion.wc_flags = IBV_WC_GRH;
    ASSERT_EQ(ibv_init_ah_from_wc(context.get(), 1, &completion, &grh, &address), 0);
    EXPECT_EQ(address.is_global, 1);
    EXPECT_EQ(address.grh.dgid.raw[15], 99);
    EXPECT_EQ(address.grh.sgid_index, 0);
    EXPECT_EQ(address.grh.traffic_class, 0x12);
    EXPECT_EQ(address.grh.flow_label, 0x34567U);
    ibv_ah* const ah = ibv_create_ah_from_wc(pd.get(), &completion, &grh, 1);
    ASSERT_NE(ah, nullptr);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);

    grh.dgid.raw[15] = 98; // not ours
    EXPECT_EQ(ibv_init_ah_from_wc(context.get(), 1, &completion, &grh, &address), EINVAL);
    EXPECT_EQ(ibv_init_ah_from_wc(context.get(), 2, &completion, &grh, &address), EINVAL);
}

TEST(Ethernet, AnswersAMessageWithAnIpv4HeaderByTheAddressOfRoceV2) {
    ASSERT_EQ(::setenv("SOFTVERBS_LINK_LAYER", "ethernet", 1), 0);
    ASSERT_EQ(softverbs_reset("default", 1), 0);
    ASSERT_EQ(::unsetenv("SOFTVERBS_LINK_LAYER"), 0);
    const UniqueContext context(ibv_open_device(List()[0]));
    ASSERT_NE(context, nullptr);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(port.lid, 0);

    std::array<std::uint8_t, 40> header{};
    header[20] = 0x45;
    constexpr std::array<std::uint8_t, 4> from{192, 0, 2, 77};
    constexpr std::array<std::uint8_t, 4> to{192, 0, 2, 10};
    std::memcpy(header.data() + 32, from.data(), from.size());
    std::memcpy(header.data() + 36, to.data(), to.size());
    ibv_grh grh{};
    std::memcpy(&grh, header.data(), sizeof grh);
    ibv_wc completion{};
    completion.wc_flags = IBV_WC_GRH;
    ibv_ah_attr address{};
    ASSERT_EQ(ibv_init_ah_from_wc(context.get(), 1, &completion, &grh, &address), 0);
    EXPECT_EQ(address.grh.sgid_index, 3);
    EXPECT_EQ(address.grh.dgid.raw[11], 0xff);
    EXPECT_EQ(address.grh.dgid.raw[15], 77);
}

TEST_F(DeviceTest, HasNoMoreObjectsOfAKindThanItSays) {
    const UniqueCq cq = make_cq(1);
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(softverbs_get_device_attr(0, &attributes), 0);
    ibv_device_attr& most = attributes.orig_attr;
    most.max_pd = most.max_cq = 2;
    most.max_ah = most.max_mr = most.max_mw = most.max_srq = most.max_qp = 1;
    ASSERT_EQ(softverbs_set_device_attr(0, &attributes), 0);
    const auto expect_full = [](const void* object) {
        EXPECT_EQ(object, nullptr);
        EXPECT_EQ(errno, ENOMEM);
        errno = 0;
    };
    std::array<std::byte, 8> memory{};
    ibv_ah_attr address = own_address();
    ibv_srq_init_attr srq_init{};
    srq_init.attr.max_wr = 1;
    ibv_qp_init_attr_ex qp_init = qp_attributes(IBV_QPT_RC, cq.get());
    const UniquePd second(ibv_alloc_pd(context.get()));
    const UniqueCq second_cq = make_cq(1);
    const UniqueAh ah(ibv_create_ah(pd.get(), &address));
    UniqueMr mr = make_mr(memory.data(), memory.size());
    ibv_mw* const mw = ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1);
    const UniqueSrq srq(ibv_create_srq(pd.get(), &srq_init));
    const UniqueQp qp = make_qp(qp_init);
    ASSERT_TRUE(second && ah && mw != nullptr && srq);
    expect_full(ibv_alloc_pd(context.get()));
    expect_full(ibv_create_cq(context.get(), 1, nullptr, nullptr, 0));
    expect_full(ibv_create_ah(pd.get(), &address));
    expect_full(ibv_reg_mr(pd.get(), memory.data(), memory.size(), 0));
    expect_full(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
    expect_full(ibv_create_srq(pd.get(), &srq_init));
    expect_full(ibv_create_qp_ex(context.get(), &qp_init));
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    mr.reset();
    mr = make_mr(memory.data(), memory.size()); // there is room again
}

TEST_F(DeviceTest, SetsErrnoAsWellWhereAVerbReturnsIt) {
    const UniqueCq cq = make_cq(1);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    errno = 0;
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    EXPECT_EQ(errno, EBUSY);
    errno = 0;
    EXPECT_EQ(ibv_destroy_cq(cq.get()), EBUSY);
    EXPECT_EQ(errno, EBUSY);
    errno = 0;
    EXPECT_EQ(modify(qp.get(), {}, IBV_QPS_RTS, 0), EINVAL);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_resize_cq(cq.get(), 0), EINVAL);
    EXPECT_EQ(errno, EINVAL);
    expected_violations = 2;
}

TEST_F(DeviceTest, RefusesWhatItDoesNotHave) {
    const auto cq = make_cq(1);
    const auto qp = make_qp(IBV_QPT_UD, cq.get());
    const auto is_unsupported = [](const void* made) {
        const bool refused = made == nullptr && errno == EOPNOTSUPP;
        errno = 0;
        return refused;
    };
    ibv_wq_init_attr queue{};
    EXPECT_TRUE(is_unsupported(ibv_create_wq(context.get(), &queue)));
    ibv_rwq_ind_table_init_attr table{};
    EXPECT_TRUE(is_unsupported(ibv_create_rwq_ind_table(context.get(), &table)));
    ibv_flow_attr flow{};
    EXPECT_TRUE(is_unsupported(ibv_create_flow(qp.get(), &flow)));
    ibv_counters_init_attr counters{};
    EXPECT_TRUE(is_unsupported(ibv_create_counters(context.get(), &counters)));
    ibv_ece ece{};
    EXPECT_EQ(ibv_query_ece(qp.get(), &ece), EOPNOTSUPP);
    EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EOPNOTSUPP);
    EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
    EXPECT_EQ(ibv_query_qp_data_in_order(qp.get(), IBV_WR_SEND, 0), 0);
}

} // namespace
