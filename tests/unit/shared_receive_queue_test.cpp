// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/shared_receive_queue.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::expect_same;
using testing::PostingTest;

class SharedReceiveQueueTest : public PostingTest {
  protected:
    auto refusal(const SharedReceiveQueueOptions& options) {
        return testing::error_of([&] { SharedReceiveQueue(basics_.pd, options); });
    }
};

TEST_F(SharedReceiveQueueTest, IsMadeAsAsked) {
    const SharedReceiveQueue srq(basics_.pd, {.max_wr = 7, .max_sge = 3});
    EXPECT_EQ(testing::record().srqs.at(0).attr.max_wr, 7U);
    EXPECT_EQ(testing::record().srqs.at(0).attr.max_sge, 3U);
    EXPECT_TRUE(testing::record().srq_limits.empty());
}

TEST_F(SharedReceiveQueueTest, ArmsItsLimit) {
    SharedReceiveQueue srq(basics_.pd, {.limit = 5});
    EXPECT_EQ(srq.attributes().srq_limit, 5U);
    srq.arm_limit(3);
    EXPECT_EQ(srq.attributes().srq_limit, 3U);
    EXPECT_THAT(testing::record().srq_limits, ElementsAre(5U, 3U));
}

TEST_F(SharedReceiveQueueTest, NamesTheLimitsOfTheDevice) {
    EXPECT_THAT(refusal({.max_wr = 513}),
                testing::fails_with("ibv_create_srq", EINVAL,
                                    "max_wr 513 of at most 512, max_sge 1 of at most 4"));
    EXPECT_THAT(refusal({.max_sge = 5}),
                testing::fails_with("ibv_create_srq", EINVAL, "max_sge 5 of at most 4"));
}

TEST_F(SharedReceiveQueueTest, TakesReceivesOneByOneAndInLists) {
    const SharedReceiveQueue srq(basics_.pd, {.max_wr = 3, .max_sge = 2});
    EXPECT_TRUE(srq.post_recv(local_, 1));
    EXPECT_TRUE(srq.post_recv(local_[0], 2));
    RecvList<2> list;
    list.recv(local_, 3);
    list.recv(local_, 4);
    ibv_recv_wr* failed = nullptr;
    EXPECT_EQ(srq.post(list, failed), Status(ENOMEM));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 4U);
    EXPECT_EQ(srq.post_recv(local_, 5), Status(ENOMEM));
    const auto& receives = testing::record().receives;
    ASSERT_EQ(receives.size(), 3U);
    EXPECT_TRUE(receives[2].shared);
    EXPECT_EQ(receives[2].request.wr_id, 3U);
    expect_same(receives[1].entries, std::span(local_).first(1));

    QueuePairOptions wanted = options();
    wanted.srq = &srq;
    const QueuePair taker = connect(wanted);
    testing::fill(std::span(memory_).subspan(target, 3), 5);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(taker.post_send(region_.sge(target + id - 1, 1)));
        EXPECT_EQ(received(id).byte_len, 1U);
        EXPECT_EQ(memory_[0], memory_[target + id - 1]);
    }
}

TEST_F(SharedReceiveQueueTest, RefusesALimitAboveItsSize) {
    SharedReceiveQueue srq(basics_.pd, {.max_wr = 8});
    EXPECT_EQ(srq.attributes().max_wr, 8U);
    EXPECT_THAT(testing::error_of([&] { srq.arm_limit(9); }),
                testing::fails_with("ibv_modify_srq", EINVAL, "limit 9"));
    EXPECT_EQ(srq.attributes().srq_limit, 0U);
}

} // namespace
} // namespace rdmabuf
