// SPDX-License-Identifier: BSD-3-Clause
// Long messages within a process: their data is copied in steps, and other threads can call verbs
// between two steps.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "pair_test.hpp"

namespace softverbs_test {
namespace {

constexpr std::size_t step = std::size_t{1} << 20U;
constexpr std::size_t steps = 64;
constexpr std::uint32_t length = steps * step;

class Copying : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        start();
        source.resize(length);
        target.resize(length);
        source_mr = make_mr(source.data(), length, full_access);
        target_mr = make_mr(target.data(), length, full_access);
        for (Side* const side : {&c, &d}) {
            side->memory.resize(4096);
            side->mr = make_mr(side->memory.data(), side->memory.size(), full_access);
            side->cq = make_cq(16);
            side->qp = make_qp(qp_attributes(IBV_QPT_RC, side->cq.get()));
        }
        join(c, d);
        for (std::size_t i = 0; i < length; ++i) {
            source[i] = static_cast<std::byte>(i * 7 + i / 251);
        }
    }
    static std::uint64_t direct_copies() {
        softverbs_counters counters{};
        softverbs_get_counters(&counters);
        return counters.direct_copies;
    }
    /// A request of the queue pair a, from the source to the target; a read: from the target to the
    /// source.
    [[nodiscard]] Request long_request(ibv_wr_opcode opcode, std::uint64_t id) const {
        Request request{a, b, opcode, id, length};
        request.sge = {reinterpret_cast<std::uint64_t>(source.data()), length, source_mr->lkey};
        request.wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(target.data());
        request.wr.wr.rdma.rkey = target_mr->rkey;
        return request;
    }

    std::vector<std::byte> source, target;
    UniqueMr source_mr, target_mr;
    Side c, d;
};

TEST_F(Copying, ALongMessageIsCopiedInSteps) {
    receive(b, 100, {reinterpret_cast<std::uint64_t>(target.data()), length, target_mr->lkey});
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ}) {
        SCOPED_TRACE(opcode);
        std::vector<std::byte>& to = opcode == IBV_WR_RDMA_READ ? source : target;
        const std::vector<std::byte> expected = opcode == IBV_WR_RDMA_READ ? target : source;
        std::ranges::fill(to, std::byte{0xee});
        const std::uint64_t before = direct_copies();
        ASSERT_EQ(post(a, long_request(opcode, 1)), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        EXPECT_EQ(direct_copies() - before, steps);
        EXPECT_TRUE(to == expected);
    }
    EXPECT_EQ(expect(b, 100, IBV_WC_SUCCESS).byte_len, length);
    // On an unreliable connection, too.
    make(IBV_QPT_UC);
    join();
    std::ranges::fill(target, std::byte{0xee});
    const std::uint64_t before = direct_copies();
    ASSERT_EQ(post(a, long_request(IBV_WR_RDMA_WRITE, 1)), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    EXPECT_EQ(direct_copies() - before, steps);
    EXPECT_TRUE(source == target);
}

TEST_F(Copying, AnotherThreadUsesAnotherQueuePairBetweenTheSteps) {
    // The copy may end before the test has made its calls.
    constexpr int attempts = 50;
    bool between = false;
    for (int attempt = 0; attempt < attempts && !between; ++attempt) {
        const std::uint64_t before = direct_copies();
        std::thread poster([this] {
            ASSERT_EQ(post(a, long_request(IBV_WR_RDMA_WRITE, 1)), 0);
            expect(a, 1, IBV_WC_SUCCESS);
        });
        while (direct_copies() == before) {
        }
        ASSERT_EQ(post(c, {c, d, IBV_WR_RDMA_WRITE, 2, 8}), 0);
        expect(c, 2, IBV_WC_SUCCESS);
        between = direct_copies() - before < steps;
        poster.join();
        EXPECT_EQ(direct_copies() - before, steps);
    }
    EXPECT_TRUE(between) << "the lock was held during the whole copy";
}

TEST_F(Copying, LaterRequestsOfTheQueuePairWait) {
    for (const bool is_read : {false, true}) {
        SCOPED_TRACE(is_read);
        std::ranges::fill(a.memory, std::byte{0xaa});
        std::ranges::fill(target, std::byte{0xbb});
        Request second = long_request(is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 2);
        second.sge = {a.address(), 8, a.mr->lkey};
        second.wr.wr.rdma.remote_addr += length - 8;
        std::vector<Request> requests{long_request(IBV_WR_RDMA_WRITE, 1), second};
        ASSERT_EQ(post(a, requests), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        expect(a, 2, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(target.data(), source.data(), length - 8), 0);
        EXPECT_EQ(std::memcmp(target.data() + length - 8,
                              is_read ? source.data() + length - 8 : a.memory.data(), 8),
                  0);
        EXPECT_EQ(std::memcmp(a.memory.data(), target.data() + length - 8, 8), 0);
    }
}

TEST_F(Copying, AMessageSentBeforeItsSourceWasDeregisteredFails) {
    const ManualClock clock; // the agent thread does not finish the copy
    void* const memory =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    UniqueMr mr = make_mr(memory, length);
    Request request = long_request(IBV_WR_RDMA_WRITE, 1);
    request.sge = {reinterpret_cast<std::uint64_t>(memory), length, mr->lkey};
    ASSERT_EQ(post(a, request), 0);
    mr.reset();
    ::munmap(memory, length);
    expect(a, 1, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Copying, AFlushedRequestIsNotCopiedFurther) {
    const ManualClock clock; // the agent thread does not finish the copy
    const std::uint64_t before = direct_copies();
    ASSERT_EQ(post(a, long_request(IBV_WR_RDMA_WRITE, 1)), 0);
    ASSERT_EQ(modify(a.qp.get(), {}, IBV_QPS_ERR, 0), 0);
    const std::uint64_t copied = direct_copies();
    EXPECT_LT(copied - before, steps);
    settle();
    expect(a, 1, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(direct_copies(), copied);
    EXPECT_TRUE(is_empty(b.cq.get()));
}

} // namespace
} // namespace softverbs_test
