// SPDX-License-Identifier: BSD-3-Clause
// Reliable delivery with packet faults: each message arrives once and in order, or its request
// fails after all retries.
#include <algorithm>
#include <numeric>
#include <string>

#include "command.hpp"
#include "pair_test.hpp"

namespace softverbs_test {
namespace {

using namespace std::chrono_literals;

class Retry : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        timeout = 10;
        make();
    }
    ManualClock clock;

    static softverbs_counters counters() {
        softverbs_counters result{};
        softverbs_get_counters(&result);
        return result;
    }
    [[nodiscard]] Request request(ibv_wr_opcode opcode, std::uint64_t id, std::uint32_t length = 8,
                                  std::size_t offset = 0) const {
        return {a, b, opcode, id, length, offset};
    }
};

TEST_F(Retry, ReceiverThatIsNeverReadyExhaustsTheRetries) {
    for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{3}}) {
        SCOPED_TRACE(retries);
        restart([&](ibv_qp_attr& attr) { attr.rnr_retry = retries; });
        const std::uint64_t before = counters().retried;
        std::vector<Request> requests{request(IBV_WR_RDMA_WRITE, 1), request(IBV_WR_SEND, 2),
                                      request(IBV_WR_RDMA_WRITE, 3)};
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        expect(a, 2, IBV_WC_RNR_RETRY_EXC_ERR);
        expect(a, 3, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(counters().retried - before, retries);
        EXPECT_EQ(b.state(), IBV_QPS_RTS);
    }
}

TEST_F(Retry, SevenTimesMeansUntilAReceiveRequestIsThere) {
    join();
    const std::uint64_t before = counters().retried;
    std::vector<Request> requests;
    for (std::uint64_t id = 1; id <= 5; ++id) {
        requests.push_back(request(IBV_WR_SEND, id, 8, id * 8));
        a.set_number(id * 8, id);
    }
    ASSERT_EQ(post(a, requests), 0);
    // b sends an RNR NAK at once, and then each 10 us.
    ManualClock::advance(1ms);
    EXPECT_EQ(counters().retried - before, 101U);
    EXPECT_TRUE(is_empty(a.cq.get()));
    for (std::uint64_t id = 1; id <= 5; ++id) {
        receive(b, id + 10, 8, 4096 + id * 8);
        expect(b, id + 10, IBV_WC_SUCCESS);
        expect(a, id, IBV_WC_SUCCESS);
        EXPECT_EQ(b.number(4096 + id * 8), id);
    }
}

TEST_F(Retry, SharedReceiveQueueThatIsEmptyIsWaitedFor) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = 4;
    init.attr.max_sge = 1;
    const UniqueSrq srq(ibv_create_srq(pd.get(), &init));
    ASSERT_NE(srq, nullptr);
    make(IBV_QPT_RC, [&](ibv_qp_init_attr_ex& attributes) { attributes.srq = srq.get(); });
    join();
    a.set_number(0, 77);
    ASSERT_EQ(post(a, request(IBV_WR_SEND, 1)), 0);
    EXPECT_TRUE(is_empty(b.cq.get()));
    ibv_sge sge{b.address(64), 8, b.mr->lkey};
    ibv_recv_wr wr{5, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), 0);
    expect(b, 5, IBV_WC_SUCCESS);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(b.number(64), 77U);
    a.qp.reset();
    b.qp.reset();
}

TEST_F(Retry, NobodyThereEndsInAnErrorAfterAllRetries) {
    const auto one = 4096ns * 1024; // the timeout
    for (const std::uint32_t nobody : {b.qp->qp_num + 100, b.qp->qp_num ^ (555U << 14U)}) {
        const auto begin = ManualClock::now();
        const std::uint64_t before = counters().retried;
        ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_RESET, 0), 0);
        ibv_qp_attr attr = pair_attributes(nobody);
        attr.retry_cnt = 2;
        to_init(a.qp.get());
        to_rtr(a.qp.get(), attr);
        to_rts(a.qp.get(), attr);
        std::vector<Request> requests{request(IBV_WR_RDMA_READ, 1), request(IBV_WR_SEND, 2)};
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 1, IBV_WC_RETRY_EXC_ERR);
        expect(a, 2, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(ManualClock::now() - begin, 3 * one);
        EXPECT_EQ(counters().retried - before, 2U);
    }
}

