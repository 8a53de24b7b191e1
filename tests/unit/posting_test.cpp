// SPDX-License-Identifier: BSD-3-Clause
// Requests posted one by one and in lists: what the device is asked, and what comes of it.
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
using testing::PostingTest;
using testing::record;
using testing::signaled;

using Post = PostingTest;

TEST_F(Post, Send) {
    receive(1);
    EXPECT_TRUE(qp().post_send(local_, {.wr_id = 42}));
    expect_same(only(IBV_WR_SEND, signaled).entries, local_);
    EXPECT_FALSE(record().sends[0].extended);
    sent(42, IBV_WC_SEND);
    EXPECT_EQ(received(1).byte_len, total);
    EXPECT_EQ(bytes(arrivals, total), gathered());
}

TEST_F(Post, SendOfOneEntry) {
    receive(1);
    EXPECT_TRUE(qp().post_send(local_[1], {.wr_id = 42}));
    expect_same(only(IBV_WR_SEND, signaled).entries, std::span(local_).last(1));
    sent(42, IBV_WC_SEND);
    EXPECT_EQ(received(1).byte_len, 200U);
    EXPECT_EQ(bytes(arrivals, 200), bytes(256, 200));
}

TEST_F(Post, SendWithImmediateInNetworkByteOrder) {
    receive(1);
    EXPECT_TRUE(qp().post_send_imm(local_, immediate, {.wr_id = 42}));
    const auto& send = only(IBV_WR_SEND_WITH_IMM, signaled);
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_same(send.entries, local_);
    EXPECT_EQ(received(1).imm_data, htobe32(immediate));
    EXPECT_EQ(bytes(arrivals, total), gathered());
}

TEST_F(Post, WriteOfZeroBytesNeedsNoRkey) {
    EXPECT_TRUE(qp().post_write(std::span<const ibv_sge>(), {}, {.wr_id = 42}));
    sent(42, IBV_WC_RDMA_WRITE);
}

TEST_F(Post, Write) {
    EXPECT_TRUE(qp().post_write(local_, remote_, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_WRITE, signaled);
    expect_rdma(send);
    expect_same(send.entries, local_);
    sent(42, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, total), gathered());
}

TEST_F(Post, WriteWithImmediateInNetworkByteOrder) {
    receive(1);
    EXPECT_TRUE(qp().post_write_imm(local_[0], remote_, immediate, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_WRITE_WITH_IMM, signaled);
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_rdma(send);
    expect_same(send.entries, std::span(local_).first(1));
    EXPECT_EQ(received(1, IBV_WC_RECV_RDMA_WITH_IMM).imm_data, htobe32(immediate));
    EXPECT_EQ(bytes(target, 100), bytes(0, 100));
}

TEST_F(Post, Read) {
    testing::fill(std::span(memory_).subspan(target, total), 2);
    EXPECT_TRUE(qp().post_read(local_, remote_, {.wr_id = 42}));
    const auto& send = only(IBV_WR_RDMA_READ, signaled);
    expect_rdma(send);
    expect_same(send.entries, local_);
    sent(42, IBV_WC_RDMA_READ);
    EXPECT_EQ(gathered(), bytes(target, total));
}

TEST_F(Post, ToARemoteRegionOrAPlaceInIt) {
    const RemoteRegion region = region_.remote().slice(target, 512);
    EXPECT_TRUE(qp().post_write(local_[0], region, {.wr_id = 1}));
    EXPECT_TRUE(qp().post_write(local_[0], region.at(160), {.wr_id = 2}));
    EXPECT_EQ(record().sends[0].request.wr.rdma.remote_addr, region.address);
    EXPECT_EQ(record().sends[1].request.wr.rdma.remote_addr, region.address + 160);
    EXPECT_EQ(record().sends[1].request.wr.rdma.rkey, region.rkey);
    sent(1, IBV_WC_RDMA_WRITE);
    sent(2, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, 100), bytes(0, 100));
    EXPECT_EQ(bytes(target + 160, 100), bytes(0, 100));
}

