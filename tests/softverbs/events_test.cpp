// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "verbs_test.hpp"
#include "waiting.hpp"

namespace {

using rdmabuf::testing::eventually;
using rdmabuf::testing::is_asleep;
using softverbs_test::is_readable;
using softverbs_test::UniqueContext;
using softverbs_test::VerbsTest;

using EventsTest = VerbsTest;

TEST_F(EventsTest, TellEveryContextThatAPortWentDownAndCameBack) {
    const UniqueContext another(ibv_open_device(context->device));
    ASSERT_NE(another, nullptr);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0); // nothing new
    ibv_port_attr port{};
    ASSERT_EQ(ibv_query_port(context.get(), 1, &port), 0);
    EXPECT_EQ(port.state, IBV_PORT_DOWN);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    for (ibv_context* const each : {context.get(), another.get()}) {
        for (const ibv_event_type expected : {IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}) {
            ASSERT_TRUE(is_readable(each->async_fd));
            ibv_async_event event{};
            ASSERT_EQ(ibv_get_async_event(each, &event), 0);
            EXPECT_EQ(event.event_type, expected);
            EXPECT_EQ(event.element.port_num, 1);
            EXPECT_EQ(softverbs_unacknowledged_events(), 1U);
            ibv_ack_async_event(&event);
            EXPECT_EQ(softverbs_unacknowledged_events(), 0U);
        }
        EXPECT_FALSE(is_readable(each->async_fd));
    }
    EXPECT_EQ(softverbs_set_port_state(0, 2, IBV_PORT_DOWN), EINVAL);
    EXPECT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_INIT), EINVAL);
    EXPECT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), ENODEV);
}

TEST_F(EventsTest, AreNotWaitedForWhenTheProgramDoesNotWant) {
    ASSERT_EQ(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(context.get(), &event), -1);
    EXPECT_EQ(errno, EAGAIN);
}

TEST_F(EventsTest, WakeAThreadThatWaits) {
    std::atomic<pid_t> waiter_id = 0;
    ibv_async_event event{};
    std::thread waiter([&] {
        waiter_id = gettid();
        EXPECT_EQ(ibv_get_async_event(context.get(), &event), 0);
        ibv_ack_async_event(&event);
    });
    EXPECT_TRUE(eventually([&] { return is_asleep(waiter_id); }));
    EXPECT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    waiter.join();
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
}

TEST_F(EventsTest, AcknowledgedMoreOftenThanTakenAreAViolation) {
    const auto cq = make_cq(4);
    const auto qp = make_qp(IBV_QPT_RC, cq.get());
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_FATAL;
    event.element.qp = qp.get();
    ibv_ack_async_event(&event);
    expected_violations = 1;
    EXPECT_EQ(softverbs_unacknowledged_events(), 0U);
}

TEST_F(EventsTest, SayThatTheDeviceDiedWhichFlushesWhatIsOutstanding) {
    auto cq = make_cq(8);
    auto qp = make_qp(IBV_QPT_RC, cq.get());
    connect(qp.get(), qp->qp_num);
    ibv_recv_wr receive{};
    receive.wr_id = 5;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp.get(), &receive, &bad), 0);
    const auto untouched = make_qp(IBV_QPT_RC, cq.get());

    ASSERT_EQ(softverbs_fail_device(context.get()), 0);
    ASSERT_EQ(softverbs_fail_device(context.get()), 0); // dead already
    const auto event = next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_DEVICE_FATAL);
    EXPECT_FALSE(next_event());
    const auto completions = poll(cq.get(), 1);
    ASSERT_EQ(completions.size(), 1U);
    EXPECT_EQ(completions[0].wr_id, 5U);
    EXPECT_EQ(completions[0].status, IBV_WC_WR_FLUSH_ERR);

    EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);
    EXPECT_EQ(errno, EIO);
    ibv_port_attr port{};
    EXPECT_EQ(ibv_query_port(context.get(), 1, &port), EIO);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), EIO);
    // Another context of the device still works, and objects of the failed context can be
    // destroyed.
    const UniqueContext another(ibv_open_device(context->device));
    ASSERT_NE(another, nullptr);
    EXPECT_EQ(ibv_query_port(another.get(), 1, &port), 0);
}

} // namespace