TEST_F(Retry, DISABLED_ToTwoProcessesThatDoNotExist) {
    for (const std::uint32_t slot : {555U, 556U}) {
        ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_RESET, 0), 0);
        ibv_qp_attr attr = pair_attributes(b.qp->qp_num ^ (slot << 14U));
        attr.retry_cnt = 1;
        to_init(a.qp.get());
        to_rtr(a.qp.get(), attr);
        to_rts(a.qp.get(), attr);
        ASSERT_EQ(post(a, request(IBV_WR_SEND, 1)), 0);
        expect(a, 1, IBV_WC_RETRY_EXC_ERR);
    }
}

TEST_F(Retry, SaysOnceWhereTheProcessOfAQueuePairWasLookedFor) {
    const CommandResult result = run_disabled_test("Retry.DISABLED_ToTwoProcessesThatDoNotExist");
    EXPECT_EQ(result.exit_status, 0) << result.output;
    const std::size_t first =
        result.output.find("belongs to no process in the rendezvous directory");
    ASSERT_NE(first, std::string::npos) << result.output;
    EXPECT_NE(result.output.find("SOFTVERBS_DIR", first), std::string::npos);
    EXPECT_EQ(result.output.find("belongs to no process", first + 1), std::string::npos);
}

TEST_F(Retry, PortThatIsDownIsNobody) {
    join([](ibv_qp_attr& attr) { attr.retry_cnt = 1; });
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    ASSERT_EQ(post(a, request(IBV_WR_RDMA_WRITE, 1)), 0);
    expect(a, 1, IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
}

TEST_F(Retry, RequestsThatNobodyWasAskedToAnswerUseUpNoRetry) {
    join([](ibv_qp_attr& attr) { attr.retry_cnt = 0; });
    // The request at position 0 always requests an ACK, so the next one is the unsignaled one.
    ASSERT_EQ(post(a, request(IBV_WR_RDMA_WRITE, 1)), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    // This request is too long for the fast path within a process.
    Request silent = request(IBV_WR_RDMA_WRITE, 2, 4096);
    silent.wr.send_flags = 0;
    const std::uint64_t sent = counters().sent;
    ASSERT_EQ(post(a, silent), 0);
    ManualClock::advance(100ms);
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(counters().sent, sent + 2) << "the request and its ACK";
    EXPECT_EQ(a.state(), IBV_QPS_RTS);
    ASSERT_EQ(post(a, request(IBV_WR_RDMA_WRITE, 3)), 0);
    expect(a, 3, IBV_WC_SUCCESS);
}

TEST_F(Retry, SmallRequestsWithinAProcessNeedNoAckPacket) {
    join();
    const std::uint64_t sent = counters().sent;
    const std::uint64_t retried = counters().retried;
    constexpr std::uint64_t count = 40;
    for (std::uint64_t id = 1; id <= count; ++id) {
        Request each = request(IBV_WR_RDMA_WRITE, id);
        each.wr.send_flags = id == count ? unsigned{IBV_SEND_SIGNALED} : 0U;
        ASSERT_EQ(post(a, each), 0);
    }
    expect(a, count, IBV_WC_SUCCESS);
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(counters().sent - sent, count);
    EXPECT_EQ(counters().retried, retried);
}

/// Requests of all kinds, with small and with large messages.
class Exchange : public Retry {
  protected:
    static constexpr std::uint32_t bulk = 1U << 20U;
    static constexpr std::size_t counter = 8192;
    static constexpr std::size_t large = std::size_t{1} << 20U;

    /// Posts all requests and checks all data. The result must not depend on packet faults.
    void run() {
        a.fill(std::byte{0});
        b.fill(std::byte{0});
        for (std::size_t i = 0; i < bulk; ++i) {
            a.memory[large + i] = static_cast<std::byte>(i * 7 + i / 251);
            b.memory[2 * large + i] = static_cast<std::byte>(i * 5 + i / 241);
        }
        a.set_number(0, 0x1111);
        a.set_number(64, 0x2222);
        b.set_number(256, 0x3333);
        b.set_number(counter, 1000);
        receive(b, 100, 64, 512);
        receive(b, 101, bulk, 3 * large);
        std::vector<Request> requests{
            request(IBV_WR_SEND, 1, 8, 0),
            request(IBV_WR_RDMA_WRITE, 2, 100, 64),
            request(IBV_WR_RDMA_READ, 3, 8, 256),
            request(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8, counter),
            request(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 8, counter),
            request(IBV_WR_ATOMIC_CMP_AND_SWP, 6, 8, counter),
            request(IBV_WR_RDMA_WRITE, 7, bulk, large),
            request(IBV_WR_RDMA_READ, 8, bulk, 2 * large),
            request(IBV_WR_SEND_WITH_IMM, 9, bulk, large),
        };
        requests[1].wr.send_flags = 0;
        requests[4].sge.addr += 8;
        requests[5].sge.addr += 16;
        requests[5].wr.wr.atomic.compare_add = 1002;
        requests[5].wr.wr.atomic.swap = 5;
        requests[7].wr.send_flags |= IBV_SEND_FENCE;
        requests[8].wr.imm_data = 0x99;
        ASSERT_EQ(post(a, requests), 0);
        for (const std::uint64_t id : {1U, 3U, 4U, 5U, 6U, 7U, 8U, 9U}) {
            expect(a, id, IBV_WC_SUCCESS);
        }
        EXPECT_EQ(expect(b, 100, IBV_WC_SUCCESS).byte_len, 8U);
        const ibv_wc received = expect(b, 101, IBV_WC_SUCCESS);
        EXPECT_EQ(received.byte_len, bulk);
        EXPECT_EQ(received.imm_data, 0x99U);
        EXPECT_TRUE(is_empty(a.cq.get()));
        EXPECT_TRUE(is_empty(b.cq.get()));
        EXPECT_EQ(b.number(512), 0x1111U);
        EXPECT_EQ(b.number(64), 0x2222U);
        EXPECT_EQ(a.number(256), 0x3333U);
        EXPECT_EQ(a.number(counter), 1000U);
        EXPECT_EQ(a.number(counter + 8), 1001U);
        EXPECT_EQ(a.number(counter + 16), 1002U);
        EXPECT_EQ(b.number(counter), 5U);
        const auto same = [](const Side& x, std::size_t at, const Side& y, std::size_t there) {
            return std::equal(x.memory.begin() + static_cast<std::ptrdiff_t>(at),
                              x.memory.begin() + static_cast<std::ptrdiff_t>(at + bulk),
                              y.memory.begin() + static_cast<std::ptrdiff_t>(there));
        };
        EXPECT_TRUE(same(a, large, b, large));
        EXPECT_TRUE(same(a, 2 * large, b, 2 * large));
        EXPECT_TRUE(same(a, large, b, 3 * large));
    }

    /// Calls run() with a fault at each packet in turn.
    void run_with(softverbs_packet_fault fault, unsigned delay_ms = 0) {
        for (unsigned n = 1; n < 100; ++n) {
            SCOPED_TRACE("packet " + std::to_string(n));
            // A delayed packet can arrive in the next round. It must not have a sequence number of
            // that round: its ACK would complete requests that are not executed yet.
            restart([&](ibv_qp_attr& attr) { attr.sq_psn = attr.rq_psn = n << 16U; });
            ASSERT_EQ(softverbs_fail_packet(fault, n, delay_ms), 0);
            run();
            if (HasFailure()) {
                return;
            }
            if (softverbs_pending_faults() != 0) {
                EXPECT_GT(n, 15U) << "nine requests and their answers";
                return;
            }
        }
        FAIL() << "it does not end";
    }
};

TEST_F(Exchange, Undisturbed) {
    join();
    run();
}
TEST_F(Exchange, WithALostPacket) {
    run_with(SOFTVERBS_PACKET_DROP);
}
TEST_F(Exchange, WithAPacketThatComesTwice) {
    run_with(SOFTVERBS_PACKET_DUPLICATE);
}
TEST_F(Exchange, WithACorruptPacket) {
    const std::uint64_t before = counters().corrupt;
    run_with(SOFTVERBS_PACKET_CORRUPT);
    EXPECT_GT(counters().corrupt, before);
}
TEST_F(Exchange, WithAPacketThatComesALittleLate) {
    run_with(SOFTVERBS_PACKET_DELAY, 1);
}
TEST_F(Exchange, WithAPacketThatComesAfterItWasSentAgain) {
    run_with(SOFTVERBS_PACKET_DELAY, 15);
}

// The response to the first request is lost, and that to the last one arrives. So the last request
// is done before the earlier ones are acknowledged.
TEST_F(Exchange, WithUnsignalledRequestsInFrontOfOneThatIsDone) {
    for (unsigned n = 1; n <= 8; ++n) {
        SCOPED_TRACE("packet " + std::to_string(n));
        restart([&](ibv_qp_attr& attr) { attr.sq_psn = attr.rq_psn = n << 16U; });
        b.set_number(0, 0);
        receive(b, 100, 8, 64);
        std::vector<Request> requests{request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1),
                                      request(IBV_WR_SEND, 2),
                                      request(IBV_WR_ATOMIC_FETCH_AND_ADD, 3)};
        requests[0].wr.send_flags = 0;
        requests[1].wr.send_flags = 0;
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, n, 0), 0);
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 3, IBV_WC_SUCCESS);
        expect(b, 100, IBV_WC_SUCCESS);
        EXPECT_TRUE(is_empty(a.cq.get()));
        EXPECT_EQ(b.number(0), 2U);
        ASSERT_EQ(softverbs_set_faults(""), 0);
    }
}