TEST_F(Post, CompareSwap) {
    put_number(target, 11);
    EXPECT_TRUE(qp().post_compare_swap(word_, remote_, 11, 22, {.wr_id = 42}));
    expect_atomic(only(IBV_WR_ATOMIC_CMP_AND_SWP, signaled), 11, 22);
    sent(42, IBV_WC_COMP_SWAP);
    EXPECT_EQ(number_at(512), 11U);
    EXPECT_EQ(number_at(target), 22U);
}

TEST_F(Post, FetchAdd) {
    put_number(target, 100);
    EXPECT_TRUE(qp().post_fetch_add(word_, remote_, 33, {.wr_id = 42}));
    expect_atomic(only(IBV_WR_ATOMIC_FETCH_AND_ADD, signaled), 33, 0);
    sent(42, IBV_WC_FETCH_ADD);
    EXPECT_EQ(number_at(512), 100U);
    EXPECT_EQ(number_at(target), 133U);
}

TEST_F(Post, FlagsAsTheyAre) {
    constexpr SendFlags all =
        SendFlags::fence | SendFlags::signaled | SendFlags::solicited | SendFlags::inline_data;
    const std::vector<std::byte> posted = gathered();
    EXPECT_TRUE(qp().post_write(local_, remote_, {.wr_id = 42, .flags = all}));
    testing::fill(std::span(memory_).first(target), 2);
    only(IBV_WR_RDMA_WRITE,
         IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
    sent(42, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, total), posted);
}

TEST_F(Post, DatagramsGoWhereTheyAreSent) {
    const QueuePair sender = connect(datagrams());
    const QueuePair receiver = connect(datagrams());
    const AddressHandle ah(basics_.pd, testing::own_address(basics_.context),
                           AddressHandleOptions{});
    ASSERT_TRUE(receiver.post_recv(arrival_, 1));
    EXPECT_TRUE(sender.post_send_to(
        local_, {.ah = ah.native(), .queue_pair = receiver.number(), .qkey = 0x456},
        {.wr_id = 42}));
    const auto& send = only(IBV_WR_SEND, signaled);
    EXPECT_EQ(send.request.wr.ud.ah, ah.native());
    EXPECT_EQ(send.request.wr.ud.remote_qpn, receiver.number());
    EXPECT_EQ(send.request.wr.ud.remote_qkey, 0x456U);
    expect_same(send.entries, local_);
    const WorkCompletion arrived = received(1);
    EXPECT_EQ(arrived.qp_num, receiver.number());
    EXPECT_EQ(arrived.src_qp, sender.number());
    EXPECT_EQ(bytes(arrivals + 40, total), gathered());
}

TEST_F(Post, DatagramsWithImmediateInNetworkByteOrder) {
    const QueuePair sender = connect(datagrams());
    const QueuePair receiver = connect(datagrams());
    const AddressHandle ah(basics_.pd, testing::own_address(basics_.context),
                           AddressHandleOptions{});
    const Destination to{.ah = ah.native(), .queue_pair = receiver.number(), .qkey = 0x456};
    ASSERT_TRUE(receiver.post_recv(arrival_, 1));
    ASSERT_TRUE(receiver.post_recv(arrival_, 2));
    EXPECT_TRUE(sender.post_send_imm_to(local_, to, immediate, {.wr_id = 42}));
    const auto& send = only(IBV_WR_SEND_WITH_IMM, signaled);
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    EXPECT_EQ(send.request.wr.ud.ah, ah.native());
    EXPECT_EQ(send.request.wr.ud.remote_qpn, receiver.number());
    EXPECT_EQ(send.request.wr.ud.remote_qkey, 0x456U);
    const WorkCompletion first = received(1);
    EXPECT_EQ(first.imm_data, htobe32(immediate));
    EXPECT_NE(first.wc_flags & IBV_WC_WITH_IMM, 0U);
    EXPECT_EQ(bytes(arrivals + 40, total), gathered());

    SendList<1> list;
    list.send_imm_to(local_, to, immediate + 1, {.wr_id = 43});
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(sender.post(list, failed));
    EXPECT_EQ(received(2).imm_data, htobe32(immediate + 1));
}

