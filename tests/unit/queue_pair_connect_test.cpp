// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include "queue_pair_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::modify;
using testing::QueuePairTest;

using Connect = QueuePairTest;

TEST_F(Connect, MovesAReliableQueuePairToItsPeer) {
    QueuePairOptions wanted = options();
    wanted.service_level = 3;
    wanted.traffic_class = 106;
    wanted.hop_limit = 7;
    wanted.flow_label = 0xabcde;
    wanted.static_rate = IBV_RATE_25_GBPS;
    wanted.src_path_bits = 5;
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
    EXPECT_EQ(rtr.ah_attr.grh.flow_label, 0xabcdeU);
    EXPECT_EQ(rtr.ah_attr.static_rate, IBV_RATE_25_GBPS);
    EXPECT_EQ(rtr.ah_attr.src_path_bits, 5);

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
    use(testing::use_infiniband_device);
    PreparedQueuePair prepared = prepare(options());
    EXPECT_TRUE(prepared.address().gid.is_zero());
    const QueuePair qp = testing::connect_to_itself(std::move(prepared));
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
                fails_with(modify, EINVAL, "call activate(), and send with post_send_to()"));
}

TEST_F(Connect, ThatFailsHalfWayKeepsTheQueuePairToDestroy) {
    for (const bool to_send : {false, true}) {
        PreparedQueuePair prepared = prepare(options());
        // The second call is to RTS.
        testing::fail_call(to_send ? 2 : 1, ETIMEDOUT);
        EXPECT_THAT(error_of([&] {
                        static_cast<void>(
                            std::move(prepared).connect(peer(QueuePairType::reliable_connected)));
                    }),
                    fails_with(modify, ETIMEDOUT,
                               to_send ? "to RTS"
                                       : "to RTR: QP 119 at ::ffff:192.0.2.9, from GID index 1"));
        EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 1U);
        prepared.close();
        EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 0U);
    }
}

TEST_F(Connect, ToALidThatDoesNotAnswerNamesTheLid) {
    use(testing::use_infiniband_device);
    PreparedQueuePair prepared = prepare(options());
    testing::fail_next(modify, EINVAL);
    EXPECT_THAT(
        error_of([&] { static_cast<void>(testing::connect_to_itself(std::move(prepared))); }),
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
                fails_with(modify, EINVAL, "RC queue pairs need a peer: call connect()"));
}

using AssumeConnected = QueuePairTest;

TEST_F(AssumeConnected, BelievesTheDeviceOnly) {
    PreparedQueuePair prepared = prepare(options());
    EXPECT_THAT(error_of([&] { static_cast<void>(std::move(prepared).assume_connected()); }),
                fails_with("ibv_query_qp", EINVAL, "in state 1, not ready to send (3)"));
    // What another queue pair was connected with.
    const QueuePair other = testing::connect_to_itself(prepare(options()));
    for (const std::size_t change : {2U, 3U}) {
        auto [number, attributes, mask] = modification(change);
        ASSERT_EQ(number, other.number());
        ASSERT_EQ(ibv_modify_qp(prepared.native(), &attributes, mask), 0);
    }
    const QueuePair qp = std::move(prepared).assume_connected();
    EXPECT_TRUE(qp.post_send(ibv_sge{}));
}

using Abort = QueuePairTest;

TEST_F(Abort, ThatFailsSaysSo) {
    QueuePair qp = prepare(options()).connect(peer(QueuePairType::reliable_connected));
    testing::fail_next(modify, EIO);
    EXPECT_THAT(error_of([&] { qp.abort(); }), fails_with(modify, EIO, "to ERR"));
    testing::fail_next("ibv_query_qp", EIO);
    EXPECT_THAT(error_of([&] { static_cast<void>(qp.state()); }),
                fails_with("ibv_query_qp", EIO, ""));
}

} // namespace
} // namespace rdmabuf
