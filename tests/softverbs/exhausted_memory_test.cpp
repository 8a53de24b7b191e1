// SPDX-License-Identifier: BSD-3-Clause
// Verbs when memory is exhausted: they return an error or continue later, but throw no exception.
#include <errno.h>

#include <exception>

#include "failing_malloc.hpp"
#include "pair_test.hpp"

namespace softverbs_test {
namespace {

/// Makes the allocations of this thread fail.
thread_local bool exhausted = false;

class AllocationFailure : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        malloc_fails = [] { return exhausted; };
    }
    void TearDown() override {
        malloc_fails = nullptr;
        PairTest::TearDown();
    }

    /// Connects the queue pairs, and sends one message. The send queue is allocated by the first
    /// post.
    void start_and_send() {
        timeout = 10;
        start();
        receive(b, 12, 8);
        ASSERT_EQ(post(a, {a, b, IBV_WR_SEND, 11, 8}), 0);
        expect(a, 11, IBV_WC_SUCCESS);
        expect(b, 12, IBV_WC_SUCCESS);
    }
};

TEST_F(AllocationFailure, FailsAPostThatAllocatesTheSendQueue) {
    start();
    receive(b, 2, 8);
    Request request(a, b, IBV_WR_SEND, 1, 8);
    request.wr.sg_list = &request.sge;
    ibv_send_wr* bad = nullptr;
    exhausted = true;
    const int error = ibv_post_send(a.qp.get(), &request.wr, &bad);
    exhausted = false;
    EXPECT_EQ(error, ENOMEM);
    EXPECT_EQ(bad, &request.wr);
    ASSERT_EQ(post(a, request), 0);
    expect(a, 1, IBV_WC_SUCCESS);
    expect(b, 2, IBV_WC_SUCCESS);
}

TEST_F(AllocationFailure, DelaysARequestOrLeavesItToARetry) {
    start_and_send();
    // Larger than the packets of the fast path, which need no allocation.
    constexpr std::uint32_t length = 4096;
    a.fill(std::byte{5});
    receive(b, 2, length);
    Request request(a, b, IBV_WR_SEND, 1, length);
    request.wr.sg_list = &request.sge;
    ibv_send_wr* bad = nullptr;
    exhausted = true;
    const int error = ibv_post_send(a.qp.get(), &request.wr, &bad);
    exhausted = false;
    EXPECT_EQ(error, 0); // the request is in the send queue
    expect(a, 1, IBV_WC_SUCCESS);
    expect(b, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[length - 1], std::byte{5});
    // Later packets within the process are delivered, too.
    receive(b, 4, length);
    ASSERT_EQ(post(a, {a, b, IBV_WR_SEND, 3, length}), 0);
    expect(a, 3, IBV_WC_SUCCESS);
    expect(b, 4, IBV_WC_SUCCESS);
}

TEST_F(AllocationFailure, LeavesDelayedPacketsToLaterCalls) {
    start_and_send();
    ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1), 0);
    receive(b, 2, 8);
    exhausted = true;
    Request request(a, b, IBV_WR_SEND, 1, 8);
    request.wr.sg_list = &request.sge;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(a.qp.get(), &request.wr, &bad);
    ibv_wc wc{};
    const int found = ibv_poll_cq(a.cq.get(), 1, &wc);
    exhausted = false;
    EXPECT_EQ(error, 0);
    if (found == 0) {
        expect(a, 1, IBV_WC_SUCCESS);
    }
    expect(b, 2, IBV_WC_SUCCESS);
}

TEST_F(AllocationFailure, DoesNotKeepADeviceOpen) {
    start();
    const std::size_t before = softverbs_live(SOFTVERBS_CONTEXT);
    ibv_context* const other = ibv_open_device(context->device);
    ASSERT_NE(other, nullptr);
    ibv_pd* const left = ibv_alloc_pd(other);
    ASSERT_NE(left, nullptr);
    exhausted = true;
    const int error = ibv_close_device(other);
    exhausted = false;
    expected_violations = 1; // the context still has an object
    EXPECT_EQ(error, 0);
    EXPECT_EQ(softverbs_live(SOFTVERBS_CONTEXT), before);
    EXPECT_EQ(ibv_dealloc_pd(left), 0);
}

} // namespace

} // namespace softverbs_test
