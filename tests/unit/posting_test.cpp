// SPDX-License-Identifier: BSD-3-Clause
// Requests posted one by one and in lists.
#include <endian.h>

#include <array>
#include <utility>
#include <vector>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/work_list.hpp>

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

using Post = PostingTest;

TEST_F(Post, Send) {
    EXPECT_TRUE(qp().post_send(local, {.wr_id = 42}));
    expect_same(only(IBV_WR_SEND, signaled).entries, local);
    EXPECT_FALSE(standin::record().sends[0].extended);
}

TEST_F(Post, SendOfOneEntry) {
    EXPECT_TRUE(qp().post_send(local[1], {.wr_id = 42}));
    expect_same(only(IBV_WR_SEND, signaled).entries, std::span(local).last(1));
}

TEST_F(Post, SendWithImmediateInNetworkByteOrder) {
    EXPECT_TRUE(qp().post_send_imm(local, immediate, {.wr_id = 42}));
    const auto& send = only(IBV_WR_SEND_WITH_IMM, signaled);
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_same(send.entries, local);
}

TEST_F(Post, Write) {
    EXPECT_TRUE(qp().post_write(local, remote, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_WRITE, signaled);
    expect_rdma(send);
    expect_same(send.entries, local);
}

TEST_F(Post, WriteWithImmediateInNetworkByteOrder) {
    EXPECT_TRUE(qp().post_write_imm(local[0], remote, immediate, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_WRITE_WITH_IMM, signaled);
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_rdma(send);
    expect_same(send.entries, std::span(local).first(1));
}

TEST_F(Post, Read) {
    EXPECT_TRUE(qp().post_read(local, remote, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_READ, signaled);
    expect_rdma(send);
    expect_same(send.entries, local);
}

TEST_F(Post, ToARemoteRegionOrAPlaceInIt) {
    const RemoteRegion region{.address = 0x5000, .length = 64, .rkey = 3};
    EXPECT_TRUE(qp().post_write(local[0], region));
    EXPECT_TRUE(qp().post_write(local[0], region.at(16)));
    EXPECT_EQ(standin::record().sends[0].request.wr.rdma.remote_addr, 0x5000U);
    EXPECT_EQ(standin::record().sends[1].request.wr.rdma.remote_addr, 0x5010U);
    EXPECT_EQ(standin::record().sends[1].request.wr.rdma.rkey, 3U);
}

TEST_F(Post, CompareSwap) {
    EXPECT_TRUE(qp().post_compare_swap(local[0], remote, 11, 22, {.wr_id = 42}));
    expect_atomic(only(IBV_WR_ATOMIC_CMP_AND_SWP, signaled), 11, 22);
}

TEST_F(Post, FetchAdd) {
    EXPECT_TRUE(qp().post_fetch_add(local[0], remote, 33, {.wr_id = 42}));
    expect_atomic(only(IBV_WR_ATOMIC_FETCH_AND_ADD, signaled), 33, 0);
}

TEST_F(Post, FlagsAsTheyAre) {
    constexpr SendFlags all =
        SendFlags::fence | SendFlags::signaled | SendFlags::solicited | SendFlags::inline_data;
    EXPECT_TRUE(qp().post_write(local, remote, {.wr_id = 42, .flags = all}));
    only(IBV_WR_RDMA_WRITE,
         IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
}

TEST_F(Post, UnsignaledLeavesNoCompletion) {
    EXPECT_TRUE(qp().post_send(local, {.wr_id = 42, .flags = SendFlags::none}));
    only(IBV_WR_SEND, 0);
    WorkCompletion completion{};
    EXPECT_EQ(basics_.cq.poll(completion), 0);
    EXPECT_TRUE(qp().post_send(local, {.wr_id = 43}));
    EXPECT_EQ(basics_.cq.poll(completion), 1);
    EXPECT_EQ(completion.wr_id, 43U);
}

TEST_F(Post, DatagramsGoWhereTheyAreSent) {
    QueuePairOptions datagrams = options();
    datagrams.type = QueuePairType::unreliable_datagram;
    const QueuePair sender = connect(datagrams);
    const AddressHandle ah(basics_.pd, QueuePairAddress{}, AddressHandleOptions{});
    EXPECT_TRUE(sender.post_send_to(local, {.ah = ah.native(), .queue_pair = 0x123, .qkey = 0x456},
                                    {.wr_id = 42}));
    const auto& send = only(IBV_WR_SEND, signaled);
    EXPECT_EQ(send.request.wr.ud.ah, ah.native());
    EXPECT_EQ(send.request.wr.ud.remote_qpn, 0x123U);
    EXPECT_EQ(send.request.wr.ud.remote_qkey, 0x456U);
    expect_same(send.entries, local);
}

TEST_F(Post, ReceivesBeforeAndAfterConnecting) {
    PreparedQueuePair prepared = QueuePair::prepare(basics_.pd, options());
    EXPECT_TRUE(prepared.post_recv(local, 1));
    EXPECT_TRUE(prepared.post_recv(local[0], 2));
    const QueuePair connected = testing::connect_to_itself(std::move(prepared));
    EXPECT_TRUE(connected.post_recv(local, 3));
    const auto& receives = standin::record().receives;
    ASSERT_EQ(receives.size(), 3U);
    EXPECT_EQ(receives[0].request.wr_id, 1U);
    EXPECT_EQ(receives[2].request.wr_id, 3U);
    expect_same(receives[0].entries, local);
    expect_same(receives[1].entries, std::span(local).first(1));
    EXPECT_FALSE(receives[2].shared);
}

TEST_F(Post, FailuresAreValues) {
    standin::fail_next("ibv_post_send", ENOMEM);
    EXPECT_EQ(qp().post_send(local), Status(ENOMEM));
    standin::fail_next("ibv_post_recv", EINVAL);
    EXPECT_EQ(qp().post_recv(local), Status(EINVAL));
    const std::array<ibv_sge, 3> too_many{};
    EXPECT_EQ(qp().post_write(too_many, remote), Status(EINVAL));
    EXPECT_TRUE(standin::record().sends.empty());
}

TEST_F(Post, IntoAFullQueueIsRefused) {
    for (int i = 0; i < 16; ++i) {
        ASSERT_TRUE(qp().post_send(local));
    }
    EXPECT_EQ(qp().post_send(local), Status(ENOMEM));
}

// Lists

using List = PostingTest;

TEST_F(List, GoesOutInOneCallInOrder) {
    SendList<8> list;
    list.send(local, {.wr_id = 1, .flags = SendFlags::none});
    list.send_imm(local, immediate, {.wr_id = 2});
    list.write(local, remote, {.wr_id = 3});
    list.write_imm(local, remote, immediate, {.wr_id = 4});
    list.read(local, remote, {.wr_id = 5});
    list.compare_swap(local[0], remote, 11, 22, {.wr_id = 6});
    list.fetch_add(local[0], remote, 33, {.wr_id = 7});
    EXPECT_EQ(list.size(), 7U);
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp().post(list, failed));
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
        EXPECT_EQ(sends[i].call, sends[0].call) << i;
        EXPECT_EQ(sends[i].request.wr_id, i + 1);
        EXPECT_EQ(sends[i].request.opcode, opcodes[i]);
    }
    EXPECT_EQ(sends[0].request.send_flags, 0U);
    EXPECT_EQ(sends[1].request.imm_data, htobe32(immediate));
    expect_rdma(sends[3]);
    expect_atomic(sends[5], 11, 22);
    expect_atomic(sends[6], 33, 0);
    expect_same(sends[4].entries, local);
}

TEST_F(List, CarriesDatagrams) {
    QueuePairOptions datagrams = options();
    datagrams.type = QueuePairType::unreliable_datagram;
    const QueuePair sender = connect(datagrams);
    SendList<1> list;
    list.send_to(local, {.ah = nullptr, .queue_pair = 9, .qkey = 8}, {.wr_id = 42});
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(sender.post(list, failed));
    EXPECT_EQ(only(IBV_WR_SEND, signaled).request.wr.ud.remote_qpn, 9U);
    EXPECT_EQ(only(IBV_WR_SEND, signaled).request.wr.ud.remote_qkey, 8U);
}

TEST_F(List, GoesOnAfterItWasPosted) {
    SendList<3> list;
    ibv_send_wr* failed = nullptr;
    list.send(local, {.wr_id = 1});
    ASSERT_TRUE(qp().post(list, failed));
    list.send(local, {.wr_id = 2});
    list.send(local, {.wr_id = 3});
    ASSERT_TRUE(qp().post(list, failed));
    std::vector<std::uint64_t> ids;
    for (const auto& send : standin::record().sends) {
        ids.push_back(send.request.wr_id);
    }
    EXPECT_THAT(ids, ElementsAre(1, 1, 2, 3));
}

TEST_F(List, CanBePostedAgainAndBeginAnew) {
    SendList<3> list;
    ibv_send_wr* failed = nullptr;
    list.send(local, {.wr_id = 1});
    list.send(local, {.wr_id = 2});
    ASSERT_TRUE(qp().post(list, failed));
    ASSERT_TRUE(qp().post(list, failed));
    list.clear();
    EXPECT_EQ(list.size(), 0U);
    list.send(local, {.wr_id = 3});
    ASSERT_TRUE(qp().post(list, failed));
    std::vector<std::uint64_t> ids;
    for (const auto& send : standin::record().sends) {
        ids.push_back(send.request.wr_id);
    }
    EXPECT_THAT(ids, ElementsAre(1, 2, 1, 2, 3));
}

TEST_F(List, ThatDoesNotFitSaysWhereItStopped) {
    QueuePairOptions small = options();
    small.max_send_wr = 2;
    const QueuePair full = connect(small);
    SendList<3> list;
    for (std::uint64_t id = 1; id <= 3; ++id) {
        list.send(local, {.wr_id = id});
    }
    ibv_send_wr* failed = nullptr;
    EXPECT_EQ(full.post(list, failed), Status(ENOMEM));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 3U);
    EXPECT_EQ(standin::record().sends.size(), 2U);
}

TEST_F(List, OfReceivesGoesOutInOneCallInOrder) {
    RecvList<5> list;
    for (std::uint64_t id = 1; id <= 5; ++id) {
        list.recv(local, id);
    }
    ibv_recv_wr* failed = nullptr;
    EXPECT_EQ(qp().post(list, failed), Status(ENOMEM)) << "there is room for four";
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 5U);
    const auto& receives = standin::record().receives;
    ASSERT_EQ(receives.size(), 4U);
    EXPECT_EQ(receives[3].call, receives[0].call);
    EXPECT_EQ(receives[3].request.wr_id, 4U);
    expect_same(receives[3].entries, local);
}

} // namespace
} // namespace rdmabuf
