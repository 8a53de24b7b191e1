// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <string.h>

#include <array>
#include <utility>
#include <vector>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;

/// Most tests use a queue pair in the error state. It checks requests as in other states, and
/// flushes the accepted requests in order.
class Posting : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        cq = make_cq(1000);
    }
    static ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id = 0) {
        ibv_send_wr result{};
        result.wr_id = wr_id;
        result.opcode = opcode;
        return result;
    }
    static ibv_recv_wr receive(std::uint64_t wr_id) {
        ibv_recv_wr result{};
        result.wr_id = wr_id;
        return result;
    }
    /// Posts one request. If this fails, checks that bad_wr is this request.
    static int post(ibv_qp* qp, ibv_send_wr wr) {
        ibv_send_wr* bad = nullptr;
        const int error = ibv_post_send(qp, &wr, &bad);
        EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
        return error;
    }
    static int post(ibv_qp* qp, ibv_recv_wr wr) {
        ibv_recv_wr* bad = nullptr;
        const int error = ibv_post_recv(qp, &wr, &bad);
        EXPECT_EQ(bad, error == 0 ? nullptr : &wr);
        return error;
    }
    /// Checks that exactly these requests were flushed.
    void expect_flushed(const std::vector<std::uint64_t>& wr_ids, const ibv_qp* qp) {
        const auto flushed = poll(cq.get(), wr_ids.size());
        ASSERT_EQ(flushed.size(), wr_ids.size());
        for (std::size_t i = 0; i < wr_ids.size(); ++i) {
            EXPECT_EQ(flushed[i].wr_id, wr_ids[i]);
            EXPECT_EQ(flushed[i].status, IBV_WC_WR_FLUSH_ERR);
            EXPECT_EQ(flushed[i].qp_num, qp->qp_num);
        }
        EXPECT_TRUE(is_empty(cq.get()));
    }
    ibv_qp_init_attr_ex extended(ibv_qp_type type, std::uint64_t ops) {
        ibv_qp_init_attr_ex init = qp_attributes(type, cq.get());
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = ops;
        return init;
    }

    UniqueCq cq;
};

TEST_F(Posting, sendsNeedsAConnection) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND)), EINVAL);
    to_init(qp.get());
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND)), EINVAL);
    to_rtr(qp.get(), good_attributes());
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND)), EINVAL);
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_ERR, 0), 0);
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND, 4)), 0);
    expect_flushed({4}, qp.get());
}

TEST_F(Posting, receivesNeedsMoreThanReset) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    EXPECT_EQ(post(qp.get(), receive(0)), EINVAL);
    to_init(qp.get());
    EXPECT_EQ(post(qp.get(), receive(1)), 0);
    EXPECT_EQ(post(qp.get(), receive(2)), 0);
    EXPECT_TRUE(is_empty(cq.get()));
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_ERR, 0), 0);
    EXPECT_EQ(post(qp.get(), receive(3)), 0);
    expect_flushed({1, 2, 3}, qp.get());
}

TEST_F(Posting, stopsAtTheFirstBadRequestOfAList) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_error(qp.get());
    std::array<ibv_send_wr, 4> sends{};
    for (std::size_t i = 0; i < sends.size(); ++i) {
        sends[i] = request(IBV_WR_SEND, i);
        sends[i].next = i + 1 < sends.size() ? &sends[i + 1] : nullptr;
    }
    sends[2].num_sge = 3;
    ibv_send_wr* bad_send = nullptr;
    EXPECT_EQ(ibv_post_send(qp.get(), sends.data(), &bad_send), EINVAL);
    EXPECT_EQ(bad_send, &sends[2]);
    expect_flushed({0, 1}, qp.get());
    std::array<ibv_recv_wr, 3> receives{};
    for (std::size_t i = 0; i < receives.size(); ++i) {
        receives[i].wr_id = 10 + i;
        receives[i].next = i + 1 < receives.size() ? &receives[i + 1] : nullptr;
    }
    receives[1].num_sge = 3;
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(qp.get(), receives.data(), &bad_receive), EINVAL);
    EXPECT_EQ(bad_receive, &receives[1]);
    expect_flushed({10}, qp.get());
}

