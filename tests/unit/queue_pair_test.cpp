// SPDX-License-Identifier: BSD-3-Clause
// Making and connecting queue pairs; posting is in posting_test.cpp.
#include <optional>
#include <utility>

#include <rdmabuf/queue_pair.hpp>

#include "standin_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::fails_with;
using testing::StandinTest;

constexpr const char* modify = "ibv_modify_qp";

class QueuePairTest : public StandinTest {
  protected:
    std::optional<Basics> basics_ = Basics();

    /// For tests that need other devices.
    void use(standin::Device device) {
        basics_.reset();
        standin::reset({std::move(device)});
        basics_.emplace();
    }
    [[nodiscard]] QueuePairOptions options(
        QueuePairType type = QueuePairType::reliable_connected) const {
        return {.send_cq = basics_->cq, .recv_cq = basics_->cq, .type = type};
    }
    [[nodiscard]] PreparedQueuePair prepare(const QueuePairOptions& options) const {
        return QueuePair::prepare(basics_->pd, options);
    }
    [[nodiscard]] PreparedQueuePair prepare(QueuePairType type) const {
        return prepare(options(type));
    }
    auto refusal(const QueuePairOptions& options) {
        return error_of([&] { static_cast<void>(prepare(options)); });
    }
    static QueuePairAddress peer(QueuePairType type) {
        QueuePairAddress address{.type = type, .number = 0x77, .psn = 0x1234, .mtu = IBV_MTU_512};
        address.gid =
            Gid::from_native(standin::gid_entry("::ffff:192.0.2.9", 0, IBV_GID_TYPE_ROCE_V2).gid);
        address.lid = 9;
        address.max_dest_rd_atomic = 4;
        return address;
    }
    static const ibv_qp_init_attr_ex& made() { return standin::record().qps.back(); }
    static const standin::QpModification& modification(std::size_t i) {
        return standin::record().modifications.at(i);
    }
};

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
    standin::device().attributes.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
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

TEST_F(Prepare, NeedsNoGidWithinAnInfinibandSubnet) {
    use(standin::infiniband_device());
    const PreparedQueuePair prepared = prepare(options());
    EXPECT_TRUE(prepared.address().gid.is_zero());
    EXPECT_EQ(prepared.address().lid, 17);
}

TEST_F(Prepare, HoldsReadsAndAtomicsToTheDevicesLimits) {
    standin::device().attributes.orig_attr.max_qp_rd_atom = 4;
    standin::device().attributes.orig_attr.max_qp_init_rd_atom = 2;
    const PreparedQueuePair prepared = prepare(options());
    EXPECT_EQ(prepared.address().max_dest_rd_atomic, 4);
    EXPECT_EQ(prepared.connection().max_rd_atomic, 2);
    standin::device().attributes.orig_attr.max_qp_rd_atom = 1000;
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
    EXPECT_THAT(refusal(wanted), fails_with("ibv_query_port", EINVAL, "port 3 of standin0"));
}

TEST_F(Prepare, NeedsAGidThatIsThere) {
    QueuePairOptions wanted = options();
    wanted.gid_index = 16;
    EXPECT_THAT(refusal(wanted), fails_with("ibv_query_gid", EINVAL,
                                            "GID index 16 of port 1, whose table has 16 entries"));
    standin::device().ports[0].gids.clear();
    EXPECT_THAT(refusal(options()),
                fails_with("ibv_query_gid_table", EADDRNOTAVAIL, "give its network interface"));
}

TEST_F(Prepare, ThatCannotInitialiseLeavesNothing) {
    standin::fail_next(modify, EIO);
    EXPECT_THAT(refusal(options()), fails_with(modify, EIO, "to INIT on port 1"));
    EXPECT_EQ(standin::live(standin::Kind::qp), 0U);
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
    standin::Device device = standin::roce_device();
    device.extended_queue_pairs = false;
    use(device);
    PreparedQueuePair prepared = prepare(options());
    EXPECT_EQ(made().comp_mask, 0U);
    const QueuePair qp = std::move(prepared).connect(peer(QueuePairType::reliable_connected));
    EXPECT_FALSE(qp.extended());
}

TEST_F(Prepare, FailsWhereARequiredExtendedInterfaceIsNot) {
    standin::Device device = standin::roce_device();
    device.extended_queue_pairs = false;
    use(device);
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::required;
    EXPECT_THAT(refusal(wanted), fails_with("ibv_create_qp_ex", EOPNOTSUPP,
                                            "RC queue pair, with the ibv_wr_* interface required"));
    EXPECT_TRUE(standin::record().qps.empty());
}

TEST_F(Prepare, LeavesTheExtendedInterfaceAloneWhenItIsOff) {
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::off;
    PreparedQueuePair prepared = prepare(wanted);
    EXPECT_EQ(made().comp_mask, 0U);
    const QueuePair qp = std::move(prepared).connect(peer(QueuePairType::reliable_connected));
    EXPECT_FALSE(qp.extended());
}

// Connecting

