// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>

#include <array>
#include <set>

#include "efa_test.hpp"

// SRD queue pairs of the profile efa: messages, RDMA, and errors.

namespace {

using namespace softverbs_test;

class SrdTest : public EfaTest {
  protected:
    /// Sends @p count messages, and returns the order in which they arrive.
    std::vector<std::uint32_t> arrival_order(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            EXPECT_EQ(b.receive(100 + i, b.sge(std::size_t{i} * 64, 64)), 0);
        }
        for (std::uint32_t i = 0; i < count; ++i) {
            std::memset(a.memory.data() + std::size_t{i} * 64, static_cast<int>(i + 1), 64);
        }
        EXPECT_EQ(a.send_batch(count, 64, ah.get(), to_b), 0);
        std::vector<std::uint32_t> order;
        std::uint32_t next = 0;
        for (const ibv_wc& wc : poll(b.native_cq(), count)) {
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.wr_id, 100 + next); // receive requests are used in their order
            const std::uint32_t sent = be32toh(wc.imm_data);
            EXPECT_EQ(b.memory[std::size_t{next} * 64], static_cast<std::byte>(sent + 1));
            order.push_back(sent);
            ++next;
        }
        return order;
    }
};

// Messages

TEST_F(SrdTest, SendDeliversTheMessageWithoutAHeader) {
    start();
    std::memset(a.memory.data(), 0x5a, 100);
    ASSERT_EQ(b.receive(1, b.sge(0, 200)), 0);
    ASSERT_EQ(a.send_imm(2, ah.get(), to_b, a.sge(0, 100), htobe32(77)), 0);
    const ibv_wc sent = a.expect(2);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.qp_num, a.qp->qp_num);
    const ibv_wc received = b.expect(1);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, 100U);
    EXPECT_EQ(received.src_qp, a.qp->qp_num);
    EXPECT_EQ(received.wc_flags, unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(be32toh(received.imm_data), 77U);
    EXPECT_EQ(received.slid, 0xffff); // b has no address handle for a
    EXPECT_EQ(std::count(b.memory.begin(), b.memory.end(), std::byte{0x5a}), 100);
    EXPECT_EQ(b.memory[0], std::byte{0x5a});
}

TEST_F(SrdTest, MessagesHaveAtMostTheMtu) {
    start();
    for (const std::uint32_t length : {0U, 8928U}) {
        ASSERT_EQ(b.receive(1, b.sge(0, 16384)), 0);
        ASSERT_EQ(a.send(2, ah.get(), to_b, a.sge(0, length)), 0);
        a.expect(2);
        EXPECT_EQ(b.expect(1).byte_len, length);
    }
    ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8929)), 0);
    EXPECT_EQ(a.expect(3, IBV_WC_LOC_LEN_ERR).vendor_err, 6U);
    expect_usable();
}

TEST_F(SrdTest, MessagesOfAQueuePairArriveOutOfOrder) {
    start();
    const std::vector<std::uint32_t> order = arrival_order(32);
    EXPECT_FALSE(std::ranges::is_sorted(order));
    const std::set<std::uint32_t> all(order.begin(), order.end());
    EXPECT_EQ(all.size(), 32U); // each message arrives once
    std::vector<std::uint64_t> completed;
    for (const ibv_wc& wc : poll(a.native_cq(), 32)) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        completed.push_back(wc.wr_id);
    }
    EXPECT_FALSE(std::ranges::is_sorted(completed));
}

TEST_F(SrdTest, SeedDeterminesTheOrder) {
    const auto order_with = [this](const char* disorder) {
        EXPECT_EQ(softverbs_set_disorder(disorder), 0);
        a.close();
        b.close();
        b_ah.reset();
        ah.reset();
        start();
        auto order = arrival_order(32);
        poll(a.native_cq(), 32);
        return order;
    };
    const auto first = order_with("");
    EXPECT_EQ(order_with(""), first);
    EXPECT_NE(order_with("writes:7"), first);
}

