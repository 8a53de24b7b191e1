// SPDX-License-Identifier: BSD-3-Clause
// Verbs when memory is exhausted: they return an error or continue later, but throw no exception.
#include <errno.h>
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include <gmock/gmock.h>

#include "cm_fixture.hpp"
#include "efa_test.hpp"
#include "two_processes.hpp"

namespace {

/// Makes the allocations of this thread fail.
thread_local bool exhausted = false;
/// Makes one of the next allocations of this thread fail; 1: the next one, 0: none.
thread_local unsigned failing_allocation = 0;
/// The name of a thread whose allocations fail; null: none.
std::atomic<const char*> failing_thread{nullptr};
/// Number of allocations of that thread that have failed.
std::atomic<unsigned> failures{0};

bool fails_here() noexcept {
    const char* const name = failing_thread.load();
    if (name == nullptr) {
        return exhausted || (failing_allocation != 0 && --failing_allocation == 0);
    }
    std::array<char, 16> own{};
    ::prctl(PR_GET_NAME, own.data());
    const bool fails = std::string_view(own.data()) == name;
    failures += fails ? 1 : 0;
    return fails;
}

} // namespace

// The name by which glibc's own malloc can be called if a program replaces it.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" void* __libc_malloc(std::size_t size);

// It serves the program and its libraries. libsoftverbs.so contains the operator new of its own C++
// library, which calls malloc(3).
extern "C" void* malloc(std::size_t size) noexcept {
    if (fails_here()) {
        errno = ENOMEM;
        return nullptr;
    }
    return __libc_malloc(size);
}

namespace softverbs_test {
namespace {

/// More than the allocations of the calls below, one of which fails.
constexpr unsigned most_allocations = 6;

/// Connects another RC queue pair of each end.
ibv_qp* add_queue_pair(End& end, std::uint8_t timeout = 0) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.cap = {128, 128, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = made(ibv_create_qp(end.pd, &init), "ibv_create_qp");
    end.tell(qp->qp_num);
    Address peer = end.peer;
    peer.qp_number = end.hear<std::uint32_t>();
    connect_queue_pair(qp, peer, timeout, 1);
    end.meet();
    return qp;
}

// The tests with two processes must be the first ones, because the others call verbs in the process
// that forks here.
TEST_F(TwoProcesses, ReleaseQueuePairsFromAFullRingThoughMemoryIsExhausted) {
    constexpr std::uint32_t length = 8192;
    constexpr std::uint64_t requests = 100; // more than the ring holds
    pull = "none";
    run(
        [&](End& end) {
            ibv_qp* const queue_pairs[] = {end.qp, add_queue_pair(end)};
            const auto target = end.hear<pid_t>();
            for (unsigned allocation = 1; allocation <= most_allocations; ++allocation) {
                {
                    const ManualClock clock; // this thread does all the work
                    stop(target);
                    for (std::uint64_t id = 0; id < requests; ++id) {
                        for (ibv_qp* const qp : queue_pairs) {
                            end.qp = qp;
                            end.post(IBV_WR_RDMA_WRITE, id, 0, length);
                        }
                    }
                    ::kill(target, SIGCONT);
                    EXPECT_TRUE(eventually([target] { return is_at_rest(target); }));
                    failing_allocation = allocation;
                    static_cast<void>(softverbs_step());
                    failing_allocation = 0;
                }
                for (std::uint64_t completion = 0; completion < 2 * requests; ++completion) {
                    EXPECT_EQ(end.next().status, IBV_WC_SUCCESS);
                }
            }
            end.tell('d');
        },
        [&](End& end) {
            add_queue_pair(end);
            end.tell(::getpid());
            static_cast<void>(end.hear<char>());
        });
}

TEST_F(TwoProcesses, RemoveAClosedConnectionThoughMemoryIsExhausted) {
    type = IBV_QPT_UD;
    run(
        [](End& end) {
            ibv_qp* const datagrams = end.qp;
            ibv_qp* const reliable = add_queue_pair(end, 10);
            const auto target = end.hear<pid_t>();
            const ManualClock clock;
            for (std::uint64_t id = 0; id < 127; ++id) { // more than the ring holds
                end.post(IBV_WR_SEND, id, 0, 4096);
            }
            end.peer.qp_number = datagrams->qp_num;
            end.post(IBV_WR_SEND, 127, 0, 64);
            end.qp = reliable;
            end.post(IBV_WR_RDMA_WRITE, 128, 0, 64);
            end.tell('e');
            EXPECT_TRUE(eventually([target] { return all_threads_are('Z', target); }));
            // When the connection is closed, memory is needed to delay the message from the process
            // to itself.
            done(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1), "delay");
            exhausted = true;
            static_cast<void>(softverbs_step());
            exhausted = false;
            ManualClock::advance(std::chrono::seconds(1));
            for (std::uint64_t id = 0; id < 128; ++id) {
                end.expect(id);
            }
            const ibv_wc wc = end.next();
            EXPECT_EQ(wc.wr_id, 128U);
            EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(wc.status);
            std::exit(HasFailure() ? 1 : 0); // the other end is gone
        },
        [](End& end) {
            add_queue_pair(end);
            const ManualClock clock; // this process consumes nothing
            end.tell(::getpid());
            static_cast<void>(end.hear<char>());
            ::_exit(0);
        });
}

class AllocationFailureOfSrd : public EfaTest {};

TEST_F(AllocationFailureOfSrd, LeavesRetransmissionsToLaterCalls) {
    start(7);
    for (unsigned allocation = 1; allocation <= most_allocations; ++allocation) {
        SCOPED_TRACE(allocation);
        const ManualClock clock;
        ASSERT_EQ(a.send(1, ah.get(), to_b, a.sge(0, 64)), 0);
        ManualClock::advance(std::chrono::microseconds(60)); // b has no receive request
        ASSERT_EQ(b.receive(2, b.sge(0, 64)), 0);
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1), 0);
        failing_allocation = allocation;
        ManualClock::advance(std::chrono::milliseconds(100));
        failing_allocation = 0;
        a.expect(1);
        b.expect(2);
    }
}