using Connect = QueuePairTest;

TEST_F(Connect, MovesAReliableQueuePairToItsPeer) {
    QueuePairOptions wanted = options();
    wanted.service_level = 3;
    wanted.traffic_class = 106;
    wanted.hop_limit = 7;
    wanted.timeout = 12;
    wanted.retry_count = 5;
    wanted.rnr_retry = 6;
    wanted.min_rnr_timer = 20;
    PreparedQueuePair prepared = prepare(wanted);
    const std::uint32_t psn = prepared.address().psn;
    const QueuePairAddress remote = peer(QueuePairType::reliable_connected);
    const QueuePair qp = std::move(prepared).connect(remote);
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
    EXPECT_TRUE(qp.extended());
    EXPECT_EQ(qp.type(), QueuePairType::reliable_connected);

    const auto& [number, rtr, rtr_mask] = modification(1);
    EXPECT_EQ(number, qp.number());
    EXPECT_EQ(rtr_mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    EXPECT_EQ(rtr.qp_state, IBV_QPS_RTR);
    EXPECT_EQ(rtr.path_mtu, IBV_MTU_512);
    EXPECT_EQ(rtr.dest_qp_num, 0x77U);
    EXPECT_EQ(rtr.rq_psn, 0x1234U);
    EXPECT_EQ(rtr.max_dest_rd_atomic, 16);
    EXPECT_EQ(rtr.min_rnr_timer, 20);
    EXPECT_EQ(rtr.ah_attr.dlid, 9);
    EXPECT_EQ(rtr.ah_attr.sl, 3);
    EXPECT_EQ(rtr.ah_attr.port_num, 1);
    EXPECT_EQ(rtr.ah_attr.is_global, 1);
    EXPECT_EQ(Gid::from_native(rtr.ah_attr.grh.dgid), remote.gid);
    EXPECT_EQ(rtr.ah_attr.grh.sgid_index, 1);
    EXPECT_EQ(rtr.ah_attr.grh.hop_limit, 7);
    EXPECT_EQ(rtr.ah_attr.grh.traffic_class, 106);

    const ibv_qp_attr& rts = modification(2).attributes;
    EXPECT_EQ(modification(2).mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                        IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_MAX_QP_RD_ATOMIC);
    EXPECT_EQ(rts.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(rts.sq_psn, psn);
    EXPECT_EQ(rts.timeout, 12);
    EXPECT_EQ(rts.retry_cnt, 5);
    EXPECT_EQ(rts.rnr_retry, 6);
    EXPECT_EQ(rts.max_rd_atomic, 4) << "the peer serves no more";
}

TEST_F(Connect, UsesTheSmallerMtuAndNoMoreReadsThanItMay) {
    QueuePairOptions wanted = options();
    wanted.max_rd_atomic = 3;
    PreparedQueuePair prepared = prepare(wanted);
    QueuePairAddress remote = peer(QueuePairType::reliable_connected);
    remote.mtu = IBV_MTU_4096;
    const QueuePair qp = std::move(prepared).connect(remote);
    EXPECT_EQ(modification(1).attributes.path_mtu, IBV_MTU_1024);
    EXPECT_EQ(modification(2).attributes.max_rd_atomic, 3);
}

TEST_F(Connect, MovesAnUnreliableQueuePairWithoutRetries) {
    const QueuePair qp = prepare(QueuePairType::unreliable_connected)
                             .connect(peer(QueuePairType::unreliable_connected));
    EXPECT_EQ(qp.type(), QueuePairType::unreliable_connected);
    EXPECT_EQ(modification(1).mask,
              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
    EXPECT_EQ(modification(2).mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
}

TEST_F(Connect, WithoutAGidGoesByLid) {
    use(standin::infiniband_device());
    PreparedQueuePair prepared = prepare(options());
    const QueuePair qp = std::move(prepared).connect(prepared.address());
    EXPECT_EQ(modification(1).attributes.ah_attr.is_global, 0);
    EXPECT_EQ(modification(1).attributes.ah_attr.dlid, 17);
}

TEST_F(Connect, RefusesAPeerOfAnotherType) {
    PreparedQueuePair prepared = prepare(options());
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(
                        std::move(prepared).connect(peer(QueuePairType::unreliable_connected)));
                }),
                fails_with(modify, EPROTO, "this queue pair is RC and the peer's is UC"));
    // Nothing has been done to it yet.
    const QueuePair qp = std::move(prepared).connect(peer(QueuePairType::reliable_connected));
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
}

TEST_F(Connect, RefusesDatagramQueuePairs) {
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(prepare(QueuePairType::unreliable_datagram)
                                          .connect(peer(QueuePairType::unreliable_datagram)));
                }),
                fails_with(modify, EINVAL, "activate() it and post_send_to()"));
}

