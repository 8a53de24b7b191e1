// SPDX-License-Identifier: BSD-3-Clause
#include "queue_pair_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::fails_with;
using testing::modify;
using testing::QueuePairTest;

using Prepare = QueuePairTest;

TEST_F(Prepare, MakesAQueuePairAsAsked) {
    const CompletionQueue recv_cq(basics_->context);
    QueuePairOptions wanted = options();
    wanted.recv_cq = recv_cq;
    wanted.max_send_wr = 11;
    wanted.max_recv_wr = 12;
    wanted.max_send_sge = 3;
    wanted.max_recv_sge = 4;
    wanted.max_inline_data = 64;
    wanted.signal_all = true;
    const PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(made().send_cq, basics_->cq.native());
    EXPECT_EQ(made().recv_cq, recv_cq.native());
    EXPECT_EQ(made().pd, basics_->pd.native());
    EXPECT_EQ(made().srq, nullptr);
    EXPECT_EQ(made().qp_type, IBV_QPT_RC);
    EXPECT_EQ(made().cap.max_send_wr, 11U);
    EXPECT_EQ(made().cap.max_recv_wr, 12U);
    EXPECT_EQ(made().cap.max_send_sge, 3U);
    EXPECT_EQ(made().cap.max_recv_sge, 4U);
    EXPECT_EQ(made().cap.max_inline_data, 64U);
    EXPECT_EQ(made().sq_sig_all, 1);
    EXPECT_EQ(prepared.protection_domain(), basics_->pd);
}

TEST_F(Prepare, WithASharedReceiveQueueMakesNoReceiveQueue) {
    const SharedReceiveQueue srq(basics_->pd);
    QueuePairOptions wanted = options();
    wanted.srq = &srq;
    const PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(made().srq, srq.native());
    EXPECT_EQ(made().cap.max_recv_wr, 0U);
    EXPECT_EQ(made().cap.max_recv_sge, 0U);
    EXPECT_EQ(made().sq_sig_all, 0);
}

TEST_F(Prepare, InitialisesConnectedQueuePairsWithAccess) {
    constexpr int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    QueuePairOptions wanted = options();
    wanted.pkey_index = 0;
    const PreparedQueuePair rc = prepare(wanted);
    EXPECT_EQ(modification(0).number, rc.address().number);
    EXPECT_EQ(modification(0).mask, mask);
    EXPECT_EQ(modification(0).attributes.qp_state, IBV_QPS_INIT);
    EXPECT_EQ(modification(0).attributes.port_num, 1);
    EXPECT_EQ(modification(0).attributes.qp_access_flags, static_cast<unsigned>(full_access));

    const PreparedQueuePair uc = prepare(QueuePairType::unreliable_connected);
    EXPECT_EQ(modification(1).mask, mask);
    EXPECT_EQ(modification(1).attributes.qp_access_flags,
              static_cast<unsigned>(Access::local_write | Access::remote_write));

    wanted.access = Access::remote_read;
    wanted.pkey_index = 5;
    const PreparedQueuePair limited = prepare(wanted);
    EXPECT_EQ(modification(2).attributes.qp_access_flags,
              static_cast<unsigned>(Access::remote_read));
    EXPECT_EQ(modification(2).attributes.pkey_index, 5);
}