TEST_F(Post, ReceivesBeforeAndAfterConnecting) {
    PreparedQueuePair prepared = QueuePair::prepare(basics_.pd, options());
    const std::array entries{region_.sge(arrivals, 100), region_.sge(arrivals + 200, 100)};
    EXPECT_TRUE(prepared.post_recv(entries, 1));
    EXPECT_TRUE(prepared.post_recv(entries[0], 2));
    const QueuePair connected = testing::connect_to_itself(std::move(prepared));
    EXPECT_TRUE(connected.post_recv(entries, 3));
    const auto& receives = record().receives;
    ASSERT_EQ(receives.size(), 3U);
    EXPECT_EQ(receives[0].request.wr_id, 1U);
    EXPECT_EQ(receives[2].request.wr_id, 3U);
    expect_same(receives[0].entries, entries);
    expect_same(receives[1].entries, std::span(entries).first(1));
    EXPECT_FALSE(receives[2].shared);
    for (std::uint64_t id = 1; id <= 3; ++id) {
        ASSERT_TRUE(connected.post_send(region_.sge(0, id == 2 ? 100 : 180)));
        EXPECT_EQ(received(id).byte_len, id == 2 ? 100U : 180U);
    }
    EXPECT_EQ(bytes(arrivals, 100), bytes(0, 100));
    EXPECT_EQ(bytes(arrivals + 200, 80), bytes(100, 80));
}

TEST_F(Post, FailuresAreValues) {
    testing::fail_next("ibv_post_send", ENOMEM);
    EXPECT_EQ(qp().post_send(local_), Status(ENOMEM));
    testing::fail_next("ibv_post_recv", EINVAL);
    EXPECT_EQ(qp().post_recv(local_), Status(EINVAL));
    const std::array<ibv_sge, 3> too_many{};
    EXPECT_EQ(qp().post_write(too_many, remote_), Status(EINVAL));
    EXPECT_TRUE(record().sends.empty());
}

// Lists

using List = PostingTest;

TEST_F(List, GoesOutInOneCallInOrder) {
    receive(3);
    SendList<8> list;
    list.send(local_, {.wr_id = 1, .flags = SendFlags::none});
    list.send_imm(local_, immediate, {.wr_id = 2});
    list.write(local_, remote_, {.wr_id = 3});
    list.write_imm(local_, remote_, immediate, {.wr_id = 4});
    list.read(local_, remote_, {.wr_id = 5});
    list.compare_swap(word_, remote_, 11, 22, {.wr_id = 6});
    list.fetch_add(word_, remote_, 33, {.wr_id = 7});
    EXPECT_EQ(list.size(), 7U);
    const std::vector<std::byte> posted = gathered();
    const std::uint64_t first = number_at(0);
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp().post(list, failed));
    const auto& sends = record().sends;
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
    expect_same(sends[4].entries, local_);

    // The first leaves none.
    const std::array completions{IBV_WC_SEND,      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE,
                                 IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD};
    for (std::size_t i = 0; i < completions.size(); ++i) {
        sent(i + 2, completions[i]);
    }
    received(1);
    received(2);
    received(3, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(bytes(arrivals, total), posted);
    EXPECT_EQ(gathered(), posted) << "read back from where it was written";
    EXPECT_EQ(number_at(512), first) << "it is not 11, so it was not swapped";
    EXPECT_EQ(number_at(target), first + 33);
}

