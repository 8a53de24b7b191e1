// SPDX-License-Identifier: BSD-3-Clause
// A queue slot is free when the program has polled a completion that covers it, as with providers.
// It is not free when the request completes.
#include <array>
#include <cerrno>

#include "pair_test.hpp"

namespace softverbs_test {
namespace {

constexpr std::uint32_t depth = 16;

class QueueDepth : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        make(IBV_QPT_RC, shallow);
        join();
    }
    static void shallow(ibv_qp_init_attr_ex& init) {
        init.cap.max_send_wr = init.cap.max_recv_wr = depth;
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW |
                              IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
    }
    /// Connects both sides again. Their sends complete in a queue with these attributes.
    ibv_cq_ex* connect_with(ibv_cq_init_attr_ex attributes) {
        ibv_cq_ex* const cq = ibv_create_cq_ex(context.get(), &attributes);
        EXPECT_NE(cq, nullptr);
        send_cq_.reset(ibv_cq_ex_to_cq(cq));
        make(IBV_QPT_RC, [&](ibv_qp_init_attr_ex& init) {
            shallow(init);
            init.send_cq = send_cq_.get();
        });
        join();
        return cq;
    }
    /// Posts RDMA writes until posting fails with ENOMEM. Returns the number of accepted requests.
    /// All posted requests complete before the next one is posted.
    [[nodiscard]] std::uint32_t post_until_full(unsigned flags = IBV_SEND_SIGNALED) const {
        for (std::uint32_t posted = 0; posted < 10 * depth; ++posted) {
            Request write(a, b, IBV_WR_RDMA_WRITE, posted, 8);
            write.wr.send_flags = flags;
            if (const int error = post(a, write); error != 0) {
                EXPECT_EQ(error, ENOMEM);
                return posted;
            }
        }
        return 10 * depth;
    }
    static int post_receive(const Side& at) {
        ibv_recv_wr wr{};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(at.qp.get(), &wr, &bad);
    }
    static std::uint32_t receive_until_full(const Side& at) {
        std::uint32_t posted = 0;
        while (posted < 10 * depth && post_receive(at) == 0) {
            ++posted;
        }
        EXPECT_EQ(post_receive(at), ENOMEM);
        return posted;
    }
    /// Posts sends without data. The peer receives all of them.
    void send(std::uint32_t count) const {
        for (std::uint32_t i = 0; i < count; ++i) {
            Request send(a, b, IBV_WR_SEND, i, 0);
            ASSERT_EQ(post(a, send), 0);
        }
        EXPECT_EQ(poll(a.cq.get(), count).size(), count);
    }

    UniqueCq send_cq_;
};

TEST_F(QueueDepth, AcceptsAsManySignaledRequestsAsTheSendQueueIsDeep) {
    EXPECT_EQ(post_until_full(), depth);
    for (const std::size_t polled : {1U, 5U, 16U}) {
        EXPECT_EQ(poll(a.cq.get(), polled).size(), polled);
        EXPECT_EQ(post_until_full(), polled);
    }
}

TEST_F(QueueDepth, IsNeverFreedWithoutASignal) {
    const ManualClock clock;
    EXPECT_EQ(post_until_full(0), depth);
    settle();
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(post_until_full(0), 0U);
    EXPECT_EQ(b.memory[0], a.memory[0]);
    // Resetting the queue pair frees all slots.
    restart();
    EXPECT_EQ(post_until_full(0), depth);
}

TEST_F(QueueDepth, IsFreedByASignaledRequestForThoseBeforeIt) {
    for (std::uint64_t i = 0; i < 10; ++i) {
        Request write(a, b, IBV_WR_RDMA_WRITE, i, 8);
        write.wr.send_flags = i == 7 ? unsigned{IBV_SEND_SIGNALED} : 0U;
        ASSERT_EQ(post(a, write), 0);
    }
    EXPECT_EQ(post_until_full(0), depth - 10);
    expect(a, 7, IBV_WC_SUCCESS);
    EXPECT_EQ(post_until_full(0), 8U);
}

