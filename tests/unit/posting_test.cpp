// SPDX-License-Identifier: BSD-3-Clause
// Requests posted one by one, in lists and in batches: what the device is asked, and what comes of
// it.
#include <endian.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/work_request.hpp>

#include "posting_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::expect_same;
using testing::immediate;
using testing::PostingTest;
using testing::record;
using testing::signaled;

enum class Way { one_by_one, list, batch };

/// The functions of QueuePair that post one request, by the names that lists and batches have.
struct OneByOne {
    const QueuePair& qp;
    Status status = {};

    void send(auto... a) { status = qp.post_send(a...); }
    void send_imm(auto... a) { status = qp.post_send_imm(a...); }
    void send_to(auto... a) { status = qp.post_send_to(a...); }
    void send_imm_to(auto... a) { status = qp.post_send_imm_to(a...); }
    void write(auto... a) { status = qp.post_write(a...); }
    void write_imm(auto... a) { status = qp.post_write_imm(a...); }
    void read(auto... a) { status = qp.post_read(a...); }
    void compare_swap(auto... a) { status = qp.post_compare_swap(a...); }
    void fetch_add(auto... a) { status = qp.post_fetch_add(a...); }
};

class Post : public PostingTest, public ::testing::WithParamInterface<Way> {
  protected:
    const std::span<const ibv_sge> local_entries_{local_};
    const WorkOptions signaled_{.wr_id = 42, .flags = SendFlags::signaled};

    /// Posts what @p make adds in the way of this test, and returns the only request of the device.
    template <class Make>
    const testing::Send& post(const QueuePair& qp, ibv_wr_opcode opcode, const Make& make,
                              unsigned flags = signaled) {
        if (GetParam() == Way::one_by_one) {
            OneByOne one{qp};
            make(one);
            EXPECT_TRUE(one.status);
        } else if (GetParam() == Way::list) {
            SendList<1> list;
            make(list);
            ibv_send_wr* failed = nullptr;
            EXPECT_TRUE(qp.post(list, failed));
        } else {
            WorkBatch batch = qp.batch();
            make(batch);
            EXPECT_TRUE(batch.complete());
        }
        const testing::Send& send = only(opcode, flags);
        EXPECT_EQ(send.extended, GetParam() == Way::batch);
        return send;
    }
    /// Sends a datagram by @p make, and returns the completion of its receive.
    template <class Make>
    WorkCompletion post_datagram(ibv_wr_opcode opcode, const Make& make) {
        const QueuePair sender = connect(datagrams());
        const QueuePair receiver = connect(datagrams());
        const AddressHandle ah(basics_.pd, testing::own_address(basics_.context),
                               AddressHandleOptions{});
        const Destination to{.ah = ah.native(), .queue_pair = receiver.number(), .qkey = 0x456};
        EXPECT_TRUE(receiver.post_recv(arrival_, 1));
        const testing::Send& send = post(sender, opcode, [&](auto& way) { make(way, to); });
        EXPECT_EQ(send.request.wr.ud.ah, ah.native());
        EXPECT_EQ(send.request.wr.ud.remote_qpn, receiver.number());
        EXPECT_EQ(send.request.wr.ud.remote_qkey, 0x456U);
        expect_same(send.entries, local_);
        const WorkCompletion arrived = received(1);
        EXPECT_EQ(arrived.byte_len, 40 + total);
        EXPECT_EQ(arrived.qp_num, receiver.number());
        EXPECT_EQ(arrived.src_qp, sender.number());
        EXPECT_EQ(bytes(arrivals + 40, total), gathered());
        return arrived;
    }
};

TEST_P(Post, Send) {
    receive(1);
    const auto& send =
        post(qp(), IBV_WR_SEND, [&](auto& way) { way.send(local_entries_, signaled_); });
    expect_same(send.entries, local_);
    sent(42, IBV_WC_SEND);
    EXPECT_EQ(received(1).byte_len, total);
    EXPECT_EQ(bytes(arrivals, total), gathered());
}