TEST_F(SrdTest, IbvPostSendSendsSignaledMessagesOnly) {
    start();
    ibv_sge entry = a.sge(0, 8);
    ibv_send_wr wr{};
    wr.wr_id = 2;
    wr.sg_list = &entry;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {ah.get(), b.qp->qp_num, srd_qkey};
    ibv_send_wr* bad = nullptr;
    const auto posted = [&](ibv_wr_opcode opcode, unsigned flags) {
        wr.opcode = opcode;
        wr.send_flags = flags;
        return ibv_post_send(a.qp.get(), &wr, &bad);
    };
    EXPECT_EQ(posted(IBV_WR_SEND, 0), EINVAL);
    EXPECT_EQ(posted(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), EINVAL);
    EXPECT_EQ(posted(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_FENCE), EINVAL);
    EXPECT_EQ(posted(IBV_WR_RDMA_READ, IBV_SEND_SIGNALED), EINVAL);
    EXPECT_EQ(posted(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), EINVAL);
    ASSERT_EQ(b.receive(1, b.sge(0, 64)), 0);
    std::memset(a.memory.data(), 0x33, 8);
    EXPECT_EQ(posted(IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
    std::memset(a.memory.data(), 0x44, 8); // the inline data was copied
    a.expect(2);
    EXPECT_EQ(b.expect(1).byte_len, 8U);
    EXPECT_EQ(b.memory[7], std::byte{0x33});
}

TEST_F(SrdTest, RdmaHasOneEntryAndNoInlineData) {
    start();
    const std::array<ibv_sge, 2> two{a.sge(0, 8), a.sge(64, 8)};
    const auto failed = [&](auto set) {
        ibv_qp_ex* const batch = a.extended();
        ibv_wr_start(batch);
        batch->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(batch, to_b.rkey, to_b.memory);
        set(batch);
        ibv_wr_set_ud_addr(batch, ah.get(), to_b.qp_number, srd_qkey);
        return ibv_wr_complete(batch);
    };
    EXPECT_EQ(failed([&](ibv_qp_ex* batch) { ibv_wr_set_sge_list(batch, 2, two.data()); }), EINVAL);
    EXPECT_EQ(failed([&](ibv_qp_ex* batch) { ibv_wr_set_inline_data(batch, a.memory.data(), 8); }),
              EINVAL);
}

TEST_F(SrdTest, SlotIsFreeOnceAnyCompletionIsPolled) {
    start();
    // The first request waits for a receive request, and does not block the later ones.
    const UniqueQp third(create_srd(context.get(), srd_attributes(b_pd.get(), b.native_cq())));
    ASSERT_EQ(start_srd(third.get()), 0);
    const SrdPeer to_third{gid, third->qp_num, 0, 0};
    ASSERT_EQ(a.send(1, ah.get(), to_third, a.sge(0, 8)), 0);
    for (std::uint64_t i = 0; i < 64; ++i) {
        ASSERT_EQ(b.receive(i, b.sge(0, 64)), 0);
    }
    for (std::uint64_t i = 2; i <= 64; ++i) {
        ASSERT_EQ(a.send(i, ah.get(), to_b, a.sge(0, 8)), 0);
    }
    EXPECT_EQ(a.send(65, ah.get(), to_b, a.sge(0, 8)), ENOMEM);
    EXPECT_EQ(poll(a.native_cq(), 63).size(), 63U);
    for (std::uint64_t i = 0; i < 63; ++i) {
        ASSERT_EQ(a.send(100 + i, ah.get(), to_b, a.sge(0, 8)), 0) << i;
    }
    EXPECT_EQ(a.send(200, ah.get(), to_b, a.sge(0, 8)), ENOMEM);
    ibv_sge entry = b.sge(0, 64);
    ibv_recv_wr wr{5, nullptr, &entry, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(third.get(), &wr, &bad), 0);
    poll(b.native_cq(), 64);
}

// RDMA

TEST_F(SrdTest, WriteAndReadLargeMemory) {
    start();
    let_b_know_a();
    constexpr std::uint32_t length = 1'000'000;
    for (std::size_t i = 0; i < length; ++i) {
        a.memory[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
    ASSERT_EQ(a.write(1, ah.get(), to_b, a.sge(0, length), 3), 0);
    EXPECT_EQ(a.expect(1).opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(std::memcmp(b.memory.data() + 3, a.memory.data(), length), 0);
    EXPECT_EQ(b.memory[length + 3], std::byte{0});
    ASSERT_EQ(a.read(2, ah.get(), to_b, a.sge(memory_size / 2, length), 3), 0);
    EXPECT_EQ(a.expect(2).opcode, IBV_WC_SEND); // libefa reports reads so
    EXPECT_EQ(std::memcmp(a.memory.data() + memory_size / 2, a.memory.data(), length), 0);
    EXPECT_TRUE(is_empty(b.native_cq()));
}

TEST_F(SrdTest, WriteWithImmediateCompletesAReceiveAfterItsDataAndALostPacketIsSentAgain) {
    start();
    let_b_know_a();
    constexpr std::uint32_t length = 300'000;
    std::memset(a.memory.data(), 0x21, length);
    for (const char* const fault : {"", "packet#7=drop"}) {
        SCOPED_TRACE(fault);
        std::ranges::fill(b.memory, std::byte{0});
        ASSERT_EQ(softverbs_set_faults(fault), 0);
        ASSERT_EQ(b.receive(1, b.sge(0, 0)), 0);
        ASSERT_EQ(a.write_imm(2, ah.get(), to_b, a.sge(0, length), htobe32(5)), 0);
        const ibv_wc received = b.expect(1);
        EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(received.byte_len, length);
        EXPECT_EQ(be32toh(received.imm_data), 5U);
        EXPECT_EQ(std::count(b.memory.begin(), b.memory.end(), std::byte{0x21}), length);
        a.expect(2);
        EXPECT_TRUE(is_empty(b.native_cq()));
        EXPECT_EQ(softverbs_pending_faults(), 0U);
    }
}

TEST_F(SrdTest, RdmaNeedsAnAddressHandleForTheRequesterAtTheTarget) {
    start();
    std::memset(a.memory.data(), 0x21, 8);
    ASSERT_EQ(a.write(1, ah.get(), to_b, a.sge(0, 8)), 0);
    EXPECT_EQ(a.expect(1, IBV_WC_REM_OP_ERR).vendor_err, 14U);
    EXPECT_EQ(b.memory[0], std::byte{0});
    let_b_know_a();
    ASSERT_EQ(a.write(2, ah.get(), to_b, a.sge(0, 8)), 0);
    a.expect(2);
    EXPECT_EQ(b.memory[0], std::byte{0x21});
}

TEST_F(SrdTest, RemoteKeyIsCheckedAndTheQueuePairStaysUsable) {
    start();
    let_b_know_a();
    SrdPeer wrong = to_b;
    wrong.rkey += 0x100;
    ASSERT_EQ(a.read(1, ah.get(), wrong, a.sge(0, 8)), 0);
    EXPECT_EQ(a.expect(1, IBV_WC_REM_ACCESS_ERR).vendor_err, 7U);
    ASSERT_EQ(a.write(2, ah.get(), to_b, a.sge(0, 9), memory_size - 8), 0);
    a.expect(2, IBV_WC_REM_ACCESS_ERR);
    const UniqueMr read_only(
        ibv_reg_mr(b_pd.get(), b.memory.data(), 64, int{IBV_ACCESS_REMOTE_READ}));
    wrong.rkey = read_only->rkey;
    ASSERT_EQ(a.write(3, ah.get(), wrong, a.sge(0, 8)), 0);
    a.expect(3, IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(a.read(4, ah.get(), wrong, a.sge(0, 8)), 0);
    a.expect(4);
    EXPECT_FALSE(next_event());
    expect_usable();
}

// Errors

TEST_F(SrdTest, LocalKeyIsCheckedAndTheQueuePairStaysUsable) {
    start();
    ibv_sge entry = a.sge(0, 8);
    entry.lkey += 0x100;
    ASSERT_EQ(b.receive(1, b.sge(0, 64)), 0);
    ASSERT_EQ(a.send(2, ah.get(), to_b, entry), 0);
    EXPECT_EQ(a.expect(2, IBV_WC_LOC_PROT_ERR).vendor_err, 5U);
    ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), 0);
    a.expect(3);
    b.expect(1);
    expect_usable();
}

TEST_F(SrdTest, ReceiveRequestThatIsTooShortFailsAtBothEnds) {
    start();
    ASSERT_EQ(b.receive(1, b.sge(0, 63)), 0);
    ASSERT_EQ(a.send(2, ah.get(), to_b, a.sge(0, 64)), 0);
    EXPECT_EQ(a.expect(2, IBV_WC_REM_INV_REQ_ERR).vendor_err, 11U);
    b.expect(1, IBV_WC_LOC_LEN_ERR);
    expect_usable();
}

TEST_F(SrdTest, ReceiveRequestWithAWrongKeyFailsAtBothEnds) {
    start();
    ibv_sge entry = b.sge(0, 64);
    entry.lkey += 0x100;
    ASSERT_EQ(b.receive(1, entry), 0);
    ASSERT_EQ(a.send(2, ah.get(), to_b, a.sge(0, 64)), 0);
    EXPECT_EQ(a.expect(2, IBV_WC_BAD_RESP_ERR).vendor_err, 12U);
    b.expect(1, IBV_WC_LOC_PROT_ERR);
    expect_usable();
}

TEST_F(SrdTest, MessageWithoutAReceiveRequestFailsAfterTheRetries) {
    start(2);
    ASSERT_EQ(a.send(1, ah.get(), to_b, a.sge(0, 8)), 0);
    EXPECT_EQ(a.expect(1, IBV_WC_RNR_RETRY_EXC_ERR).vendor_err, 10U);
    expect_usable();
}

TEST_F(SrdTest, MessageWaitsForAReceiveRequestWithoutLimit) {
    start(7);
    const ManualClock clock;
    ASSERT_EQ(a.send(1, ah.get(), to_b, a.sge(0, 8)), 0);
    ManualClock::advance(std::chrono::minutes(1));
    EXPECT_TRUE(is_empty(a.native_cq()));
    ASSERT_EQ(b.receive(2, b.sge(0, 64)), 0);
    a.expect(1);
    EXPECT_EQ(b.expect(2).byte_len, 8U);
    EXPECT_TRUE(is_empty(b.native_cq()));
}

TEST_F(SrdTest, DestinationMustExistAndHaveTheQkey) {
    start();
    SrdPeer nobody = to_b;
    nobody.qp_number += 100;
    ASSERT_EQ(a.send(1, ah.get(), nobody, a.sge(0, 8)), 0);
    EXPECT_EQ(a.expect(1, IBV_WC_REM_INV_RD_REQ_ERR).vendor_err, 9U);
    nobody.qp_number = 0xff02; // no process has this slot
    ASSERT_EQ(a.send(2, ah.get(), nobody, a.sge(0, 8)), 0);
    a.expect(2, IBV_WC_REM_INV_RD_REQ_ERR);
    ibv_qp_attr attr{};
    attr.qkey = srd_qkey + 1;
    ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, IBV_QP_QKEY), 0);
    ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), 0);
    a.expect(3, IBV_WC_REM_INV_RD_REQ_ERR);
    attr.qkey = srd_qkey;
    ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, IBV_QP_QKEY), 0);
    expect_usable();
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(b.qp.get(), &attr, IBV_QP_STATE), 0);
    ASSERT_EQ(a.send(4, ah.get(), to_b, a.sge(0, 8)), 0);
    a.expect(4, IBV_WC_REM_INV_RD_REQ_ERR);
    EXPECT_EQ(state_of(a.qp.get()), IBV_QPS_RTS);
}

