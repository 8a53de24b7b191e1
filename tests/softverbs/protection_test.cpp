// SPDX-License-Identifier: BSD-3-Clause
// Requests that a queue pair must reject. Both ends get the correct status and event, no data is
// moved, and later requests are flushed in order.
#include <algorithm>

#include "pair_test.hpp"

namespace softverbs_test {
namespace {

class Protection : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        start();
        a.fill(std::byte{0xaa});
        b.fill(std::byte{0xbb});
        other_pd_.reset(ibv_alloc_pd(context.get()));
        ASSERT_NE(other_pd_, nullptr);
        foreign_.reset(ibv_reg_mr(other_pd_.get(), b.memory.data(), 4096, full_access));
        ASSERT_NE(foreign_, nullptr);
    }

    /// Posts @p request between two valid requests.
    void post_between(Request request) const {
        std::vector<Request> requests;
        requests.emplace_back(a, b, IBV_WR_RDMA_WRITE, 1, 8, 1024);
        requests.push_back(request);
        requests.emplace_back(a, b, IBV_WR_RDMA_WRITE, 3, 8, 2048);
        ASSERT_EQ(post(a, requests), 0);
    }
    /// Checks that @p request fails at the requester, and that later requests are flushed.
    void expect_status(Request request, ibv_wc_status status) {
        request.wr.wr_id = 2;
        post_between(request);
        expect(a, 1, IBV_WC_SUCCESS);
        expect(a, 2, status);
        expect(a, 3, IBV_WC_WR_FLUSH_ERR);
        EXPECT_TRUE(is_empty(a.cq.get()));
        EXPECT_EQ(a.state(), IBV_QPS_ERR);
    }
    /// Checks in addition that later requests are not sent.
    void expect_failure(const Request& request, ibv_wc_status status) {
        expect_status(request, status);
        EXPECT_EQ(b.memory[1024], std::byte{0xaa});
        EXPECT_EQ(b.memory[2048], std::byte{0xbb});
        EXPECT_EQ(b.memory[0], std::byte{0xbb});
    }
    /// Checks that @p request fails by a check of the requester. The responder is not affected.
    void expect_local_failure(const Request& request, ibv_wc_status status) {
        expect_failure(request, status);
        EXPECT_EQ(b.state(), IBV_QPS_RTS);
        EXPECT_FALSE(next_event());
        EXPECT_TRUE(is_empty(b.cq.get()));
    }
    /// Checks that the response to @p request fails by a check of the requester. The responder is
    /// not affected.
    void expect_denied_response(const Request& request) {
        expect_status(request, IBV_WC_LOC_PROT_ERR);
        EXPECT_EQ(b.state(), IBV_QPS_RTS);
        EXPECT_FALSE(next_event());
    }
    /// Checks that @p request fails by a check of the responder. The receive requests of the
    /// responder are flushed.
    void expect_remote_failure(const Request& request, ibv_wc_status status, ibv_event_type event) {
        receive(b, 10, 64, 4096);
        receive(b, 11, 64, 4096);
        expect_failure(request, status);
        EXPECT_EQ(b.state(), IBV_QPS_ERR);
        expect(b, 10, IBV_WC_WR_FLUSH_ERR);
        expect(b, 11, IBV_WC_WR_FLUSH_ERR);
        EXPECT_TRUE(is_empty(b.cq.get()));
        expect_event(b, event);
        EXPECT_FALSE(next_event());
    }
    [[nodiscard]] Request request(ibv_wr_opcode opcode, std::uint32_t length = 8) const {
        return {a, b, opcode, 2, length};
    }

    UniquePd other_pd_;
    UniqueMr foreign_; // of the same memory as b's
};

