// SPDX-License-Identifier: BSD-3-Clause
// Requests through the extended interface, ibv_wr_*.
#include <endian.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <rdmabuf/address_handle.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::expect_same;
using testing::immediate;
using testing::local;
using testing::PostingTest;
using testing::remote;
using testing::signaled;

using WorkBatchTest = PostingTest;

TEST_F(WorkBatchTest, PostsAllItsRequestsInOneCall) {
    ASSERT_TRUE(qp().extended());
    WorkBatch batch = qp().batch();
    batch.send(local, {.wr_id = 1, .flags = SendFlags::none});
    batch.send_imm(local, immediate, {.wr_id = 2});
    batch.write(local, remote, {.wr_id = 3});
    batch.write_imm(local, remote, immediate, {.wr_id = 4});
    batch.read(std::span(local).first(1), remote, {.wr_id = 5});
    batch.compare_swap(local[0], remote, 11, 22, {.wr_id = 6});
    batch.fetch_add(local[0], remote, 33, {.wr_id = 7});
    EXPECT_TRUE(standin::record().sends.empty());
    ASSERT_TRUE(batch.complete());
    const auto& sends = standin::record().sends;
    ASSERT_EQ(sends.size(), 7U);
    const std::array opcodes{IBV_WR_SEND,
                             IBV_WR_SEND_WITH_IMM,
                             IBV_WR_RDMA_WRITE,
                             IBV_WR_RDMA_WRITE_WITH_IMM,
                             IBV_WR_RDMA_READ,
                             IBV_WR_ATOMIC_CMP_AND_SWP,
                             IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (std::size_t i = 0; i < sends.size(); ++i) {
        EXPECT_TRUE(sends[i].extended);
        EXPECT_EQ(sends[i].call, sends[0].call) << i;
        EXPECT_EQ(sends[i].request.wr_id, i + 1);
        EXPECT_EQ(sends[i].request.opcode, opcodes[i]);
        EXPECT_EQ(sends[i].request.send_flags, i == 0 ? 0U : signaled);
    }
    EXPECT_EQ(sends[1].request.imm_data, htobe32(immediate));
    EXPECT_EQ(sends[3].request.imm_data, htobe32(immediate));
    expect_rdma(sends[2]);
    expect_rdma(sends[3]);
    expect_rdma(sends[4]);
    expect_same(sends[0].entries, local);
    expect_same(sends[4].entries, std::span(local).first(1));
    expect_atomic(sends[5], 11, 22);
    expect_atomic(sends[6], 33, 0);
    EXPECT_EQ(standin::record().aborted_batches, 0U);
}

TEST_F(WorkBatchTest, CarriesDatagrams) {
    QueuePairOptions datagrams = options();
    datagrams.type = QueuePairType::unreliable_datagram;
    const QueuePair sender = connect(datagrams);
    const AddressHandle ah(basics_.pd, QueuePairAddress{}, AddressHandleOptions{});
    WorkBatch batch = sender.batch();
    batch.send_to(local, {.ah = ah.native(), .queue_pair = 9, .qkey = 8}, {.wr_id = 42});
    ASSERT_TRUE(batch.complete());
    const auto& send = only(IBV_WR_SEND, signaled);
    EXPECT_EQ(send.request.wr.ud.ah, ah.native());
    EXPECT_EQ(send.request.wr.ud.remote_qpn, 9U);
    EXPECT_EQ(send.request.wr.ud.remote_qkey, 8U);
    expect_same(send.entries, local);
}

TEST_F(WorkBatchTest, ThatIsDroppedIsAborted) {
    {
        WorkBatch batch = qp().batch();
        batch.send(local);
        const WorkBatch moved = std::move(batch);
    }
    EXPECT_TRUE(standin::record().sends.empty());
    EXPECT_EQ(standin::record().aborted_batches, 1U);
}

TEST_F(WorkBatchTest, ThatFailsPostsNothing) {
    WorkBatch batch = qp().batch();
    batch.send(local);
    standin::fail_next("ibv_wr_complete", ENOMEM);
    EXPECT_EQ(batch.complete(), Status(ENOMEM));
    EXPECT_TRUE(standin::record().sends.empty());
    EXPECT_EQ(standin::record().aborted_batches, 0U);
}

TEST_F(WorkBatchTest, CopiesInlineDataFromEachEntry) {
    std::array<std::uint8_t, 5> first{1, 2, 3, 4, 5};
    std::array<std::uint8_t, 2> second{6, 7};
    const std::array<ibv_sge, 2> entries{
        ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(first.data()), .length = 5, .lkey = 0},
        ibv_sge{.addr = reinterpret_cast<std::uintptr_t>(second.data()), .length = 2, .lkey = 0}};
    WorkBatch batch = qp().batch();
    batch.send(entries, {.wr_id = 42, .flags = SendFlags::signaled | SendFlags::inline_data});
    first.fill(0);
    ASSERT_TRUE(batch.complete());
    const auto& send = only(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    EXPECT_THAT(send.inline_data, ElementsAre(ElementsAre(1, 2, 3, 4, 5), ElementsAre(6, 7)));
    EXPECT_TRUE(send.entries.empty());
}

TEST_F(WorkBatchTest, CopiesInlineDataOfOneEntry) {
    std::array<std::uint8_t, 3> bytes{1, 2, 3};
    const ibv_sge entry{
        .addr = reinterpret_cast<std::uintptr_t>(bytes.data()), .length = 3, .lkey = 0};
    WorkBatch batch = qp().batch();
    batch.write({&entry, 1}, remote, {.wr_id = 42, .flags = SendFlags::inline_data});
    bytes.fill(0);
    ASSERT_TRUE(batch.complete());
    const auto& send = only(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE);
    EXPECT_THAT(send.inline_data, ElementsAre(ElementsAre(1, 2, 3)));
    expect_rdma(send);
}

TEST_F(WorkBatchTest, LeavesMoreInlineEntriesThanAnyDeviceTakesToTheProvider) {
    const std::vector<ibv_sge> entries(65, local[0]);
    WorkBatch batch = qp().batch();
    batch.send(entries, {.wr_id = 42, .flags = SendFlags::inline_data});
    ASSERT_TRUE(batch.complete());
    EXPECT_EQ(only(IBV_WR_SEND, IBV_SEND_INLINE).entries.size(), 65U);
}

} // namespace
} // namespace rdmabuf
