// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <string>

#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

/// The attributes for a transition according to the specification, by type of queue pair.
struct Allowed {
    ibv_qp_state from;
    ibv_qp_state to;
    int required;
    int optional;
};
using Table = std::vector<Allowed>;

Table table_of(ibv_qp_type type) {
    constexpr auto reset = IBV_QPS_RESET;
    constexpr auto init = IBV_QPS_INIT;
    constexpr auto rtr = IBV_QPS_RTR;
    constexpr auto rts = IBV_QPS_RTS;
    constexpr auto sqd = IBV_QPS_SQD;
    constexpr auto err = IBV_QPS_ERR;
    Table table = {
        {reset, reset, 0, 0}, {init, reset, 0, 0}, {init, err, 0, 0},
        {rtr, reset, 0, 0},   {rtr, err, 0, 0},    {rts, reset, 0, 0},
        {rts, err, 0, 0},     {sqd, reset, 0, 0},  {sqd, err, 0, 0},
        {err, reset, 0, 0},   {err, err, 0, 0},    {rts, sqd, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    };
    const auto add = [&table](const Table& more) {
        table.insert(table.end(), more.begin(), more.end());
    };
    if (type == IBV_QPT_UD) {
        add({
            {reset, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
            {init, init, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
            {init, rtr, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
            {rtr, rts, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
            {rts, rts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
            {sqd, rts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
            {sqd, sqd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
        });
        return table;
    }
    add({
        {reset, init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
        {init, init, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    });
    if (type == IBV_QPT_UC) {
        add({
            {init, rtr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
             IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
            {rtr, rts, IBV_QP_SQ_PSN,
             IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
            {rts, rts, 0,
             IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
            {sqd, rts, 0,
             IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
            {sqd, sqd, 0,
             IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
                 IBV_QP_PATH_MIG_STATE},
        });
        return table;
    }
    const int running = IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
                        IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER;
    add({
        {init, rtr,
         IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER,
         IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
        {rtr, rts,
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC,
         running},
        {rts, rts, 0, running},
        {sqd, rts, 0, running},
        {sqd, sqd, 0,
         IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
             IBV_QP_PATH_MIG_STATE | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
             IBV_QP_MIN_RNR_TIMER},
    });
    return table;
}

/// All bits of an attribute mask except IBV_QP_STATE.
constexpr int all_bits[] = {
    IBV_QP_CUR_STATE,
    IBV_QP_EN_SQD_ASYNC_NOTIFY,
    IBV_QP_ACCESS_FLAGS,
    IBV_QP_PKEY_INDEX,
    IBV_QP_PORT,
    IBV_QP_QKEY,
    IBV_QP_AV,
    IBV_QP_PATH_MTU,
    IBV_QP_TIMEOUT,
    IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN,
    IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_ALT_PATH,
    IBV_QP_MIN_RNR_TIMER,
    IBV_QP_SQ_PSN,
    IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_PATH_MIG_STATE,
    IBV_QP_CAP,
    IBV_QP_DEST_QPN,
    1 << 28,
};
constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                   IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

class QueuePairStates : public VerbsTest, public testing::WithParamInterface<ibv_qp_type> {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        cq = make_cq(100);
        qp = make_qp(GetParam(), cq.get());
        ASSERT_NE(qp, nullptr);
    }
    void bring_to(ibv_qp_state state) {
        ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_RESET, 0), 0);
        if (state == IBV_QPS_RESET) {
            return;
        }
        if (state == IBV_QPS_INIT) {
            to_init(qp.get());
        } else if (state == IBV_QPS_RTR) {
            to_init(qp.get());
            to_rtr(qp.get(), good_attributes());
        } else if (state == IBV_QPS_RTS) {
            connect(qp.get(), 0x123);
        } else if (state == IBV_QPS_SQD) {
            connect(qp.get(), 0x123);
            ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_SQD, 0), 0);
        } else {
            to_error(qp.get());
        }
        ASSERT_EQ(qp->state, state);
    }
    /// Executes a transition, and checks the state afterwards. Returns the result of
    /// ibv_modify_qp().
    int change(ibv_qp_state from, ibv_qp_state to, int mask) {
        bring_to(from);
        ibv_qp_attr attr = good_attributes();
        attr.cur_qp_state = from;
        const int error = modify(qp.get(), attr, to, mask);
        EXPECT_EQ(qp->state, error == 0 ? to : from);
        ibv_qp_attr now{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(qp.get(), &now, IBV_QP_STATE, &init), 0);
        EXPECT_EQ(now.qp_state, qp->state);
        return error;
    }

    UniqueCq cq;
    UniqueQp qp;
};

std::string name_of(ibv_qp_state from, ibv_qp_state to) {
    return "from state " + std::to_string(from) + " to " + std::to_string(to);
}

TEST_P(QueuePairStates, followTheTableOfTransitionsAndAttributes) {
    const Table table = table_of(GetParam());
    for (const ibv_qp_state from : states) {
        for (const ibv_qp_state to : states) {
            SCOPED_TRACE(name_of(from, to));
            const auto row = std::find_if(table.begin(), table.end(), [&](const Allowed& each) {
                return each.from == from && each.to == to;
            });
            if (row == table.end()) {
                EXPECT_EQ(change(from, to, 0), EINVAL);
                EXPECT_EQ(change(from, to, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_SQ_PSN),
                          EINVAL);
                continue;
            }
            EXPECT_EQ(change(from, to, row->required), 0);
            EXPECT_EQ(change(from, to, row->required | row->optional), 0);
            for (const int bit : all_bits) {
                SCOPED_TRACE("attribute " + std::to_string(bit));
                if ((row->required & bit) != 0) {
                    EXPECT_EQ(change(from, to, row->required & ~bit), EINVAL) << "missing";
                } else {
                    EXPECT_EQ(change(from, to, row->required | bit),
                              (row->optional & bit) != 0 ? 0 : EINVAL);
                }
            }
        }
    }
    while (next_event()) {
        // Remove the events of drained send queues.
    }
}

TEST_P(QueuePairStates, areNotThoseOfAnotherWorld) {
    bring_to(IBV_QPS_INIT);
    EXPECT_EQ(modify(qp.get(), good_attributes(), IBV_QPS_UNKNOWN, 0), EINVAL);
    EXPECT_EQ(qp->state, IBV_QPS_INIT);
}

TEST_P(QueuePairStates, haveToBeTheOneTheProgramThinksItIs) {
    bring_to(IBV_QPS_RTS);
    ibv_qp_attr attr = good_attributes();
    attr.cur_qp_state = IBV_QPS_SQD;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTS, IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTS;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTS, IBV_QP_CUR_STATE), 0);
}

TEST_P(QueuePairStates, keepTheRateLimit) {
    const auto limit = [this] {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init{};
        EXPECT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_RATE_LIMIT, &init), 0);
        return attr.rate_limit;
    };
    bring_to(IBV_QPS_RTR);
    ibv_qp_attr attr = good_attributes();
    attr.rate_limit = 1000;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTR, IBV_QP_RATE_LIMIT), EINVAL);
    bring_to(IBV_QPS_RTS);
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTS, IBV_QP_RATE_LIMIT), 0);
    EXPECT_EQ(limit(), 1000U);

    ibv_qp_rate_limit_attr burst{5000, 4096, 1024, 0};
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp.get(), &burst), 0);
    EXPECT_EQ(limit(), 5000U);
    burst.rate_limit = 0; // no limit, and so no bursts
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp.get(), &burst), EINVAL);
    ibv_qp_rate_limit_attr too_fast{200'000'000, 0, 0, 0};
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp.get(), &too_fast), EINVAL);
    ibv_qp_rate_limit_attr extended{5000, 0, 0, 1};
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp.get(), &extended), EINVAL);
    EXPECT_EQ(limit(), 5000U);
}