TEST_F(Protection, LocalKeyThatIsNone) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.lkey ^= 0x5500;
    expect_local_failure(wrong, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Protection, LocalKeyOfAnotherProtectionDomain) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge = {b.address(), 8, foreign_->lkey};
    expect_local_failure(wrong, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Protection, LocalBounds) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.addr = a.address(memory_size) - 7;
    expect_local_failure(wrong, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Protection, ReadingIntoMemoryThatIsNotToBeWritten) {
    const UniqueMr constant = make_mr(a.memory.data(), 4096, 0);
    for (const std::uint32_t length : {8U, 4096U, 1'000'000U}) {
        restart();
        b.fill(std::byte{0xbb});
        Request wrong = request(IBV_WR_RDMA_READ, length);
        wrong.sge.lkey = constant->lkey;
        expect_denied_response(wrong);
        EXPECT_EQ(a.memory[0], std::byte{0xaa});
    }
}

TEST_F(Protection, AtomicWithoutALocalKeyChangesTheRemoteMemory) {
    for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        restart();
        b.fill(std::byte{0xbb});
        b.set_number(0, 1);
        Request wrong = request(opcode);
        wrong.wr.wr.atomic.compare_add = 1;
        wrong.wr.wr.atomic.swap = 2;
        wrong.sge.lkey ^= 0x5500;
        expect_denied_response(wrong);
        EXPECT_EQ(b.number(0), 2U);
    }
}

TEST_F(Protection, RemoteErrorOfAReadComesBeforeTheLocalOne) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        restart();
        b.fill(std::byte{0xbb});
        Request wrong = request(opcode);
        wrong.sge.lkey ^= 0x5500;
        if (opcode == IBV_WR_RDMA_READ) {
            wrong.wr.wr.rdma.rkey = foreign_->rkey;
        } else {
            wrong.wr.wr.atomic.rkey = foreign_->rkey;
        }
        expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
}

