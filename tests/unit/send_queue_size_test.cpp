// SPDX-License-Identifier: BSD-3-Clause
// The size of a send queue that SendList::size_needed() computes is enough, and not too large.
#include <cerrno>

#include <rdmabuf/work_request.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::PostingTest;

class SendQueueSizeTest : public PostingTest {
  protected:
    SendList<3> list_;

    SendQueueSizeTest() {
        list_.write(local_, remote_, {.wr_id = 1, .flags = SendFlags::none});
        list_.write(std::span(local_).first(1), remote_,
                    {.wr_id = 2, .flags = SendFlags::inline_data});
        list_.fetch_add(word_, remote_, 1, {.wr_id = 3});
    }
    [[nodiscard]] QueuePairOptions options_for(const SendQueueSize& size) const {
        QueuePairOptions wanted = options();
        wanted.max_send_wr = size.max_send_wr;
        wanted.max_send_sge = size.max_send_sge;
        wanted.max_inline_data = size.max_inline_data;
        return wanted;
    }
    Status post(const QueuePairOptions& wanted) {
        const QueuePair qp = connect(wanted);
        ibv_send_wr* failed = nullptr;
        return qp.post(list_, failed);
    }
};

TEST_F(SendQueueSizeTest, CountsRequestsEntriesInlineBytesAndCompletions) {
    EXPECT_EQ(list_.size_needed(),
              (SendQueueSize{
                  .max_send_wr = 3, .max_send_sge = 2, .max_inline_data = 100, .signaled = 1}));
    EXPECT_EQ(SendList<1>().size_needed(), SendQueueSize());
    EXPECT_EQ(list_.size_needed() + SendQueueSize({.max_send_wr = 1, .max_send_sge = 4}),
              (SendQueueSize{
                  .max_send_wr = 4, .max_send_sge = 4, .max_inline_data = 100, .signaled = 1}));
    EXPECT_EQ(3 * list_.size_needed(),
              (SendQueueSize{
                  .max_send_wr = 9, .max_send_sge = 2, .max_inline_data = 100, .signaled = 3}));
}

TEST_F(SendQueueSizeTest, IsEnoughForTheListAndNoMemberIsLargerThanNeeded) {
    const QueuePairOptions enough = options_for(list_.size_needed());
    EXPECT_TRUE(post(enough));
    QueuePairOptions small = enough;
    --small.max_send_wr;
    EXPECT_EQ(post(small), Status(ENOMEM));
    small = enough;
    --small.max_send_sge;
    EXPECT_EQ(post(small), Status(EINVAL));
    small = enough;
    --small.max_inline_data;
    EXPECT_EQ(post(small), Status(EINVAL));
}

TEST_F(SendQueueSizeTest, IsEnoughForSeveralPostsUntilTheirCompletionsArePolled) {
    const SendQueueSize size = 2 * list_.size_needed();
    const QueuePair qp = connect(options_for(size));
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp.post(list_, failed));
    ASSERT_TRUE(qp.post(list_, failed));
    EXPECT_EQ(qp.post(list_, failed), Status(ENOMEM));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 1U);
    for (std::uint32_t i = 0; i < size.signaled; ++i) {
        sent(3, IBV_WC_FETCH_ADD);
    }
    // The polled completions also free the entries of the unsignaled requests before them.
    ASSERT_TRUE(qp.post(list_, failed));
    ASSERT_TRUE(qp.post(list_, failed));
}

} // namespace
} // namespace rdmabuf
