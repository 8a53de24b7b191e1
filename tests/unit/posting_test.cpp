// SPDX-License-Identifier: BSD-3-Clause
// What posting writes into work requests: by post_*(), in lists, and through ibv_wr_*.
#include <endian.h>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <rdmabuf/address_handle.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/shared_receive_queue.hpp>

#include "standin_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using ::testing::ElementsAre;
using testing::StandinTest;

constexpr RemoteAddress remote{.address = 0x1122334455667788, .rkey = 0xaabbccdd};
constexpr std::array<ibv_sge, 2> local{ibv_sge{.addr = 0x1000, .length = 100, .lkey = 5},
                                       ibv_sge{.addr = 0x2000, .length = 200, .lkey = 6}};
constexpr std::uint32_t immediate = 0x01020304;

void expect_same(const std::vector<ibv_sge>& found, std::span<const ibv_sge> wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i].addr, wanted[i].addr);
        EXPECT_EQ(found[i].length, wanted[i].length);
        EXPECT_EQ(found[i].lkey, wanted[i].lkey);
    }
}

class PostingTest : public StandinTest {
  protected:
    Basics basics_;
    std::optional<QueuePair> qp_;

    QueuePair connect(const QueuePairOptions& options) {
        PreparedQueuePair prepared = QueuePair::prepare(basics_.pd, options);
        return options.type == QueuePairType::unreliable_datagram
                   ? std::move(prepared).activate()
                   : std::move(prepared).connect(prepared.address());
    }
    [[nodiscard]] QueuePairOptions options() const {
        return {.send_cq = basics_.cq,
                .recv_cq = basics_.cq,
                .max_send_wr = 16,
                .max_recv_wr = 4,
                .max_send_sge = 2};
    }
    const QueuePair& qp() {
        if (!qp_) {
            qp_.emplace(connect(options()));
        }
        return *qp_;
    }
    /// The only request so far, which must carry the wr_id 42 and the flags.
    static const standin::Send& only(ibv_wr_opcode opcode, unsigned flags) {
        EXPECT_EQ(standin::record().sends.size(), 1U);
        const standin::Send& send = standin::record().sends.back();
        EXPECT_EQ(send.request.wr_id, 42U);
        EXPECT_EQ(send.request.opcode, opcode);
        EXPECT_EQ(send.request.send_flags, flags);
        EXPECT_EQ(send.request.next, nullptr);
        return send;
    }
    static void expect_rdma(const standin::Send& send) {
        EXPECT_EQ(send.request.wr.rdma.remote_addr, remote.address);
        EXPECT_EQ(send.request.wr.rdma.rkey, remote.rkey);
    }
    static void expect_atomic(const standin::Send& send, std::uint64_t compare_add,
                              std::uint64_t swap) {
        EXPECT_EQ(send.request.wr.atomic.remote_addr, remote.address);
        EXPECT_EQ(send.request.wr.atomic.rkey, remote.rkey);
        EXPECT_EQ(send.request.wr.atomic.compare_add, compare_add);
        EXPECT_EQ(send.request.wr.atomic.swap, swap);
        expect_same(send.entries, std::span(local).first(1));
    }
};

constexpr unsigned signaled = IBV_SEND_SIGNALED;

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
    const QueuePair connected = std::move(prepared).connect(prepared.address());
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

// Batches of the extended interface

using Batch = PostingTest;

