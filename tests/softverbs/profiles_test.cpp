// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <array>
#include <cstdint>
#include <memory>

#include "verbs_test.hpp"

// The profiles that imitate other devices: their limits, and the errors that a program gets from
// them.

namespace {

using namespace softverbs_test;

constexpr int full_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
using UniqueMw = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;

class ProfilesTest : public VerbsTest {
  protected:
    [[nodiscard]] ibv_port_attr port() const {
        ibv_port_attr result{};
        EXPECT_EQ(ibv_query_port(context.get(), 1, &result), 0);
        return result;
    }
    /// Creates a queue pair. Returns 0 or the errno.
    int create(const ibv_qp_init_attr_ex& attributes) const {
        ibv_qp_init_attr_ex init = attributes;
        errno = 0;
        const UniqueQp qp(ibv_create_qp_ex(context.get(), &init));
        return qp != nullptr ? 0 : errno;
    }
    int create_srq() const {
        ibv_srq_init_attr init{};
        init.attr = {4, 1, 0};
        errno = 0;
        const UniqueSrq srq(ibv_create_srq(pd.get(), &init));
        return srq != nullptr ? 0 : errno;
    }
    /// Connects a queue pair to itself, and moves it to the state RTS.
    void connect(ibv_qp* qp) const {
        ibv_qp_attr attr = good_attributes(qp->qp_num);
        attr.ah_attr = {};
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &attr.ah_attr.grh.dgid), 0);
        to_init(qp);
        to_rtr(qp, attr);
        to_rts(qp, attr);
    }
};

TEST_F(ProfilesTest, BnxtHasTheLimitsOfItsDriver) {
    use("bnxt");
    const ibv_device_attr device = attributes();
    EXPECT_EQ(device.vendor_id, 0x14e4U);
    EXPECT_EQ(device.max_sge, 6);
    EXPECT_EQ(device.max_sge_rd, 6);
    EXPECT_EQ(device.max_srq_sge, 6);
    EXPECT_EQ(device.max_qp_rd_atom, 126);
    EXPECT_EQ(device.max_qp_init_rd_atom, 126);
    EXPECT_EQ(device.max_cqe, 0xfffff);
    EXPECT_EQ(device.max_mr_size, std::uint64_t{1} << 39U);
    EXPECT_EQ(device.max_mcast_grp, 0);
    EXPECT_EQ(device.device_cap_flags & IBV_DEVICE_XRC, 0U);
    EXPECT_EQ(port().max_msg_sz, 1U << 30U);
    EXPECT_EQ(port().link_layer, IBV_LINK_LAYER_ETHERNET);
}

TEST_F(ProfilesTest, BnxtRefusesWhatItsProviderDoesNotHave) {
    use("bnxt");
    const UniqueCq cq = make_cq(16);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UC, cq.get());
    EXPECT_EQ(create(init), EINVAL);
    init.qp_type = IBV_QPT_RC;
    EXPECT_EQ(create(init), 0);
    init.cap.max_inline_data = 96;
    init.cap.max_send_sge = init.cap.max_recv_sge = 6;
    EXPECT_EQ(create(init), 0);
    init.cap.max_inline_data = 97;
    EXPECT_EQ(create(init), EINVAL);
    init.cap.max_inline_data = 0;
    init.cap.max_recv_sge = 7;
    EXPECT_EQ(create(init), EINVAL);
    EXPECT_EQ(create_srq(), 0);
    errno = 0;
    EXPECT_EQ(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    ibv_cq_init_attr_ex extended{};
    extended.cqe = 16;
    EXPECT_EQ(ibv_create_cq_ex(context.get(), &extended), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    const UniqueQp datagrams = make_qp(IBV_QPT_UD, cq.get());
    ibv_gid group{};
    group.raw[0] = 0xff;
    EXPECT_EQ(ibv_attach_mcast(datagrams.get(), &group, 0), EOPNOTSUPP);
}

TEST_F(ProfilesTest, Mlx5AppliesEceOptionsAtTheNextChangeOfTheQueuePair) {
    use("mlx5");
    const UniqueCq cq = make_cq(16);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    ibv_ece ece{};
    ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
    EXPECT_EQ(ece.vendor_id, 0x15b3U);
    EXPECT_EQ(ece.options, 7U);
    ece.options = 0x102;
    ASSERT_EQ(ibv_set_ece(qp.get(), &ece), 0);
    ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
    EXPECT_EQ(ece.options, 0U);
    connect(qp.get());
    ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
    EXPECT_EQ(ece.options, 2U);
}

TEST_F(ProfilesTest, Mlx5RefusesEceOptionsOfOtherVendorsAndUnknownMembers) {
    use("mlx5");
    const UniqueCq cq = make_cq(16);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    ibv_ece ece{};
    EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EOPNOTSUPP);
    ece.vendor_id = 1;
    EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
    ece = {0x15b3, 1, 1};
    EXPECT_EQ(ibv_set_ece(qp.get(), &ece), EINVAL);
    ASSERT_EQ(ibv_query_ece(qp.get(), &ece), 0);
    EXPECT_EQ(ece.options, 7U);
}