TEST_P(QueuePairStates, changeOnlyWithAttributesInRange) {
    bring_to(IBV_QPS_RESET);
    const int last = GetParam() == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    for (const std::uint8_t port : {std::uint8_t{0}, std::uint8_t{2}}) {
        ibv_qp_attr attr = good_attributes();
        attr.port_num = port;
        EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last),
                  EINVAL);
    }
    ibv_qp_attr attr = good_attributes();
    attr.pkey_index = 9999;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), EINVAL);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
}

TEST_P(QueuePairStates, sayOnceThatTheSendQueueIsDrained) {
    bring_to(IBV_QPS_RTS);
    ibv_qp_attr attr{};
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(modify(qp.get(), attr, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    const auto event = next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event->element.qp, qp.get());
    EXPECT_FALSE(next_event());
    ASSERT_EQ(modify(qp.get(), good_attributes(), IBV_QPS_RTS, 0), 0);
    attr.en_sqd_async_notify = 0;
    ASSERT_EQ(modify(qp.get(), attr, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    EXPECT_FALSE(next_event());
}

INSTANTIATE_TEST_SUITE_P(, QueuePairStates, testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                         [](const auto& type) {
                             return type.param == IBV_QPT_RC   ? "RC"
                                    : type.param == IBV_QPT_UC ? "UC"
                                                               : "UD";
                         });

using ReliableStates = VerbsTest;

TEST_F(ReliableStates, changeOnlyWithAttributesInRange) {
    const UniqueCq cq = make_cq(1);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_init(qp.get());
    const int to_receive = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const auto refused = [&](ibv_qp_state to, int mask, auto&& spoil) {
        ibv_qp_attr attr = good_attributes();
        spoil(attr);
        return modify(qp.get(), attr, to, mask) == EINVAL;
    };
    const auto receiving = [&](auto&& spoil) { return refused(IBV_QPS_RTR, to_receive, spoil); };
    EXPECT_TRUE(receiving([](auto& attr) { attr.ah_attr.port_num = 2; }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.ah_attr.dlid = 0; }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.ah_attr.is_global = 1; })) << "no GID";
    EXPECT_TRUE(receiving([](auto& attr) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid.raw[15] = 1;
        attr.ah_attr.grh.sgid_index = 200;
    }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.path_mtu = static_cast<ibv_mtu>(0); }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.path_mtu = static_cast<ibv_mtu>(6); }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.dest_qp_num = 1U << 24; }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.max_dest_rd_atomic = 255; }));
    EXPECT_TRUE(receiving([](auto& attr) { attr.min_rnr_timer = 32; }));
    ibv_qp_attr attr = good_attributes();
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid.raw[15] = 1;
    attr.rq_psn = 0x1000005; // the upper 8 bits are ignored
    attr.sq_psn = 0xff000007;
    to_rtr(qp.get(), attr);
    const int to_send = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC;
    const auto sending = [&](auto&& spoil) { return refused(IBV_QPS_RTS, to_send, spoil); };
    EXPECT_TRUE(sending([](auto& spoiled) { spoiled.timeout = 32; }));
    EXPECT_TRUE(sending([](auto& spoiled) { spoiled.retry_cnt = 8; }));
    EXPECT_TRUE(sending([](auto& spoiled) { spoiled.rnr_retry = 8; }));
    EXPECT_TRUE(sending([](auto& spoiled) { spoiled.max_rd_atomic = 255; }));
    to_rts(qp.get(), attr);
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init), 0);
    EXPECT_EQ(attr.rq_psn, 5U);
    EXPECT_EQ(attr.sq_psn, 7U);
}