TEST_F(QueueDepth, CountsForWorkRequestFunctionsAsWell) {
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a.qp.get());
    ASSERT_NE(ex, nullptr);
    const auto batch = [&](std::uint32_t count) {
        ibv_wr_start(ex);
        for (std::uint32_t i = 0; i < count; ++i) {
            ex->wr_id = i;
            ex->wr_flags = IBV_SEND_SIGNALED;
            ibv_wr_rdma_write(ex, b.mr->rkey, b.address());
            ibv_wr_set_sge(ex, a.mr->lkey, a.address(), 8);
        }
        return ibv_wr_complete(ex);
    };
    EXPECT_EQ(batch(depth + 1), ENOMEM);
    EXPECT_EQ(batch(depth - 4), 0);
    EXPECT_EQ(batch(5), ENOMEM);
    EXPECT_EQ(batch(4), 0);
    EXPECT_EQ(batch(1), ENOMEM);
    EXPECT_EQ(poll(a.cq.get(), 3).size(), 3U);
    EXPECT_EQ(batch(4), ENOMEM);
    EXPECT_EQ(batch(3), 0);
    EXPECT_EQ(post_until_full(), 0U);
}

TEST_F(QueueDepth, CountsBindsOfMemoryWindows) {
    ibv_mw* const mw = ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    ibv_mw_bind bind{1, 0, {a.mr.get(), a.address(), 64, IBV_ACCESS_REMOTE_READ}};
    for (std::uint32_t i = 0; i < depth; ++i) {
        ASSERT_EQ(ibv_bind_mw(a.qp.get(), mw, &bind), 0);
    }
    const std::uint32_t rkey = mw->rkey;
    EXPECT_EQ(ibv_bind_mw(a.qp.get(), mw, &bind), ENOMEM);
    EXPECT_EQ(mw->rkey, rkey);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(QueueDepth, OfReceivesIsFreedByPolling) {
    EXPECT_EQ(receive_until_full(b), depth);
    send(10);
    EXPECT_EQ(receive_until_full(b), 0U);
    EXPECT_EQ(poll(b.cq.get(), 4).size(), 4U);
    EXPECT_EQ(receive_until_full(b), 4U);
    EXPECT_EQ(poll(b.cq.get(), 6).size(), 6U);
    EXPECT_EQ(receive_until_full(b), 6U);
    restart();
    EXPECT_EQ(receive_until_full(b), depth);
}

TEST_F(QueueDepth, IsFreedByPollingWhatWasFlushed) {
    ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_ERR, 0), 0);
    EXPECT_EQ(post_until_full(0), depth);
    EXPECT_EQ(receive_until_full(a), depth);
    EXPECT_EQ(poll(a.cq.get(), depth + 3).size(), depth + 3);
    EXPECT_EQ(post_until_full(0), depth);
    EXPECT_EQ(receive_until_full(a), 3U);
}

TEST_F(QueueDepth, IsFreedByEachStepOfExtendedPolling) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 64;
    ibv_cq_ex* const cq = connect_with(attributes);
    EXPECT_EQ(post_until_full(), depth);
    ibv_poll_cq_attr none{};
    ASSERT_EQ(ibv_start_poll(cq, &none), 0);
    EXPECT_EQ(cq->wr_id, 0U);
    EXPECT_EQ(post_until_full(), 1U);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(post_until_full(), 2U);
    ibv_end_poll(cq);
    EXPECT_EQ(post_until_full(), 0U);
}

