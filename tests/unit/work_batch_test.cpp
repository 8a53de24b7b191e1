// SPDX-License-Identifier: BSD-3-Clause
// Batches of requests, ibv_wr_*: what is posted together or not at all, and inline data.
// posting_test.cpp has each operation.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::expect_same;
using testing::PostingTest;
using testing::record;
using testing::signaled;

using WorkBatchTest = PostingTest;

TEST_F(WorkBatchTest, PostsAllItsRequestsInOneCall) {
    ASSERT_TRUE(qp().extended());
    receive(1);
    WorkBatch batch = qp().batch();
    batch.send(local_, {.wr_id = 1, .flags = SendFlags::none});
    batch.write(local_, remote_, {.wr_id = 2});
    batch.read(std::span(local_).first(1), remote_, {.wr_id = 3});
    batch.fetch_add(word_, remote_, 33, {.wr_id = 4});
    EXPECT_TRUE(record().sends.empty());
    ASSERT_TRUE(batch.complete());
    expect_four_in_one_call();
    for (const testing::Send& send : record().sends) {
        EXPECT_TRUE(send.extended);
    }
    expect_same(record().sends.at(2).entries, std::span(local_).first(1));
    EXPECT_EQ(record().aborted_batches, 0U);
}

TEST_F(WorkBatchTest, WritesEightBytesAtomically) {
    QueuePairOptions wanted = options();
    wanted.batch_operations = IBV_QP_EX_WITH_ATOMIC_WRITE;
    const QueuePair atomic = connect(wanted);
    ASSERT_TRUE(atomic.extended());
    put_number(target - 8, 7);
    put_number(target + 8, 9);
    WorkBatch batch = atomic.batch();
    batch.atomic_write(0x1122334455667788, remote_, {.wr_id = 42});
    ASSERT_TRUE(batch.complete());
    expect_rdma(only(IBV_WR_ATOMIC_WRITE, signaled));
    sent(42, IBV_WC_ATOMIC_WRITE);
    EXPECT_EQ(number_at(target - 8), 7U);
    EXPECT_EQ(number_at(target), 0x1122334455667788U);
    EXPECT_EQ(number_at(target + 8), 9U);
}

TEST_F(WorkBatchTest, OperationThatWasNotRequestedFailsTheBatch) {
    WorkBatch batch = qp().batch();
    batch.write(local_, remote_);
    batch.atomic_write(1, remote_);
    EXPECT_EQ(batch.complete(), Status(EINVAL));
    EXPECT_TRUE(record().sends.empty());
}

TEST_F(WorkBatchTest, QueuePairHasNoBatchesWhereTheProviderLacksARequestedOperation) {
    QueuePairOptions wanted = options();
    wanted.batch_operations = IBV_QP_EX_WITH_TSO;
    EXPECT_FALSE(connect(wanted).extended());
    wanted.extended = ExtendedInterface::required;
    EXPECT_THAT(testing::error_of([&] { static_cast<void>(connect(wanted)); }),
                testing::fails_with("ibv_create_qp_ex", EOPNOTSUPP, "ibv_wr_* interface required"));
}

TEST_F(WorkBatchTest, TakesRequestsOfTheProviderBetweenItsOwn) {
    WorkBatch batch = qp().batch();
    batch.write({local_.data(), 1}, remote_, {.wr_id = 1, .flags = SendFlags::none});
    ibv_qp_ex* const native = batch.native();
    native->wr_id = 2;
    native->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(native, remote_.rkey, remote_.address + 100);
    ibv_wr_set_sge(native, local_[1].lkey, local_[1].addr, local_[1].length);
    batch.read({&word_, 1}, region_.remote().at(target), {.wr_id = 3});
    ASSERT_TRUE(batch.complete());
    ASSERT_EQ(record().sends.size(), 3U);
    EXPECT_EQ(record().sends[1].request.wr_id, 2U);
    sent(2, IBV_WC_RDMA_WRITE);
    sent(3, IBV_WC_RDMA_READ);
    EXPECT_EQ(bytes(target, total), gathered());
    EXPECT_EQ(bytes(512, 8), bytes(0, 8));
}