TEST_F(Exchange, WithSequenceNumbersThatWrapAround) {
    for (const std::uint32_t psn : {0xffffffU, 0xfffffeU, 0xfffffaU}) {
        restart([&](ibv_qp_attr& attr) { attr.sq_psn = attr.rq_psn = psn; });
        ASSERT_EQ(softverbs_set_faults("packet#3=drop,packet#9=drop,packet#12=duplicate"), 0);
        run();
        EXPECT_EQ(softverbs_pending_faults(), 0U);
    }
}

TEST_F(Retry, DelayedBulkOfMemoryThatIsGoneIsNotTouched) {
    join([](ibv_qp_attr& attr) { attr.retry_cnt = 0; });
    b.fill(std::byte{0xbb});
    constexpr std::uint32_t length = 1U << 20U;
    auto memory = std::make_unique<std::vector<std::byte>>(length, std::byte{0xcc});
    UniqueMr mr = make_mr(memory->data(), length);
    ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1000), 0);
    Request late = request(IBV_WR_RDMA_WRITE, 1, length);
    late.sge = {reinterpret_cast<std::uint64_t>(memory->data()), length, mr->lkey};
    ASSERT_EQ(post(a, late), 0);
    expect(a, 1, IBV_WC_RETRY_EXC_ERR);
    a.qp.reset();
    mr.reset();
    memory.reset();
    EXPECT_EQ(b.memory[0], std::byte{0xbb});
    ManualClock::advance(1s); // the packet arrives, with unchanged data
    EXPECT_EQ(b.memory[0], std::byte{0xcc});
    EXPECT_EQ(b.memory[length - 1], std::byte{0xcc});
    EXPECT_EQ(b.memory[length], std::byte{0xbb});
}