TEST_F(QueueDepth, IsFreedForTheQueuePairOfTheCompletionOnly) {
    make(IBV_QPT_RC, [this](ibv_qp_init_attr_ex& init) {
        shallow(init);
        init.send_cq = init.recv_cq = a.cq.get();
    });
    join();
    EXPECT_EQ(post_until_full(), depth);
    EXPECT_EQ(receive_until_full(b), depth);
    EXPECT_EQ(receive_until_full(a), depth);
    ASSERT_EQ(post(b, Request(b, a, IBV_WR_SEND, 77, 0)), 0);
    for (std::uint64_t i = 0; i < depth; ++i) {
        expect(a, i, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(receive_until_full(a), 0U);
    EXPECT_EQ(receive_until_full(b), 0U);
    EXPECT_EQ(poll(a.cq.get(), 2).size(), 2U);
    EXPECT_EQ(receive_until_full(a), 1U);
    EXPECT_EQ(receive_until_full(b), 0U);
    b.qp.reset(); // before the completion queue, which is the other side's
}

TEST_F(QueueDepth, OfACompletionQueueThatOverrunsIsFreedByTheLatestCompletion) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 2;
    attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    ibv_cq_ex* const cq = connect_with(attributes);
    EXPECT_EQ(post_until_full(), depth);
    EXPECT_EQ(poll(ibv_cq_ex_to_cq(cq), 1)[0].wr_id, depth - 2);
    EXPECT_EQ(post_until_full(), depth - 1);
}

class SharedQueueDepth : public QueueDepth {
  protected:
    void SetUp() override {
        QueueDepth::SetUp();
        ibv_srq_init_attr init{};
        init.attr.max_wr = depth;
        init.attr.max_sge = 1;
        srq_.reset(ibv_create_srq(pd.get(), &init));
        ASSERT_NE(srq_, nullptr);
        make(IBV_QPT_RC, [this](ibv_qp_init_attr_ex& attributes) {
            shallow(attributes);
            attributes.srq = srq_.get();
        });
        join();
    }
    [[nodiscard]] std::uint32_t fill() const {
        ibv_recv_wr wr{};
        ibv_recv_wr* bad = nullptr;
        std::uint32_t posted = 0;
        int error = 0;
        while ((error = ibv_post_srq_recv(srq_.get(), &wr, &bad)) == 0 && posted < 10 * depth) {
            ++posted;
        }
        EXPECT_EQ(error, ENOMEM);
        return posted;
    }

    UniqueSrq srq_;
};

TEST_F(SharedQueueDepth, IsFreedByPollingOfAnyQueuePair) {
    EXPECT_EQ(fill(), depth);
    send(5);
    ASSERT_EQ(post(b, Request(b, a, IBV_WR_SEND, 9, 0)), 0);
    EXPECT_EQ(poll(b.cq.get(), 1).size(), 1U); // the first receive
    EXPECT_EQ(fill(), 1U);
    EXPECT_EQ(poll(a.cq.get(), 1).size(), 1U);
    EXPECT_EQ(fill(), 1U);
    EXPECT_EQ(poll(b.cq.get(), 5).size(), 5U); // four receives, and the send
    EXPECT_EQ(fill(), 4U);
}

TEST_F(SharedQueueDepth, IsFreedByTheResetOrEndOfAQueuePair) {
    EXPECT_EQ(fill(), depth);
    send(3);
    EXPECT_EQ(fill(), 0U);
    ASSERT_EQ(modify(b.qp.get(), {}, IBV_QPS_RESET, 0), 0);
    EXPECT_TRUE(is_empty(b.cq.get()));
    EXPECT_EQ(fill(), 3U);
    restart();
    send(2);
    b.qp.reset();
    EXPECT_EQ(fill(), 2U);
}

TEST_F(SharedQueueDepth, IsKeptWhenTheQueueIsResized) {
    EXPECT_EQ(fill(), depth);
    send(4);
    ibv_srq_attr attr{};
    attr.max_wr = depth - 1;
    EXPECT_EQ(ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_MAX_WR), EINVAL);
    attr.max_wr = depth + 4;
    ASSERT_EQ(ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_MAX_WR), 0);
    EXPECT_EQ(fill(), 4U);
    EXPECT_EQ(poll(b.cq.get(), 4).size(), 4U);
    EXPECT_EQ(fill(), 4U);
}

} // namespace
} // namespace softverbs_test