TEST_F(SrdTest, UnreachableAddressTimesOut) {
    start();
    const ManualClock clock;
    ibv_gid other = gid;
    other.raw[15] ^= 0x80;
    const UniqueAh nowhere(create_ah_to(pd.get(), other));
    ASSERT_NE(nowhere, nullptr);
    ASSERT_EQ(b.receive(1, b.sge(0, 64)), 0);
    ASSERT_EQ(a.send(2, nowhere.get(), to_b, a.sge(0, 8)), 0);
    ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), 0);
    a.expect(3); // it does not wait for the request before it
    EXPECT_EQ(a.expect(2, IBV_WC_RESP_TIMEOUT_ERR).vendor_err, 15U);
    b.expect(1);
    expect_usable();
}

TEST_F(SrdTest, ErrorStateFlushesAndRefusesFurtherRequests) {
    start();
    ASSERT_EQ(a.receive(1, a.sge(0, 64)), 0);
    ASSERT_EQ(a.send(2, ah.get(), to_b, a.sge(0, 8)), 0); // b has no receive request
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(a.qp.get(), &attr, IBV_QP_STATE), 0);
    a.expect(2, IBV_WC_WR_FLUSH_ERR);
    a.expect(1, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), EINVAL);
    EXPECT_EQ(a.receive(4, a.sge(0, 64)), EINVAL);
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(ibv_modify_qp(a.qp.get(), &attr, IBV_QP_STATE), 0);
    EXPECT_EQ(a.receive(5, a.sge(0, 64)), EINVAL);
    ASSERT_EQ(start_srd(a.qp.get()), 0);
    expect_usable();
}

TEST_F(SrdTest, LostAndDuplicatePacketsDeliverEachMessageOnce) {
    for (const char* const fault : {"packet#1=drop", "packet#2=drop", "packet#1=duplicate"}) {
        a.close();
        b.close();
        ah.reset();
        start();
        ASSERT_EQ(b.receive(1, b.sge(0, 64)), 0);
        ASSERT_EQ(b.receive(2, b.sge(64, 64)), 0);
        ASSERT_EQ(softverbs_set_faults(fault), 0);
        ASSERT_EQ(a.send(3, ah.get(), to_b, a.sge(0, 8)), 0);
        a.expect(3);
        b.expect(1);
        EXPECT_TRUE(is_empty(b.native_cq())) << fault;
        softverbs_clear_faults();
    }
}

} // namespace