class Ordering : public Retry {};

TEST_F(Ordering, AReadSeesNothingOfLaterRequests) {
    join();
    for (const std::uint32_t length : {8U, 8192U, 1U << 20U}) {
        a.fill(std::byte{0xaa});
        b.fill(std::byte{0xbb});
        const std::size_t apart = std::size_t{2} << 20U;
        std::vector<Request> requests{request(IBV_WR_RDMA_READ, 1, length, apart),
                                      request(IBV_WR_RDMA_WRITE, 2, length, 0)};
        requests[1].wr.wr.rdma.remote_addr = b.address(apart);
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        expect(a, 2, IBV_WC_SUCCESS);
        EXPECT_EQ(a.memory[apart], std::byte{0xbb}) << length;
        EXPECT_EQ(a.memory[apart + length - 1], std::byte{0xbb}) << length;
        EXPECT_EQ(b.memory[apart + length - 1], std::byte{0xaa}) << length;
    }
}

TEST_F(Ordering, AFenceWaitsForReads) {
    join();
    a.fill(std::byte{0xaa});
    b.fill(std::byte{0xbb});
    // The data that was read is written back. The response to the read is lost once.
    ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 2, 0), 0);
    std::vector<Request> requests{request(IBV_WR_RDMA_READ, 1, 64, 0),
                                  request(IBV_WR_RDMA_WRITE, 2, 64, 0)};
    requests[1].wr.wr.rdma.remote_addr = b.address(4096);
    requests[1].wr.send_flags |= IBV_SEND_FENCE;
    b.memory[4096] = std::byte{0};
    ASSERT_EQ(post(a, requests), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(a, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[4096], std::byte{0xbb});
}