TEST_F(WorkBatchTest, ThatIsDroppedIsAborted) {
    {
        WorkBatch batch = qp().batch();
        batch.write(local_, remote_);
        const WorkBatch moved = std::move(batch);
    }
    EXPECT_TRUE(record().sends.empty());
    EXPECT_EQ(record().aborted_batches, 1U);
    // And does not keep another from being posted.
    WorkBatch next = qp().batch();
    next.write(std::span(local_).first(1), remote_, {.wr_id = 42});
    ASSERT_TRUE(next.complete());
    sent(42, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, total - 200), bytes(0, 100));
    EXPECT_EQ(bytes(target + 100, 200), std::vector<std::byte>(200));
}

TEST_F(WorkBatchTest, ThatFailsPostsNothing) {
    WorkBatch batch = qp().batch();
    batch.send(local_);
    testing::fail_next("ibv_wr_complete", ENOMEM);
    EXPECT_EQ(batch.complete(), Status(ENOMEM));
    EXPECT_TRUE(record().sends.empty());
    EXPECT_EQ(record().aborted_batches, 0U);
}

TEST_F(WorkBatchTest, CopiesInlineDataFromEachEntry) {
    std::array<std::uint8_t, 5> first{1, 2, 3, 4, 5};
    std::array<std::uint8_t, 2> second{6, 7};
    const std::array<ibv_sge, 2> entries{
        ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(first.data()), .length = 5, .lkey = 0},
        ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(second.data()), .length = 2, .lkey = 0}};
    receive(1);
    WorkBatch batch = qp().batch();
    batch.send(entries, {.wr_id = 42, .flags = SendFlags::signaled | SendFlags::inline_data});
    first.fill(0);
    ASSERT_TRUE(batch.complete());
    const auto& send = only(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    EXPECT_THAT(send.inline_data, ElementsAre(ElementsAre(1, 2, 3, 4, 5), ElementsAre(6, 7)));
    EXPECT_TRUE(send.entries.empty());
    EXPECT_EQ(received(1).byte_len, 7U);
    for (std::size_t i = 0; i < 7; ++i) {
        EXPECT_EQ(memory_[arrivals + i], static_cast<std::byte>(i + 1));
    }
}

TEST_F(WorkBatchTest, CopiesInlineDataOfOneEntry) {
    std::array<std::uint8_t, 3> three{1, 2, 3};
    const ibv_sge entry{
        .addr = reinterpret_cast<std::uintptr_t>(three.data()), .length = 3, .lkey = 0};
    WorkBatch batch = qp().batch();
    batch.write({&entry, 1}, remote_,
                {.wr_id = 42, .flags = SendFlags::signaled | SendFlags::inline_data});
    three.fill(0);
    ASSERT_TRUE(batch.complete());
    const auto& send = only(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    EXPECT_THAT(send.inline_data, ElementsAre(ElementsAre(1, 2, 3)));
    expect_rdma(send);
    sent(42, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, 4),
              (std::vector{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{0}}));
}

TEST_F(WorkBatchTest, LeavesMoreInlineEntriesThanAnyDeviceTakesToTheProvider) {
    const std::vector<ibv_sge> entries(65, local_[0]);
    WorkBatch batch = qp().batch();
    batch.send(entries, {.wr_id = 42, .flags = SendFlags::inline_data});
    // As entries, of which this device takes two.
    EXPECT_EQ(batch.complete(), Status(EINVAL));
    EXPECT_TRUE(record().sends.empty());
    ASSERT_EQ(record().refused_batches.size(), 1U);
    const testing::Send& send = record().refused_batches[0];
    EXPECT_EQ(send.entries.size(), 65U);
    EXPECT_TRUE(send.inline_data.empty());
    EXPECT_EQ(send.request.opcode, IBV_WR_SEND);
    EXPECT_EQ(send.request.send_flags, unsigned{IBV_SEND_INLINE});
    EXPECT_EQ(send.request.wr_id, 42U);
}

} // namespace
} // namespace rdmabuf
