// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "sanitizers.hpp"
#include "two_processes.hpp"

namespace {

using softverbs_test::eventually;
using softverbs_test::is_asleep;
using softverbs_test::is_at_rest;

/// A context with a completion queue that has a channel.
struct Resources {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* context = ibv_open_device(list[0]);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* cq = ibv_create_cq(context, 4, nullptr, channel, 0);

    void destroy() {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
        ibv_free_device_list(list);
        EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
    }
};

/// Starts a thread that calls @p wait, and cancels it when it waits.
void cancel(const std::function<void()>& wait) {
    std::atomic<pid_t> id = 0;
    std::atomic<bool> returned = false;
    std::thread thread([&] {
        id = ::gettid();
        wait();
        returned = true;
    });
    EXPECT_TRUE(eventually([&] { return is_asleep(id); }));
    EXPECT_EQ(::pthread_cancel(thread.native_handle()), 0);
    thread.join();
    EXPECT_FALSE(returned);
}

TEST(Cancellation, EndsAThreadInGetCqEventAndLeavesTheNextEvent) {
    Resources resources;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    cancel([&] { ibv_get_cq_event(resources.channel, &cq, &context); });
    ASSERT_EQ(ibv_req_notify_cq(resources.cq, 0), 0);
    ASSERT_EQ(softverbs_raise_cq_event(resources.cq), 0);
    ASSERT_EQ(ibv_get_cq_event(resources.channel, &cq, &context), 0);
    EXPECT_EQ(cq, resources.cq);
    ibv_ack_cq_events(cq, 1);
    resources.destroy();
}

TEST(Cancellation, EndsAThreadInGetAsyncEventAndLeavesTheNextEvent) {
    Resources resources;
    ibv_async_event event{};
    cancel([&] { ibv_get_async_event(resources.context, &event); });
    ibv_async_event raised{};
    raised.event_type = IBV_EVENT_PORT_ERR;
    raised.element.port_num = 1;
    ASSERT_EQ(softverbs_raise_event(resources.context, &raised), 0);
    ASSERT_EQ(ibv_get_async_event(resources.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
    ibv_ack_async_event(&event);
    resources.destroy();
}

/// Calls verbs while a cancellation of the thread is pending. The verbs complete, and the thread
/// ends after them.
void* create_and_destroy(void* argument) {
    auto& done = *static_cast<bool*>(argument);
    ::pthread_cancel(::pthread_self());
    Resources resources;
    EXPECT_EQ(ibv_req_notify_cq(resources.cq, 0), 0);
    EXPECT_EQ(softverbs_raise_cq_event(resources.cq), 0);
    resources.destroy();
    done = true;
    ::pthread_testcancel();
    return nullptr;
}

/// Posts and polls with a cancellation that is pending, to a queue pair of another process that
/// sleeps.
void* post_and_poll(void* argument) {
    auto& [end, done] = *static_cast<std::pair<softverbs_test::End&, bool>*>(argument);
    ::pthread_cancel(::pthread_self());
    const auto expect = [cq = end.cq](std::uint64_t id) {
        ibv_wc wc{};
        while (ibv_poll_cq(cq, 1, &wc) == 0) { // eventually() is a cancellation point
        }
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    };
    for (std::uint64_t id = 0; id < 4; ++id) {
        end.post(id % 2 == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, id, 0, 8,
                 id % 2 == 0 ? 0 : softverbs_test::half);
        expect(id);
    }
    end.post(IBV_WR_RDMA_READ, 4, 0, softverbs_test::one_mib, 0);
    expect(4);
    end.receive(5, 0, 8);
    done = true;
    ::pthread_testcancel();
    return nullptr;
}

using softverbs_test::End;
using CancellationInTwoProcesses = softverbs_test::TwoProcesses;

TEST_F(CancellationInTwoProcesses, DoesNotInterruptPostAndPoll) {
    for (const softverbs_test::Memory kind :
         {softverbs_test::Memory::host, softverbs_test::Memory::memfd}) {
        memory = kind;
        run(
            [](End& end) {
                std::pair<End&, bool> argument(end, false);
                const auto other = end.hear<pid_t>();
                // The agent threads of both processes sleep, so that posting wakes them.
                EXPECT_TRUE(
                    eventually([&] { return is_at_rest(::getpid()) && is_at_rest(other); }));
                pthread_t thread{};
                ASSERT_EQ(::pthread_create(&thread, nullptr, post_and_poll, &argument), 0);
                void* result = nullptr;
                ASSERT_EQ(::pthread_join(thread, &result), 0);
                EXPECT_EQ(result, PTHREAD_CANCELED);
                EXPECT_TRUE(argument.second);
            },
            [](End& end) {
                end.receive(0, softverbs_test::half, 8);
                end.receive(2, softverbs_test::half, 8);
                end.tell(::getpid());
            });
    }
}

TEST(Cancellation, DoesNotInterruptOtherVerbs) {
    bool done = false;
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(&thread, nullptr, create_and_destroy, &done), 0);
    void* result = nullptr;
    ASSERT_EQ(::pthread_join(thread, &result), 0);
    EXPECT_EQ(result, PTHREAD_CANCELED);
    EXPECT_TRUE(done);
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
}

void exit_in_handler(int) {
    ::exit(7);
}

/// Registers and deregisters memory in a loop, until a signal ends the process.
[[noreturn]] void register_until_signal(unsigned microseconds) {
    Resources resources;
    ibv_pd* const pd = ibv_alloc_pd(resources.context);
    // Creating a queue pair starts the agent thread. The process must end this thread at its exit.
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = resources.cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    ibv_create_qp(pd, &init);
    std::array<char, 64> memory{};
    ::signal(SIGALRM, exit_in_handler);
    const itimerval timer{{0, 0}, {0, static_cast<suseconds_t>(microseconds)}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
    while (true) {
        ibv_dereg_mr(ibv_reg_mr(pd, memory.data(), memory.size(), int{IBV_ACCESS_LOCAL_WRITE}));
    }
}

/// Returns the wait status of a process. Kills the process if it does not end.
int status_of(pid_t process) {
    int status = 0;
    if (!eventually([&] { return ::waitpid(process, &status, WNOHANG) == process; })) {
        ::kill(process, SIGKILL);
        ::waitpid(process, &status, 0);
    }
    return status;
}

TEST(ExitInASignalHandler, EndsTheProcessWhereverItInterruptsAVerb) {
    if (softverbs_test::thread_sanitizer) {
        GTEST_SKIP() << "ThreadSanitizer reports exit(3) in a signal handler";
    }
    for (unsigned round = 0; round < 20; ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            register_until_signal(2000 + 37 * round);
        }
        const int status = status_of(child);
        ASSERT_TRUE(WIFEXITED(status)) << "round " << round << ": it did not end by itself";
        ASSERT_EQ(WEXITSTATUS(status), 7);
    }
}

} // namespace