TEST_F(Posting, hasAsMuchRoomAsWasAskedFor) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_init(qp.get());
    std::array<ibv_recv_wr, 18> receives{};
    for (std::size_t i = 0; i < receives.size(); ++i) {
        receives[i].next = i + 1 < receives.size() ? &receives[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(qp.get(), receives.data(), &bad), ENOMEM);
    EXPECT_EQ(bad, &receives[16]);
    to_rtr(qp.get(), good_attributes());
    to_rts(qp.get(), good_attributes());
    // In the state SQD, posted requests stay in the queue.
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_SQD, 0), 0);
    for (std::uint64_t i = 0; i < 16; ++i) {
        ASSERT_EQ(post(qp.get(), request(IBV_WR_SEND, 100 + i)), 0);
    }
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND)), ENOMEM);
    EXPECT_TRUE(is_empty(cq.get()));
    ASSERT_EQ(modify(qp.get(), {}, IBV_QPS_ERR, 0), 0);
    const auto flushed = poll(cq.get(), 32);
    ASSERT_EQ(flushed.size(), 32U);
    for (std::size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(flushed[i].wr_id, 100 + i) << "sends, signalled or not, before receives";
        EXPECT_EQ(flushed[i].opcode, IBV_WC_SEND);
        EXPECT_EQ(flushed[16 + i].opcode, IBV_WC_RECV);
    }
}

TEST_F(Posting, takesOpcodesThatTheTypeHas) {
    const std::vector<ibv_wr_opcode> reads = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                              IBV_WR_ATOMIC_FETCH_AND_ADD};
    const std::vector<ibv_wr_opcode> writes = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV};
    const UniqueQp rc = make_qp(IBV_QPT_RC, cq.get());
    const UniqueQp uc = make_qp(IBV_QPT_UC, cq.get());
    const UniqueQp ud = make_qp(IBV_QPT_UD, cq.get());
    ibv_ah_attr address = own_address();
    const UniqueAh ah(ibv_create_ah(pd.get(), &address));
    for (ibv_qp* qp : {rc.get(), uc.get(), ud.get()}) {
        to_error(qp);
        const auto attempt = [&](ibv_wr_opcode opcode) {
            ibv_send_wr wr = request(opcode, 9);
            wr.wr.ud.ah = ah.get();
            return post(qp, wr);
        };
        std::vector<std::uint64_t> posted;
        for (const auto opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
            EXPECT_EQ(attempt(opcode), 0);
            posted.push_back(9);
        }
        for (const auto opcode : writes) {
            const bool has = qp->qp_type != IBV_QPT_UD;
            EXPECT_EQ(attempt(opcode), has ? 0 : EINVAL) << opcode << " of " << qp->qp_type;
            posted.resize(posted.size() + (has ? 1 : 0), 9);
        }
        for (const auto opcode : reads) {
            const bool has = qp->qp_type == IBV_QPT_RC;
            EXPECT_EQ(attempt(opcode), has ? 0 : EINVAL) << opcode << " of " << qp->qp_type;
            posted.resize(posted.size() + (has ? 1 : 0), 9);
        }
        EXPECT_EQ(attempt(IBV_WR_TSO), EINVAL);
        EXPECT_EQ(attempt(IBV_WR_DRIVER1), EINVAL);
        EXPECT_EQ(attempt(static_cast<ibv_wr_opcode>(14)), EINVAL);
        expect_flushed(posted, qp);
    }
}