TEST_F(ReliableStates, needAGlobalAddressOnEthernet) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    port.link_layer = IBV_LINK_LAYER_ETHERNET;
    ASSERT_EQ(softverbs_set_port_attr(0, 1, &port), 0);
    const UniqueCq cq = make_cq(1);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_init(qp.get());
    ibv_qp_attr attr = good_attributes();
    const int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTR, mask), EINVAL);
    EXPECT_EQ(ibv_create_ah(pd.get(), &attr.ah_attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid.raw[15] = 1;
    EXPECT_EQ(modify(qp.get(), attr, IBV_QPS_RTR, mask), 0);
    const UniqueAh ah(ibv_create_ah(pd.get(), &attr.ah_attr));
    EXPECT_NE(ah, nullptr);
}

using ConnectedPair = PairTest;

TEST_F(ConnectedPair, obeysThePortAlsoAfterTheDeviceGetsMorePorts) {
    start();
    ASSERT_EQ(softverbs_set_port_count(0, 8), 0);
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    port.max_msg_sz = 4;
    ASSERT_EQ(softverbs_set_port_attr(0, 1, &port), 0);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 1, 8)), 0);
    expect(a, 1, IBV_WC_LOC_LEN_ERR);
}

TEST_F(ReliableStates, areTaughtAndToldAllAttributes) {
    const UniqueCq cq = make_cq(1);
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    connect(qp.get(), 0xabcdef);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp.get(), &attr, 0xfffff, &init), 0);
    const ibv_qp_attr set = good_attributes(0xabcdef);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attr.path_mtu, set.path_mtu);
    EXPECT_EQ(attr.rq_psn, set.rq_psn);
    EXPECT_EQ(attr.sq_psn, set.sq_psn);
    EXPECT_EQ(attr.dest_qp_num, 0xabcdefU);
    EXPECT_EQ(attr.qp_access_flags, set.qp_access_flags);
    EXPECT_EQ(attr.ah_attr.dlid, set.ah_attr.dlid);
    EXPECT_EQ(attr.max_rd_atomic, 1);
    EXPECT_EQ(attr.max_dest_rd_atomic, 1);
    EXPECT_EQ(attr.min_rnr_timer, 1);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.timeout, 14);
    EXPECT_EQ(attr.retry_cnt, 7);
    EXPECT_EQ(attr.rnr_retry, 7);
    EXPECT_EQ(attr.cap.max_send_wr, 16U);
    EXPECT_EQ(init.cap.max_inline_data, 64U);
    EXPECT_EQ(init.qp_type, IBV_QPT_RC);
    EXPECT_EQ(init.send_cq, cq.get());
    EXPECT_EQ(init.recv_cq, cq.get());
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_RESET, 0), 0);
    ASSERT_EQ(ibv_query_qp(qp.get(), &attr, 0xfffff, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RESET);
    EXPECT_EQ(attr.dest_qp_num, 0U);
    EXPECT_EQ(attr.cap.max_send_wr, 16U);
}