TEST_F(Batch, PostsAllItsRequestsInOneCall) {
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

TEST_F(Batch, CarriesDatagrams) {
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

TEST_F(Batch, ThatIsDroppedIsAborted) {
    {
        WorkBatch batch = qp().batch();
        batch.send(local);
        const WorkBatch moved = std::move(batch);
    }
    EXPECT_TRUE(standin::record().sends.empty());
    EXPECT_EQ(standin::record().aborted_batches, 1U);
}

TEST_F(Batch, ThatFailsPostsNothing) {
    WorkBatch batch = qp().batch();
    batch.send(local);
    standin::fail_next("ibv_wr_complete", ENOMEM);
    EXPECT_EQ(batch.complete(), Status(ENOMEM));
    EXPECT_TRUE(standin::record().sends.empty());
    EXPECT_EQ(standin::record().aborted_batches, 0U);
}

TEST_F(Batch, CopiesInlineDataFromEachEntry) {
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

TEST_F(Batch, LeavesMoreInlineEntriesThanAnyDeviceTakesToTheProvider) {
    const std::vector<ibv_sge> entries(65, local[0]);
    WorkBatch batch = qp().batch();
    batch.send(entries, {.wr_id = 42, .flags = SendFlags::inline_data});
    ASSERT_TRUE(batch.complete());
    EXPECT_EQ(only(IBV_WR_SEND, IBV_SEND_INLINE).entries.size(), 65U);
}

// Shared receive queues and address handles

class SharedReceiveQueueTest : public PostingTest {
  protected:
    auto refusal(const SharedReceiveQueueOptions& options) {
        return testing::error_of([&] { SharedReceiveQueue(basics_.pd, options); });
    }
};

TEST_F(SharedReceiveQueueTest, IsMadeAsAsked) {
    const SharedReceiveQueue srq(basics_.pd, {.max_wr = 7, .max_sge = 3});
    EXPECT_EQ(standin::record().srqs.at(0).attr.max_wr, 7U);
    EXPECT_EQ(standin::record().srqs.at(0).attr.max_sge, 3U);
    EXPECT_TRUE(standin::record().srq_limits.empty());
}

TEST_F(SharedReceiveQueueTest, ArmsItsLimit) {
    const SharedReceiveQueue srq(basics_.pd, {.limit = 5});
    EXPECT_THAT(standin::record().srq_limits, ElementsAre(5U));
}

TEST_F(SharedReceiveQueueTest, ThatCannotArmItsLimitIsNotMade) {
    standin::fail_next("ibv_modify_srq", EIO);
    EXPECT_THAT(refusal({.limit = 5}), testing::fails_with("ibv_modify_srq", EIO, ""));
    EXPECT_EQ(standin::live(standin::Kind::srq), 0U);
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
    EXPECT_TRUE(srq.post_recv(local, 1));
    EXPECT_TRUE(srq.post_recv(local[0], 2));
    RecvList<2> list;
    list.recv(local, 3);
    list.recv(local, 4);
    ibv_recv_wr* failed = nullptr;
    EXPECT_EQ(srq.post(list, failed), Status(ENOMEM));
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->wr_id, 4U);
    EXPECT_EQ(srq.post_recv(local, 5), Status(ENOMEM));
    const auto& receives = standin::record().receives;
    ASSERT_EQ(receives.size(), 3U);
    EXPECT_TRUE(receives[2].shared);
    EXPECT_EQ(receives[2].request.wr_id, 3U);
    expect_same(receives[1].entries, std::span(local).first(1));
}

class AddressHandleTest : public PostingTest {
  protected:
    static QueuePairAddress peer() {
        QueuePairAddress address;
        address.gid =
            Gid::from_native(standin::gid_entry("2001:db8::9", 0, IBV_GID_TYPE_ROCE_V2).gid);
        address.lid = 12;
        return address;
    }
};

TEST_F(AddressHandleTest, LeadsToThePeersPort) {
    const AddressHandle ah(
        basics_.pd, peer(),
        {.port = 1, .gid_index = 3, .service_level = 2, .traffic_class = 9, .hop_limit = 5});
    const ibv_ah_attr& made = standin::record().ahs.at(0);
    EXPECT_EQ(made.dlid, 12);
    EXPECT_EQ(made.sl, 2);
    EXPECT_EQ(made.port_num, 1);
    EXPECT_EQ(made.is_global, 1);
    EXPECT_EQ(Gid::from_native(made.grh.dgid), peer().gid);
    EXPECT_EQ(made.grh.sgid_index, 3);
    EXPECT_EQ(made.grh.traffic_class, 9);
    EXPECT_EQ(made.grh.hop_limit, 5);
}

TEST_F(AddressHandleTest, WithoutAGidGoesByLid) {
    QueuePairAddress nearby = peer();
    nearby.gid = {};
    const AddressHandle ah(basics_.pd, nearby, {});
    EXPECT_EQ(standin::record().ahs.at(0).is_global, 0);
    EXPECT_EQ(standin::record().ahs.at(0).dlid, 12);
}

TEST_F(AddressHandleTest, ThatCannotBeMadeSaysFromWhereToWhere) {
    EXPECT_THAT(
        testing::error_of([&] { AddressHandle(basics_.pd, peer(), {.port = 2, .gid_index = 3}); }),
        testing::fails_with("ibv_create_ah", EINVAL, "port 2, GID index 3, to 2001:db8::9"));
    standin::fail_next("ibv_create_ah", EHOSTUNREACH);
    EXPECT_THAT(testing::error_of([&] { AddressHandle(basics_.pd, peer(), {}); }),
                testing::fails_with("ibv_create_ah", EHOSTUNREACH, "to 2001:db8::9"));
}

} // namespace
} // namespace rdmabuf