TEST_F(Posting, namesWhatWasFlushed) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_error(qp.get());
    const std::pair<ibv_wr_opcode, ibv_wc_opcode> names[] = {
        {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
        {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
        {IBV_WR_SEND, IBV_WC_SEND},
        {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
        {IBV_WR_SEND_WITH_INV, IBV_WC_SEND},
        {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
        {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD},
        {IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV},
    };
    for (const auto& [posted, completed] : names) {
        ASSERT_EQ(post(qp.get(), request(posted)), 0);
        const auto flushed = poll(cq.get(), 1);
        ASSERT_EQ(flushed.size(), 1U);
        EXPECT_EQ(flushed[0].opcode, completed);
    }
}

TEST_F(Posting, takesAsMuchInlineDataAsWasAskedFor) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    to_error(qp.get());
    std::array<char, 128> data{};
    std::array<ibv_sge, 2> entries{};
    const auto attempt = [&](ibv_wr_opcode opcode, std::uint32_t first, std::uint32_t second) {
        entries[0] = {reinterpret_cast<std::uintptr_t>(data.data()), first, 0};
        entries[1] = {reinterpret_cast<std::uintptr_t>(data.data()), second, 0};
        ibv_send_wr wr = request(opcode, 1);
        wr.send_flags = IBV_SEND_INLINE;
        wr.sg_list = entries.data();
        wr.num_sge = 2;
        return post(qp.get(), wr);
    };
    EXPECT_EQ(attempt(IBV_WR_SEND, 32, 32), 0);
    EXPECT_EQ(attempt(IBV_WR_SEND, 32, 33), EINVAL);
    EXPECT_EQ(attempt(IBV_WR_SEND, 0xffffffff, 0xffffffff), EINVAL);
    EXPECT_EQ(attempt(IBV_WR_RDMA_WRITE, 1, 1), 0);
    EXPECT_EQ(attempt(IBV_WR_RDMA_READ, 1, 1), EINVAL);
    EXPECT_EQ(attempt(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0), EINVAL);
    expect_flushed({1, 1}, qp.get());
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.send_flags = IBV_SEND_IP_CSUM;
    EXPECT_EQ(post(qp.get(), wr), EINVAL);
}

TEST_F(Posting, datagramsNeedADestination) {
    const UniqueQp qp = make_qp(IBV_QPT_UD, cq.get());
    to_error(qp.get());
    EXPECT_EQ(post(qp.get(), request(IBV_WR_SEND)), EINVAL);
    ibv_ah_attr address = own_address();
    const UniqueAh ah(ibv_create_ah(pd.get(), &address));
    const UniquePd elsewhere(ibv_alloc_pd(context.get()));
    const UniqueAh foreign(ibv_create_ah(elsewhere.get(), &address));
    ibv_send_wr wr = request(IBV_WR_SEND, 3);
    wr.wr.ud.ah = foreign.get();
    EXPECT_EQ(post(qp.get(), wr), EINVAL);
    wr.wr.ud.ah = ah.get();
    wr.wr.ud.remote_qpn = 1U << 24;
    EXPECT_EQ(post(qp.get(), wr), EINVAL);
    wr.wr.ud.remote_qpn = 5;
    EXPECT_EQ(post(qp.get(), wr), 0);
    expect_flushed({3}, qp.get());
}

TEST_F(Posting, moreThanTheCompletionQueueHoldsIsTheQueuePairsEnd) {
    const UniqueCq small = make_cq(2);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, cq.get());
    init.send_cq = small.get();
    const UniqueQp sender = make_qp(init);
    const UniqueQp receiver = make_qp(IBV_QPT_RC, cq.get());
    connect(sender.get(), receiver->qp_num);
    connect(receiver.get(), sender->qp_num);
    for (std::uint64_t i = 0; i < 4; ++i) {
        ASSERT_EQ(post(receiver.get(), receive(i)), 0);
    }
    ASSERT_EQ(post(sender.get(), receive(9)), 0);
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.send_flags = IBV_SEND_SIGNALED;
    for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(post(sender.get(), wr), 0) << "in error as well";
    }
    EXPECT_TRUE(becomes_true([&] { return state_of(sender.get()) == IBV_QPS_ERR; }));
    const auto first = next_event();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->event_type, IBV_EVENT_CQ_ERR);
    const auto second = next_event();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->event_type, IBV_EVENT_QP_FATAL);
    EXPECT_FALSE(next_event());
    ibv_wc wc{};
    EXPECT_LT(ibv_poll_cq(small.get(), 1, &wc), 0);
    // The receive requests of the queue pair are flushed to the other completion queue.
    bool flushed = false;
    while (!flushed && ibv_poll_cq(cq.get(), 1, &wc) == 1) {
        flushed = wc.qp_num == sender->qp_num && wc.wr_id == 9 && wc.status == IBV_WC_WR_FLUSH_ERR;
    }
    EXPECT_TRUE(flushed);
}

using WorkRequests = Posting;

TEST_F(WorkRequests, arePostedTogether) {
    const UniqueQp qp = make_qp(extended(IBV_QPT_RC, (1U << 10) - 1));
    to_error(qp.get());
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp.get());
    ASSERT_NE(ex, nullptr);
    ibv_wr_start(ex);
    std::uint64_t number = 0;
    std::array<char, 64> data{};
    const std::array<ibv_sge, 2> entries{};
    const auto next = [&] {
        ex->wr_id = ++number;
        ex->wr_flags = IBV_SEND_SIGNALED | 1U << 31U; // an unknown flag is ignored
    };
    next();
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, 1, 2, 3);
    next();
    ibv_wr_send_imm(ex, 7);
    ibv_wr_set_inline_data(ex, data.data(), data.size());
    next();
    ibv_wr_send_inv(ex, 7);
    next();
    ibv_wr_rdma_write(ex, 1, 2);
    ibv_wr_set_sge_list(ex, 2, entries.data());
    next();
    ibv_wr_rdma_write_imm(ex, 1, 2, 3);
    const ibv_data_buf buffers[] = {{data.data(), 32}, {data.data(), 32}};
    ibv_wr_set_inline_data_list(ex, 2, buffers);
    next();
    ibv_wr_rdma_read(ex, 1, 2);
    ibv_wr_set_sge(ex, 1, 2, 3);
    next();
    ibv_wr_atomic_cmp_swp(ex, 1, 2, 3, 4);
    ibv_wr_set_sge(ex, 1, 2, 8);
    next();
    ibv_wr_atomic_fetch_add(ex, 1, 2, 3);
    ibv_wr_set_sge(ex, 1, 2, 8);
    next();
    ibv_wr_local_inv(ex, 1);
    EXPECT_TRUE(is_empty(cq.get())) << "nothing is posted before the batch is complete";
    EXPECT_EQ(ibv_wr_complete(ex), 0);
    expect_flushed({1, 2, 3, 4, 5, 6, 7, 8, 9}, qp.get());
}