TEST_F(ProfilesTest, EfaHasNoConnectedQueuePairs) {
    use("efa");
    const UniqueCq cq = make_cq(16);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_DRIVER}) {
        EXPECT_EQ(create(qp_attributes(type, cq.get())), EOPNOTSUPP);
    }
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UD, cq.get());
    init.cap.max_inline_data = 32;
    EXPECT_EQ(create(init), 0);
    EXPECT_EQ(create_srq(), EOPNOTSUPP);
}

TEST_F(ProfilesTest, IrdmaHasTheLimitsOfItsDriver) {
    use("irdma");
    const ibv_device_attr device = attributes();
    EXPECT_EQ(device.vendor_id, 0x8086U);
    EXPECT_EQ(device.max_sge, 13);
    EXPECT_EQ(device.max_sge_rd, 13);
    EXPECT_EQ(device.max_qp_wr, 4063);
    EXPECT_EQ(device.max_qp_rd_atom, 127);
    EXPECT_EQ(device.max_qp_init_rd_atom, 255);
    EXPECT_EQ(device.max_srq, 0);
    EXPECT_EQ(device.max_srq_wr, 0);
    EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_NONE);
    EXPECT_EQ(port().max_msg_sz, 0x7fffffffU);
    EXPECT_EQ(port().link_layer, IBV_LINK_LAYER_ETHERNET);
}

TEST_F(ProfilesTest, IrdmaRefusesWhatItsProviderDoesNotHave) {
    use("irdma");
    EXPECT_EQ(create_srq(), EOPNOTSUPP);
    const UniqueCq cq = make_cq(16);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UC, cq.get());
    EXPECT_EQ(create(init), EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    init.cap.max_inline_data = 101;
    init.cap.max_send_sge = 13;
    init.cap.max_send_wr = 4063;
    EXPECT_EQ(create(init), 0);
    init.cap.max_inline_data = 102;
    EXPECT_EQ(create(init), EINVAL);
    init.cap.max_inline_data = 0;
    init.cap.max_send_wr = 4064;
    EXPECT_EQ(create(init), EINVAL);
    init.cap.max_send_wr = 16;
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    EXPECT_EQ(create(init), EOPNOTSUPP);
    const UniqueMw window(ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1));
    EXPECT_NE(window, nullptr);
}

TEST_F(ProfilesTest, IrdmaRefusesAnAtomicWhenItIsPosted) {
    use("irdma");
    const UniqueCq cq = make_cq(16);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    connect(qp.get());
    std::array<std::uint64_t, 2> memory{};
    const UniqueMr mr = make_mr(memory.data(), sizeof memory, full_access);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(memory.data()), 8, mr->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.wr.atomic.remote_addr = reinterpret_cast<std::uint64_t>(&memory[1]);
    request.wr.atomic.rkey = mr->rkey;
    ibv_send_wr* failed = nullptr;
    EXPECT_EQ(ibv_post_send(qp.get(), &request, &failed), EINVAL);
    EXPECT_EQ(failed, &request);
}

TEST_F(ProfilesTest, RxeHasTheLimitsOfItsDriver) {
    use("rxe");
    const ibv_device_attr device = attributes();
    EXPECT_EQ(device.max_qp_rd_atom, 128);
    EXPECT_EQ(device.max_qp_init_rd_atom, 128);
    EXPECT_EQ(device.max_cqe, 32767);
    EXPECT_EQ(device.max_mcast_qp_attach, 56);
    EXPECT_EQ(device.vendor_id, 0xffffffU);
    EXPECT_EQ(port().link_layer, IBV_LINK_LAYER_ETHERNET);
}

TEST_F(ProfilesTest, RxeRefusesMoreInlineDataThanItsRequestsHold) {
    use("rxe");
    const UniqueCq cq = make_cq(16);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_UC, cq.get());
    init.cap.max_inline_data = 512;
    EXPECT_EQ(create(init), 0);
    init.cap.max_inline_data = 513;
    EXPECT_EQ(create(init), EINVAL);
    EXPECT_EQ(ibv_create_cq(context.get(), 32768, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

} // namespace