using ConnectedStates = PairTest;

TEST_F(ConnectedStates, areShownInTheObjectOnModifyAndQueryOnly) {
    start();
    Request wrong(a, b, IBV_WR_RDMA_WRITE, 1, 8);
    wrong.sge.lkey ^= 0x5500;
    ASSERT_EQ(post(a, wrong), 0);
    expect(a, 1, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a.qp->state, IBV_QPS_RTS) << "nobody has queried it";
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(a.qp.get(), &attr, IBV_QP_CAP, &init), 0);
    EXPECT_EQ(a.qp->state, IBV_QPS_RTS) << "the state was not among what was queried";
    ASSERT_EQ(ibv_query_qp(a.qp.get(), &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(a.qp->state, IBV_QPS_ERR);
    EXPECT_EQ(modify(a.qp.get(), {}, IBV_QPS_RTS, 0), EINVAL);
    EXPECT_EQ(a.qp->state, IBV_QPS_ERR);
    ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_RESET, 0), 0);
    EXPECT_EQ(a.qp->state, IBV_QPS_RESET);
}

TEST_F(ConnectedStates, areEstablishedOnceByAMessageBeforeTheQueuePairCanSend) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
        make(type);
        const ibv_qp_attr attr = pair_attributes(a.qp->qp_num);
        to_init(b.qp.get());
        to_rtr(b.qp.get(), attr);
        connect(a.qp.get(), b.qp->qp_num);
        receive(b, 10, 8);
        receive(b, 11, 8);
        EXPECT_FALSE(next_event());
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 1, 8)), 0);
        expect(b, 10, IBV_WC_SUCCESS);
        expect_event(b, IBV_EVENT_COMM_EST);
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, 8)), 0);
        expect(b, 11, IBV_WC_SUCCESS);
        EXPECT_FALSE(next_event());
        to_rts(b.qp.get(), attr);
        EXPECT_EQ(poll(a.cq.get(), 2).size(), 2U);
        // A queue pair in the state RTS does not raise this event.
        make(type);
        join();
        receive(b, 12, 8);
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 3, 8)), 0);
        expect(b, 12, IBV_WC_SUCCESS);
        expect(a, 3, IBV_WC_SUCCESS);
        EXPECT_FALSE(next_event());
    }
}

} // namespace