TEST_F(Connect, ThatFailsHalfWayKeepsTheQueuePairToDestroy) {
    for (const bool to_send : {false, true}) {
        PreparedQueuePair prepared = prepare(options());
        // The second call is to RTS.
        standin::fail_call(to_send ? 2 : 1, ETIMEDOUT);
        EXPECT_THAT(error_of([&] {
                        static_cast<void>(
                            std::move(prepared).connect(peer(QueuePairType::reliable_connected)));
                    }),
                    fails_with(modify, ETIMEDOUT,
                               to_send ? "to RTS"
                                       : "to RTR: QP 119 at ::ffff:192.0.2.9, from GID index 1"));
        EXPECT_EQ(standin::live(standin::Kind::qp), 1U);
        prepared.close();
        EXPECT_EQ(standin::live(standin::Kind::qp), 0U);
    }
}

TEST_F(Connect, ToALidThatDoesNotAnswerNamesTheLid) {
    use(standin::infiniband_device());
    PreparedQueuePair prepared = prepare(options());
    standin::fail_next(modify, EINVAL);
    EXPECT_THAT(
        error_of([&] { static_cast<void>(std::move(prepared).connect(prepared.address())); }),
        fails_with(modify, EINVAL, "at LID 17"));
}

using Activate = QueuePairTest;

TEST_F(Activate, MakesADatagramQueuePairReadyForAnybody) {
    PreparedQueuePair prepared = prepare(QueuePairType::unreliable_datagram);
    const std::uint32_t psn = prepared.address().psn;
    const QueuePair qp = std::move(prepared).activate();
    EXPECT_EQ(qp.type(), QueuePairType::unreliable_datagram);
    EXPECT_EQ(modification(1).mask, IBV_QP_STATE);
    EXPECT_EQ(modification(1).attributes.qp_state, IBV_QPS_RTR);
    EXPECT_EQ(modification(2).mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
    EXPECT_EQ(modification(2).attributes.sq_psn, psn);
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
}

TEST_F(Activate, RefusesConnectedQueuePairs) {
    EXPECT_THAT(error_of([&] { static_cast<void>(prepare(options()).activate()); }),
                fails_with(modify, EINVAL, "RC queue pairs need a peer: connect() it"));
}

TEST_F(Activate, ThatFailsHalfWayLeavesNothing) {
    for (const unsigned call : {1U, 2U}) {
        PreparedQueuePair prepared = prepare(QueuePairType::unreliable_datagram);
        standin::fail_call(call, EIO);
        EXPECT_THAT(error_of([&] { static_cast<void>(std::move(prepared).activate()); }),
                    fails_with(modify, EIO, call == 1 ? "to RTR" : "to RTS"));
    }
}

using AssumeConnected = QueuePairTest;

TEST_F(AssumeConnected, BelievesTheDeviceOnly) {
    PreparedQueuePair prepared = prepare(options());
    EXPECT_THAT(error_of([&] { static_cast<void>(std::move(prepared).assume_connected()); }),
                fails_with("ibv_query_qp", EINVAL, "in state 1, not ready to send (3)"));
    ibv_qp_attr attributes{};
    for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        attributes.qp_state = state;
        ASSERT_EQ(ibv_modify_qp(prepared.native(), &attributes, IBV_QP_STATE), 0);
    }
    const QueuePair qp = std::move(prepared).assume_connected();
    EXPECT_TRUE(qp.post_send(ibv_sge{}));
}

using Abort = QueuePairTest;

TEST_F(Abort, FlushesWhatIsPostedFromThenOn) {
    QueuePair qp = prepare(options()).connect(peer(QueuePairType::reliable_connected));
    qp.abort();
    EXPECT_EQ(modification(3).mask, IBV_QP_STATE);
    EXPECT_EQ(modification(3).attributes.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(qp.state(), IBV_QPS_ERR);
    ASSERT_TRUE(qp.post_send(ibv_sge{}, {.wr_id = 7}));
    WorkCompletion completion{};
    ASSERT_EQ(basics_->cq.poll(completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(completion.wr_id, 7U);
    EXPECT_EQ(completion.qp_num, qp.number());
}

TEST_F(Abort, ThatFailsSaysSo) {
    QueuePair qp = prepare(options()).connect(peer(QueuePairType::reliable_connected));
    standin::fail_next(modify, EIO);
    EXPECT_THAT(error_of([&] { qp.abort(); }), fails_with(modify, EIO, "to ERR"));
    standin::fail_next("ibv_query_qp", EIO);
    EXPECT_THAT(error_of([&] { static_cast<void>(qp.state()); }),
                fails_with("ibv_query_qp", EIO, ""));
}

TEST_F(Abort, AndCloseCanBeRepeated) {
    QueuePair qp = prepare(options()).connect(peer(QueuePairType::reliable_connected));
    standin::fail_next("ibv_destroy_qp", EBUSY);
    EXPECT_THAT(error_of([&] { qp.close(); }), fails_with("ibv_destroy_qp", EBUSY, ""));
    EXPECT_EQ(qp.state(), IBV_QPS_RTS);
    qp.close();
    EXPECT_EQ(qp.native(), nullptr);
}

} // namespace
} // namespace rdmabuf