class AllocationFailure : public PairTest {
  protected:
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
    exhausted = true;
    const int error = post(a, {a, b, IBV_WR_SEND, 1, length});
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
    const int error = post(a, {a, b, IBV_WR_SEND, 1, 8});
    ibv_wc wc{};
    const int found = ibv_poll_cq(a.cq.get(), 1, &wc);
    exhausted = false;
    EXPECT_EQ(error, 0);
    if (found == 0) {
        expect(a, 1, IBV_WC_SUCCESS);
    }
    expect(b, 2, IBV_WC_SUCCESS);
}

TEST_F(AllocationFailure, LeavesExpiredTimersToLaterCalls) {
    constexpr std::uint32_t length = 4096;
    for (unsigned allocation = 1; allocation <= most_allocations; ++allocation) {
        SCOPED_TRACE(allocation);
        start_and_send();
        const ManualClock clock;
        // Both queue pairs wait because the other one has no receive request.
        ASSERT_EQ(post(a, {a, b, IBV_WR_SEND, 1, length}), 0);
        ASSERT_EQ(post(b, {b, a, IBV_WR_SEND, 2, length}), 0);
        settle();
        receive(a, 3, length);
        receive(b, 4, length);
        // The delay of the packet needs memory.
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DELAY, 1, 1), 0);
        failing_allocation = allocation;
        ManualClock::advance(std::chrono::milliseconds(100));
        failing_allocation = 0;
        std::vector<std::uint64_t> completed;
        for (const Side* const side : {&a, &b}) {
            for (const ibv_wc& wc : poll(side->cq.get(), 2)) {
                EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
                completed.push_back(wc.wr_id);
            }
        }
        EXPECT_THAT(completed, testing::UnorderedElementsAre(1, 2, 3, 4));
    }
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

TEST_F(AllocationFailure, IsReturnedByTheFunctionsThatPlanFaults) {
    ASSERT_EQ(softverbs_fail_call("ibv_reg_mr", 1, EIO), 0);
    softverbs_clear_faults();
    exhausted = true;
    const int call = softverbs_fail_call("ibv_create_comp_channel", 1, EIO);
    const int packet = softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0);
    const int faults = softverbs_set_faults("create_comp_channel=ENOMEM");
    exhausted = false;
    EXPECT_EQ(call, ENOMEM);
    EXPECT_EQ(packet, ENOMEM);
    EXPECT_EQ(faults, ENOMEM);
    EXPECT_EQ(softverbs_pending_faults(), 0U);
}

// This must be the last test, because librdmacm keeps the devices open, which softverbs_reset()
// does not permit.
TEST(AllocationFailureInTheConnectionManager, LosesAMessage) {
    const Channel server;
    const Channel client;
    const UniqueId listener = server.listen();
    const UniqueId first = client.route(ntohs(rdma_get_src_port(listener.get())));
    const UniqueId second = client.route(ntohs(rdma_get_src_port(listener.get())));
    rdma_conn_param sent = parameters("first");
    failing_thread = "softverbs-cm";
    EXPECT_EQ(rdma_connect(first.get(), &sent), 0);
    ASSERT_TRUE(eventually([] { return failures != 0; }));
    failing_thread = nullptr;
    sent = parameters("second");
    ASSERT_EQ(rdma_connect(second.get(), &sent), 0);
    const SeenEvent request = server.next();
    EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
    const UniqueId accepted(request.id);
}

} // namespace
} // namespace softverbs_test