TEST_F(WorkRequests, arePostedAllOrNone) {
    const UniqueQp qp = make_qp(extended(IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
    to_error(qp.get());
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp.get());
    std::array<char, 65> data{};
    const std::array<ibv_sge, 3> entries{};
    const auto batch = [&](auto spoil) {
        ibv_wr_start(ex);
        ibv_wr_send(ex);
        spoil();
        ibv_wr_send(ex);
        return ibv_wr_complete(ex);
    };
    EXPECT_EQ(batch([&] { ibv_wr_rdma_write(ex, 1, 2); }), EINVAL) << "not among its operations";
    EXPECT_EQ(batch([&] { ibv_wr_set_inline_data(ex, data.data(), 65); }), EINVAL);
    EXPECT_EQ(batch([&] { ibv_wr_set_inline_data(ex, data.data(), SIZE_MAX); }), EINVAL);
    EXPECT_EQ(batch([&] { ibv_wr_set_sge_list(ex, 3, entries.data()); }), EINVAL);
    EXPECT_EQ(batch([&] {
                  for (int i = 0; i < 16; ++i) {
                      ibv_wr_send(ex);
                  }
              }),
              ENOMEM);
    ibv_wr_start(ex);
    ibv_wr_set_sge(ex, 1, 2, 3);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL) << "data of no request";
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_abort(ex);
    EXPECT_TRUE(is_empty(cq.get()));
    ex->wr_id = 5;
    EXPECT_EQ(batch([] {}), 0) << "an error lasts as long as its batch";
    expect_flushed({5, 5}, qp.get());
}

TEST_F(WorkRequests, needAConnectionAndDatagramsADestination) {
    const UniqueQp rc = make_qp(extended(IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(rc.get());
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    const UniqueQp ud = make_qp(extended(IBV_QPT_UD, IBV_QP_EX_WITH_SEND));
    to_error(ud.get());
    ex = ibv_qp_to_qp_ex(ud.get());
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    ibv_ah_attr address = own_address();
    const UniqueAh ah(ibv_create_ah(pd.get(), &address));
    ibv_wr_start(ex);
    ex->wr_id = 8;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah.get(), 1, 2);
    EXPECT_EQ(ibv_wr_complete(ex), 0);
    expect_flushed({8}, ud.get());
}

TEST_F(WorkRequests, areForQueuePairsThatWereMadeForThem) {
    const UniqueQp qp = make_qp(IBV_QPT_RC, cq.get());
    EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
}

TEST_F(WorkRequests, ofSeveralThreadsDoNotMix) {
    cq = make_cq(10'000);
    constexpr std::uint64_t rounds = 500;
    ibv_qp_init_attr_ex init = extended(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    init.cap.max_send_wr = rounds * 9;
    const UniqueQp qp = make_qp(init);
    to_error(qp.get());
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp.get());
    const auto build = [&](std::uint64_t thread) {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            ibv_wr_start(ex);
            for (std::uint64_t part = 0; part < 3; ++part) {
                ex->wr_id = thread * 1000 + part;
                ex->wr_flags = 0;
                ibv_wr_send(ex);
                std::this_thread::yield();
            }
            EXPECT_EQ(ibv_wr_complete(ex), 0);
        }
    };
    const auto classic = [&] {
        for (std::uint64_t i = 0; i < rounds; ++i) {
            std::array<ibv_send_wr, 3> sends{};
            for (std::uint64_t part = 0; part < 3; ++part) {
                sends[part] = request(IBV_WR_SEND, 3000 + part);
                sends[part].next = part < 2 ? &sends[part + 1] : nullptr;
            }
            ibv_send_wr* bad = nullptr;
            EXPECT_EQ(ibv_post_send(qp.get(), sends.data(), &bad), 0);
        }
    };
    {
        const std::jthread one(build, 1);
        const std::jthread two(build, 2);
        const std::jthread three(classic);
    }
    const auto flushed = poll(cq.get(), rounds * 9);
    ASSERT_EQ(flushed.size(), rounds * 9);
    for (std::size_t i = 0; i < flushed.size(); ++i) {
        ASSERT_EQ(flushed[i].wr_id % 1000, i % 3);
        ASSERT_EQ(flushed[i].wr_id / 1000, flushed[i - i % 3].wr_id / 1000);
    }
}

} // namespace