TEST_F(Prepare, InitialisesDatagramQueuePairsWithAQkey) {
    QueuePairOptions wanted = options(QueuePairType::unreliable_datagram);
    wanted.qkey = 0x1234;
    const PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(modification(0).mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    EXPECT_EQ(modification(0).attributes.qkey, 0x1234U);
    EXPECT_EQ(prepared.address().qkey, 0x1234U);
    EXPECT_EQ(made().qp_type, IBV_QPT_UD);
}

TEST_F(Prepare, AsksForNoAtomicsThatTheDeviceHasNot) {
    testing::change_device(
        [](ibv_device_attr_ex& attributes) { attributes.orig_attr.atomic_cap = IBV_ATOMIC_NONE; });
    const PreparedQueuePair prepared = prepare(options());
    EXPECT_EQ(modification(0).attributes.qp_access_flags &
                  static_cast<unsigned>(IBV_ACCESS_REMOTE_ATOMIC),
              0U);
    EXPECT_EQ(made().send_ops_flags &
                  (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
              0U);
}

TEST_F(Prepare, HasAnAddressWithTheBestGidAndThePortsMtu) {
    const PreparedQueuePair prepared = prepare(options());
    const QueuePairAddress& address = prepared.address();
    EXPECT_EQ(address.type, QueuePairType::reliable_connected);
    EXPECT_EQ(address.number, prepared.native()->qp_num);
    EXPECT_LE(address.psn, 0xffffffU);
    EXPECT_EQ(address.qkey, 0U);
    EXPECT_EQ(to_string(address.gid), "::ffff:192.0.2.1");
    EXPECT_EQ(prepared.connection().path.gid_index, 1);
    EXPECT_EQ(address.mtu, IBV_MTU_1024);
    EXPECT_EQ(address.max_dest_rd_atomic, 16);
}

TEST_F(Prepare, TakesTheGidAndTheMtuItIsGiven) {
    QueuePairOptions wanted = options();
    wanted.gid_index = 0;
    wanted.mtu = IBV_MTU_256;
    const PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(to_string(prepared.address().gid), "fe80::2");
    EXPECT_EQ(prepared.connection().path.gid_index, 0);
    EXPECT_EQ(prepared.address().mtu, IBV_MTU_256);
}

TEST_F(Prepare, HoldsReadsAndAtomicsToTheDevicesLimits) {
    testing::change_device([](ibv_device_attr_ex& attributes) {
        attributes.orig_attr.max_qp_rd_atom = 4;
        attributes.orig_attr.max_qp_init_rd_atom = 2;
    });
    const PreparedQueuePair prepared = prepare(options());
    EXPECT_EQ(prepared.address().max_dest_rd_atomic, 4);
    EXPECT_EQ(prepared.connection().max_rd_atomic, 2);
    testing::change_device(
        [](ibv_device_attr_ex& attributes) { attributes.orig_attr.max_qp_rd_atom = 1000; });
    EXPECT_EQ(prepare(options()).address().max_dest_rd_atomic, 16);
}

TEST_F(Prepare, BeginsWithADifferentSequenceNumberEachTime) {
    // Two of 2^24 may meet, four do not.
    const std::uint32_t first = prepare(options()).address().psn;
    bool differs = false;
    for (int i = 0; i < 3; ++i) {
        differs = differs || prepare(options()).address().psn != first;
    }
    EXPECT_TRUE(differs);
}

TEST_F(Prepare, NamesEveryLimitThatIsPassed) {
    QueuePairOptions wanted = options();
    wanted.max_send_wr = 1025;
    wanted.max_recv_wr = 1026;
    wanted.max_send_sge = 9;
    wanted.max_recv_sge = 10;
    EXPECT_THAT(refusal(wanted),
                fails_with("ibv_create_qp", EINVAL,
                           "RC queue pair, max_send_wr 1025 is above the device's limit of 1024, "
                           "max_recv_wr 1026 is above the device's limit of 1024, "
                           "max_send_sge 9 is above the device's limit of 8, "
                           "max_recv_sge 10 is above the device's limit of 8"));
}

TEST_F(Prepare, NamesTheInlineDataThatNoAttributeLimits) {
    QueuePairOptions wanted = options(QueuePairType::unreliable_connected);
    wanted.max_inline_data = 100'000;
    EXPECT_THAT(refusal(wanted),
                fails_with("ibv_create_qp", EINVAL, "UC queue pair, max_inline_data 100000"));
}

TEST_F(Prepare, NeedsAPortThatIsThere) {
    QueuePairOptions wanted = options();
    wanted.port = 3;
    EXPECT_THAT(refusal(wanted), fails_with("ibv_query_port", EINVAL, "port 3 of soft0"));
}

TEST_F(Prepare, NeedsAPortThatIsActive) {
    for (const ibv_port_state state : {IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED}) {
        ibv_port_attr port = testing::roce_port();
        port.state = state;
        testing::set_port(port);
        EXPECT_THAT(refusal(options()), fails_with(modify, EINVAL,
                                                   std::string("port 1 of soft0 is ") +
                                                       ibv_port_state_str(state) + ", not active"));
        EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
    }
}

TEST_F(Prepare, NeedsAGidThatIsThere) {
    QueuePairOptions wanted = options();
    wanted.gid_index = 16;
    EXPECT_THAT(refusal(wanted), fails_with("ibv_query_gid", EINVAL,
                                            "GID index 16 of port 1, whose table has 16 entries"));
    testing::set_gids({});
    EXPECT_THAT(refusal(options()),
                fails_with("ibv_query_gid_table", EADDRNOTAVAIL, "give its network interface"));
}

// The extended interface

TEST_F(Prepare, TakesTheExtendedInterfaceWhereItIs) {
    constexpr std::uint64_t send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    constexpr std::uint64_t write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    constexpr std::uint64_t rest = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    const PreparedQueuePair rc = prepare(QueuePairType::reliable_connected);
    EXPECT_EQ(made().comp_mask,
              static_cast<std::uint32_t>(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS));
    EXPECT_EQ(made().send_ops_flags, send | write | rest);
    const PreparedQueuePair uc = prepare(QueuePairType::unreliable_connected);
    EXPECT_EQ(made().send_ops_flags, send | write);
    const PreparedQueuePair ud = prepare(QueuePairType::unreliable_datagram);
    EXPECT_EQ(made().send_ops_flags, send);
}

TEST_F(Prepare, FallsBackWhereThereIsNoExtendedInterface) {
    use([] { testing::remove_feature(SOFTVERBS_FEATURE_CREATE_QP_EX); });
    PreparedQueuePair prepared = prepare(options());
    EXPECT_EQ(made().comp_mask, 0U);
    const QueuePair qp = std::move(prepared).connect(peer(QueuePairType::reliable_connected));
    EXPECT_FALSE(qp.extended());
}

TEST_F(Prepare, FailsWhereARequiredExtendedInterfaceIsNot) {
    use([] { testing::remove_feature(SOFTVERBS_FEATURE_CREATE_QP_EX); });
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::required;
    EXPECT_THAT(refusal(wanted), fails_with("ibv_create_qp_ex", EOPNOTSUPP,
                                            "RC queue pair, with the ibv_wr_* interface required"));
    EXPECT_TRUE(testing::record().qps.empty());
}

TEST_F(Prepare, LeavesTheExtendedInterfaceAloneWhenItIsOff) {
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::off;
    PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(made().comp_mask, 0U);
    const QueuePair qp = std::move(prepared).connect(peer(QueuePairType::reliable_connected));
    EXPECT_FALSE(qp.extended());
}

} // namespace
} // namespace rdmabuf
