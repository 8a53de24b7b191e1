// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <chrono>

#include "pair_test.hpp"
#include "two_processes.hpp"

namespace {

using namespace softverbs_test;

constexpr unsigned rounds = 100;

class Disorder : public PairTest {
  protected:
    void TearDown() override {
        EXPECT_EQ(softverbs_set_disorder(nullptr), 0);
        PairTest::TearDown();
    }
    ManualClock clock;

    void start_with(const char* disorder) {
        start();
        ASSERT_EQ(softverbs_set_disorder(disorder), 0);
    }
    /// Writes a number to the start of the memory of b.
    void write(std::uint64_t value) {
        a.set_number(0, value);
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, value, 8)), 0);
    }
};

TEST_F(Disorder, refusesWhatItDoesNotKnow) {
    EXPECT_EQ(softverbs_set_disorder("acks,qps,writes:17"), 0);
    EXPECT_EQ(softverbs_set_disorder("all"), 0);
    EXPECT_EQ(softverbs_set_disorder("some"), EINVAL);
    EXPECT_EQ(softverbs_set_disorder("acks:x"), EINVAL);
    EXPECT_EQ(softverbs_set_disorder(""), 0);
}

TEST_F(Disorder, ofAcknowledgementsLeavesTheDataWhereItIs) {
    start_with("acks:1");
    unsigned late = 0;
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        write(i);
        EXPECT_EQ(b.number(0), i);
        ibv_wc wc{};
        if (ibv_poll_cq(a.cq.get(), 1, &wc) == 0) {
            ++late;
            expect(a, i, IBV_WC_SUCCESS);
        }
    }
    EXPECT_GT(late, 0U);
}

TEST_F(Disorder, ofQueuePairsKeepsTheOrderOfEach) {
    start_with("qps:2");
    constexpr std::uint64_t count = 20;
    unsigned overtaken = 0;
    for (unsigned round = 0; round < 20; ++round) {
        for (std::uint64_t i = 0; i < count; ++i) {
            receive(a, 100 + i, 64, 4096);
            receive(b, 200 + i, 64, 4096);
        }
        for (std::uint64_t i = 0; i < count; ++i) {
            ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, i, 64)), 0);
        }
        ASSERT_EQ(post(b, Request(b, a, IBV_WR_SEND, 0, 64)), 0);
        // The message of b was sent last. It has overtaken messages of a if it arrives before the
        // last one of a.
        std::uint64_t from_a = 0;
        std::uint64_t sent = 0;
        bool from_b = false;
        bool early = false;
        do {
            ibv_wc wc{};
            for (const Side* const side : {&b, &a}) {
                while (ibv_poll_cq(side->cq.get(), 1, &wc) == 1) {
                    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
                    if (wc.opcode == IBV_WC_SEND) {
                        ++sent;
                    } else if (side == &a) {
                        from_b = true;
                        early = from_a < count;
                    } else {
                        ASSERT_EQ(wc.wr_id, 200 + from_a);
                        ++from_a;
                    }
                }
            }
        } while ((from_a < count || !from_b || sent < count + 1) && move_on());
        ASSERT_EQ(from_a, count);
        ASSERT_TRUE(from_b);
        overtaken += early ? 1U : 0U;
        // Consume the remaining receive requests, because the next round would take them first.
        for (std::uint64_t i = 1; i < count; ++i) {
            ASSERT_EQ(post(b, Request(b, a, IBV_WR_SEND, i, 64)), 0);
        }
        poll(a.cq.get(), count - 1);
        poll(b.cq.get(), count - 1);
    }
    EXPECT_GT(overtaken, 0U);
}

TEST_F(Disorder, ofWritesHidesThemFromTheTargetForAWhile) {
    start_with("writes:3");
    unsigned hidden = 0;
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        write(i);
        expect(a, i, IBV_WC_SUCCESS);
        hidden += b.number(0) != i ? 1U : 0U;
    }
    EXPECT_GT(hidden, 0U);
    ManualClock::advance(std::chrono::milliseconds(2)); // nobody calls verbs
    EXPECT_EQ(b.number(0), rounds);
}

TEST_F(Disorder, ofWritesEndsWithAReceiveCompletion) {
    start_with("writes:4");
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        receive(b, i, 64, 4096);
        write(i);
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, i, 8, 8)), 0);
        expect(b, i, IBV_WC_SUCCESS);
        ASSERT_EQ(b.number(0), i);
        poll(a.cq.get(), 2);
    }
}

TEST_F(Disorder, ofWritesEndsWithAReadBack) {
    start_with("writes:5");
    for (std::uint64_t i = 1; i <= rounds; ++i) {
        write(i);
        Request read(a, b, IBV_WR_RDMA_READ, i, 1, 64);
        ASSERT_EQ(post(a, read), 0);
        poll(a.cq.get(), 2);
        ASSERT_EQ(b.number(0), i);
    }
}

TEST_F(Disorder, ofWritesEndsWhenTheRegionIsDeregistered) {
    start_with("writes:6");
    write(77);
    expect(a, 77, IBV_WC_SUCCESS);
    b.mr.reset();
    EXPECT_EQ(b.number(0), 77U);
}

class DisorderOfTwoProcesses : public TwoProcesses {};

TEST_F(DisorderOfTwoProcesses, losesNothing) {
    const auto role = [](bool writes) {
        return [writes](End& end) {
            done(softverbs_set_disorder("all:9"), "softverbs_set_disorder");
            constexpr std::uint32_t length = 200'000;
            for (unsigned i = 0; i < 10; ++i) {
                if (writes) {
                    end.put(0, length, i);
                    end.post(IBV_WR_RDMA_WRITE, 1, 0, length, 300'000);
                    end.expect(1);
                    end.post(IBV_WR_SEND, 2, 0, 100, 0);
                    end.expect(2);
                } else {
                    end.receive(3, 600'000, 100);
                    end.expect(3);
                    EXPECT_TRUE(end.has(300'000, length, i)) << i;
                }
                end.meet();
            }
        };
    };
    retries = 7; // a busy machine may delay acknowledgements further
    run(role(true), role(false));
}

/// The packets of one message do not fit into the ring of the connection at the same time.
TEST_F(DisorderOfTwoProcesses, keepsTheOrderOfPacketsThatWaitForRoomInTheRing) {
    const auto role = [](bool sends) {
        return [sends](End& end) {
            done(softverbs_set_disorder("qps:3"), "softverbs_set_disorder");
            for (unsigned i = 0; i < 30; ++i) {
                if (sends) {
                    end.put(0, half, i);
                    end.post(IBV_WR_SEND, 1, 0, half, 0);
                    end.expect(1);
                } else {
                    end.receive(2, half, half);
                    end.expect(2);
                    EXPECT_TRUE(end.has(half, half, i)) << i;
                }
                end.meet();
            }
        };
    };
    run(role(true), role(false));
}

} // namespace