TEST_F(List, CarriesDatagrams) {
    const QueuePair sender = connect(datagrams());
    const QueuePair receiver = connect(datagrams());
    const AddressHandle ah(basics_.pd, testing::own_address(basics_.context),
                           AddressHandleOptions{});
    ASSERT_TRUE(receiver.post_recv(arrival_, 1));
    SendList<1> list;
    list.send_to(local_, {.ah = ah.native(), .queue_pair = receiver.number(), .qkey = 0x456},
                 {.wr_id = 42});
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(sender.post(list, failed));
    EXPECT_EQ(only(IBV_WR_SEND, signaled).request.wr.ud.remote_qpn, receiver.number());
    EXPECT_EQ(only(IBV_WR_SEND, signaled).request.wr.ud.remote_qkey, 0x456U);
    EXPECT_EQ(received(1).byte_len, 40 + total);
    EXPECT_EQ(bytes(arrivals + 40, total), gathered());
}

TEST_F(List, IsPostedAgainExtendedAndClearedAfterItWasPosted) {
    receive(6);
    SendList<3> list;
    ibv_send_wr* failed = nullptr;
    list.send(local_, {.wr_id = 1});
    ASSERT_TRUE(qp().post(list, failed));
    list.send(local_, {.wr_id = 2});
    list.send(local_, {.wr_id = 3});
    ASSERT_TRUE(qp().post(list, failed));
    list.clear();
    EXPECT_EQ(list.size(), 0U);
    list.send(local_, {.wr_id = 4});
    ASSERT_TRUE(qp().post(list, failed));
    ASSERT_TRUE(qp().post(list, failed));
    std::vector<std::uint64_t> ids;
    for (const auto& send : record().sends) {
        ids.push_back(send.request.wr_id);
    }
    EXPECT_THAT(ids, ElementsAre(1, 1, 2, 3, 4, 4));
    for (const std::uint64_t id : ids) {
        sent(id, IBV_WC_SEND);
    }
}

TEST_F(List, KeepsNoAddressOfTheEntryOfAnAtomic) {
    put_number(target, 11);
    put_number(target + 8, 100);
    SendList<2> list;
    ibv_sge entry = region_.sge(512, 8);
    list.compare_swap(entry, remote_, 11, 22, {.wr_id = 1});
    entry = region_.sge(520, 8);
    list.fetch_add(entry, region_.remote().at(target + 8), 33, {.wr_id = 2});
    entry = {};
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp().post(list, failed));
    sent(1, IBV_WC_COMP_SWAP);
    sent(2, IBV_WC_FETCH_ADD);
    EXPECT_EQ(number_at(512), 11U);
    EXPECT_EQ(number_at(520), 100U);
    EXPECT_EQ(number_at(target), 22U);
    EXPECT_EQ(number_at(target + 8), 133U);
}

TEST_F(List, PostsNothingWhenItIsEmpty) {
    SendList<1> sends;
    ibv_send_wr* failed_send = nullptr;
    EXPECT_TRUE(qp().post(sends, failed_send));
    RecvList<1> receives;
    ibv_recv_wr* failed_receive = nullptr;
    EXPECT_TRUE(qp().post(receives, failed_receive));
    EXPECT_TRUE(record().sends.empty());
    EXPECT_TRUE(record().receives.empty());
}

TEST_F(List, OfReceivesGoesOutInOneCallInOrder) {
    RecvList<9> list;
    for (std::uint64_t id = 1; id <= 9; ++id) {
        list.recv(local_, id);
    }
    ibv_recv_wr* failed = nullptr;
    EXPECT_EQ(qp().post(list, failed), Status(ENOMEM)) << "there is room for eight";
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 9U);
    const auto& receives = record().receives;
    ASSERT_EQ(receives.size(), 8U);
    EXPECT_EQ(receives[7].call, receives[0].call);
    EXPECT_EQ(receives[7].request.wr_id, 8U);
    expect_same(receives[7].entries, local_);
    for (std::uint64_t id = 1; id <= 8; ++id) {
        ASSERT_TRUE(qp().post_send(region_.sge(target, 300)));
        received(id);
    }
}

} // namespace
} // namespace rdmabuf