TEST_F(Protection, ReadWithoutALocalKeyFailsAfterTheReadsBeforeIt) {
    std::vector<Request> requests;
    requests.emplace_back(a, b, IBV_WR_RDMA_READ, 1, 100'000);
    requests.emplace_back(a, b, IBV_WR_RDMA_READ, 2, 8, 200'000);
    requests.emplace_back(a, b, IBV_WR_RDMA_READ, 3, 8, 300'000);
    requests[1].sge.lkey ^= 0x5500;
    ASSERT_EQ(post(a, requests), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(a, 2, IBV_WC_LOC_PROT_ERR);
    expect(a, 3, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a.memory[99'999], std::byte{0xbb});
    EXPECT_EQ(a.memory[200'000], std::byte{0xaa});
}

TEST_F(Protection, WriteWithImmediateAndAWrongKeyIsALocalAccessErrorOfTheReceive) {
    Request wrong = request(IBV_WR_RDMA_WRITE_WITH_IMM);
    wrong.wr.wr.rdma.rkey ^= 0x5500;
    receive(b, 10, 64, 4096);
    receive(b, 11, 64, 4096);
    expect_failure(wrong, IBV_WC_REM_ACCESS_ERR);
    expect(b, 10, IBV_WC_LOC_ACCESS_ERR);
    expect(b, 11, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
    expect_event(b, IBV_EVENT_QP_ACCESS_ERR);
    // If a message has more than one packet, the rkey in the first packet is checked before a
    // receive request is taken.
    restart();
    b.fill(std::byte{0xbb});
    wrong = request(IBV_WR_RDMA_WRITE_WITH_IMM, 1025);
    wrong.wr.wr.rdma.rkey ^= 0x5500;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Protection, WriteWithImmediateWaitsForItsReceiveBeforeItsKeyIsChecked) {
    Request wrong = request(IBV_WR_RDMA_WRITE_WITH_IMM);
    wrong.wr.wr.rdma.rkey ^= 0x5500;
    ASSERT_EQ(post(a, wrong), 0);
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(b.state(), IBV_QPS_RTS);
    receive(b, 10, 64, 4096);
    expect(a, 2, IBV_WC_REM_ACCESS_ERR);
    expect(b, 10, IBV_WC_LOC_ACCESS_ERR);
    expect_event(b, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Protection, MoreReadsThanTheResponderHasResourcesForAreAnInvalidRequest) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        for (const std::uint8_t resources : {std::uint8_t{0}, std::uint8_t{2}}) {
            restart([&](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = resources; });
            std::vector<Request> requests;
            for (std::uint64_t i = 0; i < 3; ++i) {
                requests.emplace_back(a, b, opcode, i, 8, 8 * i);
            }
            ASSERT_EQ(post(a, requests), 0);
            for (std::uint64_t i = 0; i < resources; ++i) {
                expect(a, i, IBV_WC_SUCCESS);
            }
            expect(a, resources, IBV_WC_REM_INV_REQ_ERR);
            expect_event(b, IBV_EVENT_QP_REQ_ERR);
            EXPECT_EQ(b.state(), IBV_QPS_ERR);
            while (!is_empty(a.cq.get())) {
            }
        }
    }
}

TEST_F(Protection, ReadsOfAQueuePairThatMayHaveNoneOutstandingFail) {
    restart([](ibv_qp_attr& attr) { attr.max_rd_atomic = 0; });
    expect_local_failure(request(IBV_WR_RDMA_READ), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(Protection, LocalRegionThatWasRevoked) {
    const UniqueMr revoked = make_mr(a.memory.data(), 4096);
    ASSERT_EQ(softverbs_revoke_mr(revoked.get()), 0);
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.lkey = revoked->lkey;
    expect_local_failure(wrong, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Protection, RegionOfNoBytesGivesNoByte) {
    const UniqueMr local = make_mr(a.memory.data() + 1, 0);
    Request wrong = request(IBV_WR_RDMA_WRITE, 1);
    wrong.sge = {a.address(1), 1, local->lkey};
    expect_local_failure(wrong, IBV_WC_LOC_PROT_ERR);
    restart();
    b.fill(std::byte{0xbb});
    const UniqueMr remote = make_mr(b.memory.data() + 1, 0, full_access);
    wrong = request(IBV_WR_RDMA_WRITE, 1);
    wrong.wr.wr.rdma.remote_addr = b.address(1);
    wrong.wr.wr.rdma.rkey = remote->rkey;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Protection, MessageLongerThanAnyPermitted) {
    expect_local_failure(request(IBV_WR_RDMA_WRITE, 0xffffffff), IBV_WC_LOC_LEN_ERR);
}

TEST_F(Protection, LocalFailureWaitsForReadsBeforeIt) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.lkey ^= 0x5500;
    std::vector<Request> requests;
    requests.emplace_back(a, b, IBV_WR_RDMA_READ, 1, 100'000);
    requests.emplace_back(a, b, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 8, 200'000);
    requests.push_back(wrong);
    requests.back().wr.wr_id = 3;
    ASSERT_EQ(post(a, requests), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(a, 2, IBV_WC_SUCCESS);
    expect(a, 3, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a.memory[99'999], std::byte{0xbb});
}

TEST_F(Protection, LocalFailureComesAfterWhatNobodyWasAskedToAcknowledge) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.lkey ^= 0x5500;
    std::vector<Request> requests(3, Request(a, b, IBV_WR_RDMA_WRITE, 1, 8, 1024));
    for (Request& silent : requests) {
        silent.wr.send_flags = 0;
    }
    requests.push_back(wrong);
    ASSERT_EQ(post(a, requests), 0);
    expect(a, 2, IBV_WC_LOC_PROT_ERR);
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(b.memory[1024], std::byte{0xaa});
}

TEST_F(Protection, RemoteKeyThatIsNone) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.wr.wr.rdma.rkey ^= 0x5500;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Protection, RemoteKeyOfAnotherProtectionDomain) {
    Request wrong = request(IBV_WR_RDMA_READ);
    wrong.wr.wr.rdma.rkey = foreign_->rkey;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(a.memory[0], std::byte{0xaa});
}

TEST_F(Protection, RemoteBounds) {
    for (const std::uint64_t address :
         {b.address() - 1, b.address(memory_size) - 7, ~std::uint64_t{0} - 3}) {
        restart();
        b.fill(std::byte{0xbb});
        Request wrong = request(IBV_WR_RDMA_WRITE);
        wrong.wr.wr.rdma.remote_addr = address;
        expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
}

TEST_F(Protection, RemoteBoundsOfWhatWouldBeFetched) {
    Request wrong = request(IBV_WR_RDMA_WRITE, 100'000);
    wrong.wr.wr.rdma.remote_addr = b.address(memory_size) - 99'999;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(b.memory.back(), std::byte{0xbb});
}

TEST_F(Protection, RegionThatDoesNotGiveTheAccess) {
    struct Case {
        ibv_wr_opcode opcode;
        int missing;
    };
    for (const Case& each : {Case{IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE},
                             Case{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                             Case{IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC},
                             Case{IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC}}) {
        SCOPED_TRACE(each.opcode);
        restart();
        b.fill(std::byte{0xbb});
        const UniqueMr less = make_mr(b.memory.data(), 4096, full_access & ~each.missing);
        Request wrong = request(each.opcode);
        wrong.wr.wr.rdma.rkey = less->rkey;
        if (each.missing == IBV_ACCESS_REMOTE_ATOMIC) {
            wrong.wr.wr.atomic.rkey = less->rkey;
        }
        expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    }
}

TEST_F(Protection, QueuePairThatDoesNotGiveTheAccess) {
    struct Case {
        ibv_wr_opcode opcode;
        unsigned missing;
    };
    for (const Case& each : {Case{IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ},
                             Case{IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC}}) {
        SCOPED_TRACE(each.opcode);
        restart();
        b.fill(std::byte{0xbb});
        ibv_qp_attr attr = good_attributes();
        attr.qp_access_flags &= ~each.missing;
        ASSERT_EQ(modify(b.qp.get(), attr, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS), 0);
        expect_remote_failure(request(each.opcode), IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
}

TEST_F(Protection, QueuePairThatIsNotWrittenTo) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM}) {
        for (const std::uint32_t length : {0U, 8U, 100'000U}) {
            SCOPED_TRACE(length);
            restart();
            b.fill(std::byte{0xbb});
            receive(b, 10, 64, 4096);
            ibv_qp_attr attr = good_attributes();
            attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
            ASSERT_EQ(modify(b.qp.get(), attr, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS), 0);
            ASSERT_EQ(post(a, request(opcode, length)), 0);
            expect(a, 2, IBV_WC_REM_INV_REQ_ERR);
            expect(b, 10, IBV_WC_WR_FLUSH_ERR);
            expect_event(b, IBV_EVENT_QP_REQ_ERR);
            EXPECT_EQ(b.memory[0], std::byte{0xbb});
        }
    }
}

TEST_F(Protection, RemoteRegionThatWasRevoked) {
    const UniqueMr revoked = make_mr(b.memory.data(), 4096, full_access);
    ASSERT_EQ(softverbs_revoke_mr(revoked.get()), 0);
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.wr.wr.rdma.rkey = revoked->rkey;
    expect_remote_failure(wrong, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Protection, AtomicAtAnOddAddress) {
    for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
        restart();
        b.fill(std::byte{0xbb});
        Request wrong = request(opcode);
        wrong.wr.wr.atomic.remote_addr += 4;
        expect_remote_failure(wrong, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    }
}

TEST_F(Protection, MessageLongerThanItsReceiveRequest) {
    for (const std::uint32_t length : {9U, 100'000U}) {
        restart();
        b.fill(std::byte{0xbb});
        receive(b, 9, 8);
        receive(b, 10, 64, 4096);
        expect_failure(request(IBV_WR_SEND, length), IBV_WC_REM_INV_REQ_ERR);
        expect(b, 9, IBV_WC_LOC_LEN_ERR);
        expect(b, 10, IBV_WC_WR_FLUSH_ERR);
        expect_event(b, IBV_EVENT_QP_REQ_ERR);
        EXPECT_EQ(b.state(), IBV_QPS_ERR);
    }
}

TEST_F(Protection, ReceiveRequestWhoseMemoryIsNone) {
    receive(b, 9, ibv_sge{b.address(), 64, b.mr->lkey ^ 0x5500});
    receive(b, 10, 64, 4096);
    expect_failure(request(IBV_WR_SEND), IBV_WC_REM_OP_ERR);
    expect(b, 9, IBV_WC_LOC_PROT_ERR);
    expect(b, 10, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
    EXPECT_FALSE(next_event());
}

TEST_F(Protection, InvalidatingWhatIsNoWindow) {
    Request wrong = request(IBV_WR_SEND_WITH_INV, 0);
    wrong.wr.invalidate_rkey = b.mr->rkey;
    receive(b, 10, 64, 4096);
    receive(b, 11, 64, 4096);
    ASSERT_EQ(post(a, wrong), 0);
    // The message was received and acknowledged. Only the responder has an error.
    expect(a, 2, IBV_WC_SUCCESS);
    expect(b, 10, IBV_WC_REM_INV_REQ_ERR);
    expect(b, 11, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
    EXPECT_EQ(a.state(), IBV_QPS_RTS);
    EXPECT_FALSE(next_event());
}

TEST_F(Protection, InvalidatingWhatIsNoWindowOfOnesOwn) {
    Request wrong = request(IBV_WR_LOCAL_INV);
    wrong.wr.invalidate_rkey = a.mr->rkey;
    wrong.wr.num_sge = 0;
    expect_local_failure(wrong, IBV_WC_MW_BIND_ERR);
}

class UnreliableProtection : public Protection {
  protected:
    void SetUp() override {
        Protection::SetUp();
        make(IBV_QPT_UC);
        join();
    }
    /// Checks that @p request is dropped without an error, and that a later request is executed.
    void expect_silence(Request request) {
        request.wr.wr_id = 2;
        post_between(request);
        for (const std::uint64_t id : {1U, 2U, 3U}) {
            expect(a, id, IBV_WC_SUCCESS);
        }
        EXPECT_EQ(b.memory[0], std::byte{0xbb});
        EXPECT_EQ(b.memory[2048], std::byte{0xaa});
        EXPECT_TRUE(is_empty(b.cq.get()));
        EXPECT_FALSE(next_event());
        EXPECT_EQ(b.state(), IBV_QPS_RTS);
    }
};

TEST_F(UnreliableProtection, WriteWithoutTheRightKeyIsDropped) {
    for (const std::uint32_t length : {8U, 100'000U}) {
        Request wrong = request(IBV_WR_RDMA_WRITE, length);
        wrong.wr.wr.rdma.rkey = foreign_->rkey;
        expect_silence(wrong);
    }
}

TEST_F(UnreliableProtection, SendWithoutAReceiveRequestIsDropped) {
    for (const std::uint32_t length : {8U, 100'000U}) {
        expect_silence(request(IBV_WR_SEND, length));
    }
}

TEST_F(UnreliableProtection, SendLongerThanItsReceiveRequestIsDropped) {
    receive(b, 9, 8);
    expect_silence(request(IBV_WR_SEND, 9));
    // The receive request is used for the next message.
    ASSERT_EQ(post(a, request(IBV_WR_SEND, 8)), 0);
    expect(b, 9, IBV_WC_SUCCESS);
}

TEST_F(UnreliableProtection, LocalFailureStopsTheSendQueueOnly) {
    Request wrong = request(IBV_WR_RDMA_WRITE);
    wrong.sge.lkey ^= 0x5500;
    post_between(wrong);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(a, 2, IBV_WC_LOC_PROT_ERR);
    expect(a, 3, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a.state(), IBV_QPS_SQE);
    receive(a, 20, 8);
    ASSERT_EQ(post(b, Request(b, a, IBV_WR_SEND, 21, 8)), 0);
    expect(a, 20, IBV_WC_SUCCESS);
    ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_RTS, 0), 0);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 4, 8, 2048)), 0);
    expect(a, 4, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[2048], a.memory[2048]);
}

class DatagramProtection : public PairTest {
  protected:
    static constexpr std::uint32_t grh = 40;

    void SetUp() override {
        PairTest::SetUp();
        start(IBV_QPT_UD);
        ibv_ah_attr address = own_address();
        ah_.reset(ibv_create_ah(pd.get(), &address));
        ASSERT_NE(ah_, nullptr);
        a.fill(std::byte{0xaa});
        b.fill(std::byte{0xbb});
    }
    [[nodiscard]] Request datagram(std::uint64_t id, std::uint32_t length) const {
        Request request(a, b, IBV_WR_SEND, id, length);
        request.wr.wr.ud.ah = ah_.get();
        request.wr.wr.ud.remote_qpn = b.qp->qp_num;
        request.wr.wr.ud.remote_qkey = good_attributes().qkey;
        return request;
    }
    /// Checks that the datagram is sent but does not arrive, and that a later one arrives.
    void expect_loss(const Request& request) {
        ASSERT_EQ(post(a, request), 0);
        expect(a, request.wr.wr_id, IBV_WC_SUCCESS);
        EXPECT_TRUE(is_empty(b.cq.get()));
        EXPECT_EQ(b.memory[grh], std::byte{0xbb});
        receive(b, 31, 100 + grh);
        ASSERT_EQ(post(a, datagram(32, 8)), 0);
        expect(a, 32, IBV_WC_SUCCESS);
        EXPECT_EQ(poll(b.cq.get(), 1).front().byte_len, 8 + grh);
        EXPECT_EQ(b.memory[grh], std::byte{0xaa});
        EXPECT_FALSE(next_event());
    }

    UniqueAh ah_;
};

TEST_F(DatagramProtection, WithAnotherKeyOrLongerThanItsReceiveRequestItIsDropped) {
    Request another_key = datagram(1, 8);
    another_key.wr.wr.ud.remote_qkey ^= 1;
    for (const Request& wrong : {another_key, datagram(1, 9)}) {
        SCOPED_TRACE(wrong.sge.length);
        b.fill(std::byte{0xbb});
        receive(b, 30, 8 + grh);
        ASSERT_EQ(post(a, wrong), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        EXPECT_TRUE(is_empty(b.cq.get()));
        EXPECT_EQ(b.memory[grh], std::byte{0xbb});
        ASSERT_EQ(post(a, datagram(2, 8)), 0);
        expect(a, 2, IBV_WC_SUCCESS);
        expect(b, 30, IBV_WC_SUCCESS);
    }
}

TEST_F(DatagramProtection, WithoutAReceiveRequestItIsDropped) {
    expect_loss(datagram(1, 8));
}

TEST_F(DatagramProtection, ToNobodyItIsLost) {
    for (const std::uint32_t nobody : {b.qp->qp_num + 1, b.qp->qp_num ^ (777U << 14U)}) {
        Request wrong = datagram(1, 8);
        wrong.wr.wr.ud.remote_qpn = nobody;
        ASSERT_EQ(post(a, wrong), 0);
        expect(a, 1, IBV_WC_SUCCESS);
    }
    EXPECT_TRUE(is_empty(b.cq.get()));
}

TEST_F(DatagramProtection, LongerThanThePortPermitsItFails) {
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    const std::uint32_t mtu = 128U << static_cast<unsigned>(port.active_mtu);
    std::vector<Request> requests{datagram(1, mtu), datagram(2, mtu + 1), datagram(3, 8)};
    receive(b, 30, mtu + grh);
    ASSERT_EQ(post(a, requests), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(a, 2, IBV_WC_LOC_LEN_ERR);
    expect(a, 3, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a.state(), IBV_QPS_SQE);
    EXPECT_EQ(expect(b, 30, IBV_WC_SUCCESS).byte_len, mtu + grh);
}

TEST_F(DatagramProtection, LocalKeyThatIsNone) {
    Request wrong = datagram(1, 8);
    wrong.sge.lkey ^= 0x5500;
    ASSERT_EQ(post(a, wrong), 0);
    expect(a, 1, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(a.state(), IBV_QPS_SQE);
}

} // namespace
} // namespace softverbs_test
