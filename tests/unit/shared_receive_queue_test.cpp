// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <infiniband/tm_types.h>

#include <cstring>

#include <rdmabuf/extended_completion_queue.hpp>
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

/// A completion of a queue with tag matching.
struct TagCompletion {
    std::uint64_t wr_id;
    ibv_wc_status status;
    ibv_wc_opcode opcode;
    bool matched;
    std::uint64_t tag;
};

class TagMatchingTest : public SharedReceiveQueueTest {
  protected:
    ExtendedCompletionQueue cq_{
        basics_.context, {.fields = CompletionFields::standard | CompletionFields::tag_matching}};
    SharedReceiveQueue srq_{basics_.pd, {.max_tags = 2, .max_tag_operations = 4, .cq = &cq_}};

    [[nodiscard]] TagCompletion next() const {
        TagCompletion completion{};
        EXPECT_TRUE(testing::eventually([&] {
            const CompletionBatch batch = cq_.start_poll();
            if (!batch) {
                return false;
            }
            ibv_wc_tm_info info{};
            ibv_wc_read_tm_info(batch.native(), &info);
            completion = {batch.wr_id(), batch.status(), batch.opcode(),
                          (batch.flags() & IBV_WC_TM_MATCH) != 0, info.tag};
            return true;
        }));
        return completion;
    }
    /// Sends a message of 116 bytes: a header with the tag, and 100 bytes of data.
    void send(const QueuePair& sender, std::uint64_t tag) {
        const ibv_tmh header{IBV_TMH_EAGER, {}, 0, htobe64(tag)};
        std::memcpy(memory_.data(), &header, sizeof header);
        ASSERT_TRUE(sender.post_send(region_.sge(0, 116)));
    }
};

TEST_F(TagMatchingTest, DeliversAMessageToTheReceiveWithItsTag) {
    ASSERT_TRUE(srq_.post_recv(region_.sge(arrivals, 200), 1));
    ibv_sge buffer = region_.sge(target, 200);
    ibv_ops_wr add = make_tag_add({&buffer, 1}, 5, 0xff, 2, 3);
    ASSERT_TRUE(srq_.post(add));
    EXPECT_EQ(next().opcode, IBV_WC_TM_ADD);
    QueuePairOptions wanted = options();
    wanted.srq = &srq_;
    wanted.recv_cq = cq_;
    const QueuePair pair = connect(wanted);

    send(pair, 0xab05);
    const TagCompletion matched = next();
    EXPECT_EQ(matched.wr_id, 2U);
    EXPECT_EQ(matched.opcode, IBV_WC_TM_RECV);
    EXPECT_TRUE(matched.matched);
    EXPECT_EQ(matched.tag, 0xab05U);
    EXPECT_EQ(bytes(target, 100), bytes(16, 100));

    send(pair, 6);
    const TagCompletion unexpected = next();
    EXPECT_EQ(unexpected.wr_id, 1U);
    EXPECT_FALSE(unexpected.matched);
    EXPECT_EQ(bytes(arrivals, 116), bytes(0, 116));

    ibv_ops_wr sync = make_tag_sync(1, 4);
    ASSERT_TRUE(srq_.post(sync));
    const TagCompletion synchronised = next();
    EXPECT_EQ(synchronised.wr_id, 4U);
    EXPECT_EQ(synchronised.opcode, IBV_WC_TM_SYNC);

    ASSERT_TRUE(srq_.post_recv(region_.sge(arrivals, 200), 1));
    send(pair, 6);
    EXPECT_EQ(next().wr_id, 1U);
    ibv_ops_wr synchronising = make_tag_add({&buffer, 1}, 5, 0xff, 5, 6, 2);
    ASSERT_TRUE(srq_.post(synchronising));
    EXPECT_EQ(next().wr_id, 6U);
    send(pair, 5);
    EXPECT_TRUE(next().matched);
}

TEST_F(TagMatchingTest, RemovesAReceiveByItsHandle) {
    ibv_sge buffer = region_.sge(target, 200);
    ibv_ops_wr first = make_tag_add({&buffer, 1}, 5, 0xff, 2);
    ibv_ops_wr second = make_tag_add({&buffer, 1}, 6, 0xff, 2);
    ASSERT_TRUE(srq_.post(first));
    ASSERT_TRUE(srq_.post(second));
    EXPECT_EQ(next().opcode, IBV_WC_TM_ADD);
    EXPECT_EQ(next().opcode, IBV_WC_TM_ADD);
    EXPECT_EQ(srq_.post(first), Status(ENOMEM)); // max_tags is 2
    ibv_ops_wr remove = make_tag_remove(second.tm.handle, 7);
    ASSERT_TRUE(srq_.post(remove));
    const TagCompletion removed = next();
    EXPECT_EQ(removed.wr_id, 7U);
    EXPECT_EQ(removed.opcode, IBV_WC_TM_DEL);
    EXPECT_EQ(removed.status, IBV_WC_SUCCESS);
}

TEST_F(TagMatchingTest, RefusesWhatTheQueueOrTheDeviceDoesNotHave) {
    const SharedReceiveQueue untagged(basics_.pd);
    ibv_ops_wr sync = make_tag_sync(0);
    EXPECT_EQ(untagged.post(sync), Status(EINVAL));
    EXPECT_THAT(refusal({.max_tags = 1, .max_tag_operations = 1}),
                testing::fails_with("ibv_create_srq", EINVAL, "has either an XRC domain"));
    EXPECT_THAT(refusal({.max_tags = 1000, .max_tag_operations = 1, .cq = &cq_}),
                testing::fails_with("ibv_create_srq_ex", EINVAL,
                                    "max_tags 1000 of at most 127, max_tag_operations 1"));
}

} // namespace
} // namespace rdmabuf