// The responder rejects a request that exceeds max_dest_rd_atomic.
TEST_F(Ordering, MoreReadsThanMayBeInFlightAllCome) {
    join([](ibv_qp_attr& attr) { attr.max_rd_atomic = attr.max_dest_rd_atomic = 1; });
    std::vector<Request> requests;
    for (std::uint64_t id = 0; id < 100; ++id) {
        requests.push_back(request(id % 3 == 0   ? IBV_WR_RDMA_READ
                                   : id % 3 == 1 ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                 : IBV_WR_RDMA_READ,
                                   id, id % 3 == 2 ? 100'000 : 8, 0));
    }
    b.set_number(0, 0);
    ASSERT_EQ(softverbs_set_faults("packet#5=drop,packet#30=drop,packet#61=drop"), 0);
    ASSERT_EQ(post(a, requests), 0);
    for (std::uint64_t id = 0; id < 100; ++id) {
        expect(a, id, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(b.number(0), 33U);
}

// The responder keeps the results of 16 atomics. While the oldest response is missing, the
// requester must not send a 17th request.
TEST_F(Ordering, AtomicsWaitForTheOldestResponseThatIsMissing) {
    for (unsigned n = 1; n <= 40; ++n) {
        SCOPED_TRACE("packet " + std::to_string(n));
        restart([](ibv_qp_attr& attr) { attr.max_rd_atomic = attr.max_dest_rd_atomic = 16; });
        std::vector<Request> requests;
        for (std::uint64_t id = 0; id < 60; ++id) {
            requests.push_back(request(IBV_WR_ATOMIC_FETCH_AND_ADD, id));
        }
        b.set_number(0, 0);
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, n, 0), 0);
        ASSERT_EQ(post(a, requests), 0);
        for (std::uint64_t id = 0; id < 60; ++id) {
            expect(a, id, IBV_WC_SUCCESS);
        }
        EXPECT_EQ(b.number(0), 60U);
        ASSERT_EQ(softverbs_pending_faults(), 0U);
    }
}

TEST_F(Ordering, DrainingEndsWhenEverythingSentIsAnswered) {
    join();
    // Requests that did not request an ACK, followed by one that gets an RNR NAK.
    Request silent = request(IBV_WR_RDMA_WRITE, 1);
    silent.wr.send_flags = 0;
    ASSERT_EQ(post(a, silent), 0);
    ASSERT_EQ(post(a, silent), 0);
    ASSERT_EQ(post(a, request(IBV_WR_SEND, 2)), 0);
    ibv_qp_attr notify{};
    notify.en_sqd_async_notify = 1;
    ASSERT_EQ(modify(a.qp.get(), notify, IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    EXPECT_FALSE(next_event());
    // This request is not sent before the queue pair is in the state RTS again.
    ASSERT_EQ(post(a, request(IBV_WR_RDMA_WRITE, 3, 8, 64)), 0);
    a.set_number(64, 5);
    receive(b, 20, 8);
    expect(a, 2, IBV_WC_SUCCESS);
    expect_event(a, IBV_EVENT_SQ_DRAINED);
    EXPECT_TRUE(is_empty(a.cq.get()));
    EXPECT_EQ(b.number(64), 0U);
    ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_RTS, 0), 0);
    expect(a, 3, IBV_WC_SUCCESS);
    EXPECT_EQ(b.number(64), 5U);
}

class Teardown : public Retry {};

TEST_F(Teardown, OverrunInTheMiddleOfTrafficEndsBothInErrorWithoutMore) {
    join();
    const UniqueCq narrow = make_cq(2);
    const UniqueQp good = std::move(b.qp);
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, narrow.get());
    init.cap.max_recv_wr = init.cap.max_send_wr = 64;
    UniqueQp small = make_qp(init);
    b.qp = std::move(small);
    restart([](ibv_qp_attr& attr) { attr.retry_cnt = 1; });
    for (std::uint64_t id = 0; id < 8; ++id) {
        receive(b, id, 8);
        receive(a, id + 20, 8);
    }
    std::vector<Request> requests;
    for (std::uint64_t id = 0; id < 8; ++id) {
        requests.push_back(request(IBV_WR_SEND, id));
    }
    std::vector<Request> back;
    for (std::uint64_t id = 30; id < 34; ++id) {
        back.emplace_back(b, a, IBV_WR_SEND, id, 8);
    }
    ASSERT_EQ(post(b, back), 0);
    ASSERT_EQ(post(a, requests), 0);
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
    ibv_wc completion{};
    EXPECT_LT(ibv_poll_cq(narrow.get(), 1, &completion), 0);
    bool overran = false;
    bool fatal = false;
    while (const auto event = next_event()) {
        overran = overran || event->event_type == IBV_EVENT_CQ_ERR;
        fatal = fatal || event->event_type == IBV_EVENT_QP_FATAL;
    }
    EXPECT_TRUE(overran);
    EXPECT_TRUE(fatal);
    // The requests before the error were acknowledged. The later ones get no response.
    const auto found = poll(a.cq.get(), 3 + 8);
    ASSERT_EQ(found.size(), 11U);
    EXPECT_EQ(std::count_if(found.begin(), found.end(),
                            [](const ibv_wc& wc) { return wc.status == IBV_WC_RETRY_EXC_ERR; }),
              1);
    b.qp.reset();
}

TEST_F(Teardown, OverrunOfTheSendersOwnQueueStopsIt) {
    const UniqueCq narrow = make_cq(4);
    make(IBV_QPT_RC, [&](ibv_qp_init_attr_ex& init) { init.send_cq = narrow.get(); });
    join();
    std::vector<Request> requests(64, request(IBV_WR_RDMA_WRITE, 1, 100'000));
    ASSERT_EQ(post(a, requests), 0);
    EXPECT_EQ(a.state(), IBV_QPS_ERR);
    ibv_wc completion{};
    EXPECT_LT(ibv_poll_cq(narrow.get(), 1, &completion), 0);
    a.qp.reset();
    b.qp.reset();
}

TEST_F(Teardown, DestroyingAQueuePairWhoseRequestsAreInFlightLeavesTheOther) {
    for (int round = 0; round < 20; ++round) {
        make();
        join();
        // Each request gets an RNR NAK, or its response is lost.
        ASSERT_EQ(softverbs_set_faults("packet#2=delay:3,packet#4=drop,packet#6=delay:3"), 0);
        std::vector<Request> requests{
            request(IBV_WR_RDMA_READ, 1, 100'000), request(IBV_WR_RDMA_WRITE, 2, 100'000),
            request(IBV_WR_ATOMIC_FETCH_AND_ADD, 3), request(IBV_WR_SEND, 4, 100'000)};
        ASSERT_EQ(post(a, requests), 0);
        (round % 2 == 0 ? a : b).qp.reset();
        ManualClock::advance(round % 5 * 1ms);
        const Side& left = round % 2 == 0 ? b : a;
        EXPECT_NE(left.state(), IBV_QPS_RESET);
        softverbs_clear_faults();
    }
}

TEST_F(Teardown, TenThousandQueuePairs) {
    constexpr std::size_t count = 10'000;
    std::vector<UniqueQp> all;
    ibv_qp_init_attr_ex init = qp_attributes(IBV_QPT_RC, a.cq.get());
    init.cap = {4, 4, 1, 1, 0};
    for (std::size_t i = 0; i < count; ++i) {
        all.push_back(make_qp(init));
        ASSERT_NE(all.back(), nullptr);
    }
    for (std::size_t i = 0; i < count; ++i) {
        const ibv_qp_attr attr = pair_attributes(all[i ^ 1U]->qp_num);
        to_init(all[i].get());
        to_rtr(all[i].get(), attr);
        to_rts(all[i].get(), attr);
    }
    b.set_number(0, 0);
    std::size_t done = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Request add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, i);
        add.wr.sg_list = &add.sge;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(all[i].get(), &add.wr, &bad), 0);
        if (i % 500 == 499) {
            for (const ibv_wc& wc : poll(a.cq.get(), 500)) {
                done += wc.status == IBV_WC_SUCCESS ? 1 : 0;
            }
        }
    }
    EXPECT_EQ(done, count);
    EXPECT_EQ(b.number(0), count);
}

TEST_F(Retry, RetransmissionsAfterANakCountAsRetries) {
    for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{1}}) {
        SCOPED_TRACE(retries);
        restart([&](ibv_qp_attr& attr) {
            attr.retry_cnt = retries;
            attr.timeout = 20; // 4 s: only a NAK can request a retransmission
        });
        receive(b, 11, 8, 4096);
        receive(b, 12, 8, 4096);
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0), 0);
        std::vector<Request> requests{request(IBV_WR_SEND, 1), request(IBV_WR_SEND, 2)};
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 1, retries == 0 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
        expect(a, 2, retries == 0 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
        if (retries != 0) {
            expect(b, 11, IBV_WC_SUCCESS);
            expect(b, 12, IBV_WC_SUCCESS);
        }
    }
}

TEST_F(Retry, AnInfiniBandPacketGoesToThePortOfItsDlid) {
    ibv_gid own{};
    ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &own), 0);
    ibv_gid other = own;
    other.raw[15] ^= 1;
    const std::uint16_t lid = own_address().dlid;
    const auto status_for = [&](std::uint16_t dlid, const ibv_gid& dgid) {
        restart([&](ibv_qp_attr& attr) {
            attr.retry_cnt = 0;
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.dgid = dgid;
            attr.ah_attr.grh.hop_limit = 1;
            attr.ah_attr.dlid = dlid;
        });
        EXPECT_EQ(post(a, request(IBV_WR_RDMA_WRITE, 1)), 0);
        const std::vector<ibv_wc> found = poll(a.cq.get(), 1);
        return found.empty() ? IBV_WC_GENERAL_ERR : found[0].status;
    };
    EXPECT_EQ(status_for(lid, own), IBV_WC_SUCCESS);
    EXPECT_EQ(status_for(4711, own), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(status_for(0, own), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(status_for(lid, other), IBV_WC_RETRY_EXC_ERR);
}

} // namespace
} // namespace softverbs_test