TEST_P(Post, SendWithImmediateInNetworkByteOrder) {
    receive(1);
    const auto& send = post(qp(), IBV_WR_SEND_WITH_IMM,
                            [&](auto& way) { way.send_imm(local_entries_, immediate, signaled_); });
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_same(send.entries, local_);
    EXPECT_EQ(received(1).imm_data, htobe32(immediate));
    EXPECT_EQ(bytes(arrivals, total), gathered());
}

TEST_P(Post, Write) {
    const auto& send = post(qp(), IBV_WR_RDMA_WRITE,
                            [&](auto& way) { way.write(local_entries_, remote_, signaled_); });
    expect_rdma(send);
    expect_same(send.entries, local_);
    sent(42, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(bytes(target, total), gathered());
}

TEST_P(Post, WriteWithImmediateInNetworkByteOrder) {
    receive(1);
    const auto& send = post(qp(), IBV_WR_RDMA_WRITE_WITH_IMM, [&](auto& way) {
        way.write_imm(local_entries_, remote_, immediate, signaled_);
    });
    EXPECT_EQ(send.request.imm_data, htobe32(immediate));
    expect_rdma(send);
    expect_same(send.entries, local_);
    EXPECT_EQ(received(1, IBV_WC_RECV_RDMA_WITH_IMM).imm_data, htobe32(immediate));
    EXPECT_EQ(bytes(target, total), gathered());
}

TEST_P(Post, Read) {
    testing::fill(std::span(memory_).subspan(target, total), 2);
    const auto& send = post(qp(), IBV_WR_RDMA_READ,
                            [&](auto& way) { way.read(local_entries_, remote_, signaled_); });
    expect_rdma(send);
    expect_same(send.entries, local_);
    sent(42, IBV_WC_RDMA_READ);
    EXPECT_EQ(gathered(), bytes(target, total));
}

TEST_P(Post, CompareSwap) {
    put_number(target, 11);
    expect_atomic(post(qp(), IBV_WR_ATOMIC_CMP_AND_SWP,
                       [&](auto& way) { way.compare_swap(word_, remote_, 11U, 22U, signaled_); }),
                  11, 22);
    sent(42, IBV_WC_COMP_SWAP);
    EXPECT_EQ(number_at(512), 11U);
    EXPECT_EQ(number_at(target), 22U);
}

TEST_P(Post, FetchAdd) {
    put_number(target, 100);
    expect_atomic(post(qp(), IBV_WR_ATOMIC_FETCH_AND_ADD,
                       [&](auto& way) { way.fetch_add(word_, remote_, 33U, signaled_); }),
                  33, 0);
    sent(42, IBV_WC_FETCH_ADD);
    EXPECT_EQ(number_at(512), 100U);
    EXPECT_EQ(number_at(target), 133U);
}

TEST_P(Post, DatagramsGoWhereTheyAreSent) {
    post_datagram(IBV_WR_SEND,
                  [&](auto& way, Destination to) { way.send_to(local_entries_, to, signaled_); });
}

TEST_P(Post, DatagramsWithImmediateInNetworkByteOrder) {
    const WorkCompletion arrived =
        post_datagram(IBV_WR_SEND_WITH_IMM, [&](auto& way, Destination to) {
            way.send_imm_to(local_entries_, to, immediate, signaled_);
        });
    EXPECT_EQ(arrived.imm_data, htobe32(immediate));
    EXPECT_NE(arrived.wc_flags & IBV_WC_WITH_IMM, 0U);
}

std::string name_of(const ::testing::TestParamInfo<Way>& way) {
    return std::array{"OneByOne", "List", "Batch"}.at(static_cast<std::size_t>(way.param));
}
INSTANTIATE_TEST_SUITE_P(, Post, ::testing::Values(Way::one_by_one, Way::list, Way::batch),
                         name_of);

// One by one

using PostOne = PostingTest;

TEST_F(PostOne, TakesOneEntry) {
    receive(2);
    const auto& sends = record().sends;
    EXPECT_TRUE(qp().post_send(local_[1], {.wr_id = 1}));
    EXPECT_TRUE(qp().post_write_imm(local_[1], remote_, immediate, {.wr_id = 2}));
    EXPECT_TRUE(qp().post_read(local_[0], remote_, {.wr_id = 3}));
    expect_same(sends[0].entries, std::span(local_).last(1));
    expect_same(sends[1].entries, std::span(local_).last(1));
    expect_same(sends[2].entries, std::span(local_).first(1));
    sent(1, IBV_WC_SEND);
    sent(2, IBV_WC_RDMA_WRITE);
    sent(3, IBV_WC_RDMA_READ);
    EXPECT_EQ(received(1).byte_len, 200U);
    received(2, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(bytes(arrivals, 200), bytes(256, 200));
}

TEST_F(PostOne, WriteOfZeroBytesNeedsNoRkey) {
    EXPECT_TRUE(qp().post_write(std::span<const ibv_sge>(), {}, {.wr_id = 42}));
    sent(42, IBV_WC_RDMA_WRITE);
}

TEST_F(PostOne, ToARemoteRegionOrAPlaceInIt) {
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

TEST_F(PostOne, FlagsAsTheyAre) {
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

TEST_F(PostOne, ReceivesBeforeAndAfterConnecting) {
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

TEST_F(PostOne, FailuresAreValues) {
    testing::fail_next("ibv_post_send", ENOMEM);
    EXPECT_EQ(qp().post_send(local_), Status(ENOMEM));
    testing::fail_next("ibv_post_recv", EINVAL);
    EXPECT_EQ(qp().post_recv(local_), Status(EINVAL));
    testing::fail_next("ibv_post_recv", ENOMEM);
    EXPECT_THAT(testing::error_of([&] { qp().post_recv(local_).throw_if_failed(); }),
                testing::fails_with("ibv_post_recv", ENOMEM));
    const std::array<ibv_sge, 3> too_many{};
    EXPECT_EQ(qp().post_write(too_many, remote_), Status(EINVAL));
    EXPECT_TRUE(record().sends.empty());
}

// Lists

using List = PostingTest;

TEST_F(List, GoesOutInOneCallInOrder) {
    receive(1);
    SendList<8> list;
    list.send(local_, {.wr_id = 1, .flags = SendFlags::none});
    list.write(local_, remote_, {.wr_id = 2});
    list.read(local_, remote_, {.wr_id = 3});
    list.fetch_add(word_, remote_, 33, {.wr_id = 4});
    EXPECT_EQ(list.size(), 4U);
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(qp().post(list, failed));
    expect_four_in_one_call();
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

using Drain = PostingTest;

TEST_F(Drain, RequestsPostedAfterAbortCompleteLast) {
    receive(3);
    const QueuePair& pair = qp();
    for (std::uint64_t id = 1; id <= 4; ++id) { // the fourth has no receive
        ASSERT_TRUE(pair.post_send(local_, {.wr_id = id, .flags = SendFlags::none}));
    }
    qp_->abort();
    EXPECT_EQ(record().modifications.back().mask, IBV_QP_STATE);
    EXPECT_EQ(pair.state(), IBV_QPS_ERR);
    ASSERT_TRUE(pair.post_send(std::span<const ibv_sge>(), {.wr_id = 9}));
    ASSERT_TRUE(pair.post_recv(std::span<const ibv_sge>(), 9));
    for (const CompletionQueue* const cq : {&basics_.cq, &recv_cq_}) {
        WorkCompletion last{};
        while (last.wr_id != 9) {
            ASSERT_EQ(cq->wait({&last, 1}, testing::time_limit), 1U);
        }
        EXPECT_EQ(last.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(cq->poll({&last, 1}), 0U);
    }
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
