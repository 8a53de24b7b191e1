// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;
using namespace std::chrono_literals;

class EventModeration : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        channel.reset(ibv_create_comp_channel(context.get()));
        ASSERT_NE(channel, nullptr);
        cq = make_cq(16, channel.get());
    }
    [[nodiscard]] int moderate(std::uint16_t count, std::uint16_t period_us) const {
        ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {count, period_us}};
        return ibv_modify_cq(cq.get(), &attr);
    }
    void complete() const {
        const ibv_wc wc{};
        ASSERT_EQ(softverbs_complete(cq.get(), &wc), 0);
    }
    void take_event() const {
        ibv_cq* from = nullptr;
        void* cq_context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &from, &cq_context), 0);
        EXPECT_EQ(from, cq.get());
        ibv_ack_cq_events(from, 1);
    }

    ManualClock clock;
    UniqueChannel channel;
    UniqueCq cq;
};

TEST_F(EventModeration, raisesTheEventAtTheCount) {
    ASSERT_EQ(moderate(3, 4000), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    complete();
    ManualClock::advance(3999us);
    EXPECT_FALSE(is_readable(channel->fd));
    complete();
    EXPECT_TRUE(is_readable(channel->fd));
    take_event();
    ManualClock::advance(10ms);
    EXPECT_FALSE(is_readable(channel->fd));
}

TEST_F(EventModeration, endsWithItsQueueAlsoWhileTheDestructionWaitsForAnAcknowledgement) {
    ASSERT_EQ(moderate(100, 3000), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    ManualClock::advance(3ms);
    ibv_cq* from = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &from, &cq_context), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    EXPECT_NE(softverbs_next_timer(), UINT64_MAX);
    EXPECT_EQ(softverbs_unacknowledged_events(), 1U);
    std::atomic<pid_t> waiter{0};
    std::thread destroyer([&] {
        waiter = ::gettid();
        EXPECT_EQ(ibv_destroy_cq(cq.release()), 0);
    });
    EXPECT_TRUE(eventually([&] { return waiter != 0 && is_asleep(waiter); }));
    EXPECT_EQ(softverbs_next_timer(), UINT64_MAX);
    ibv_ack_cq_events(from, 1);
    destroyer.join();
    EXPECT_EQ(softverbs_live(SOFTVERBS_CQ), 0U);
}

TEST_F(EventModeration, endsWithItsParameters) {
    ASSERT_EQ(moderate(100, 4000), 0);
    ASSERT_EQ(moderate(0, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    EXPECT_TRUE(is_readable(channel->fd));
    take_event();
}

TEST_F(EventModeration, refusesWhatTheDeviceCannotCount) {
    EXPECT_EQ(moderate(1, 4095), 0);
    EXPECT_EQ(moderate(1, 4096), EINVAL);
    ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE << 1, {1, 1}};
    EXPECT_EQ(ibv_modify_cq(cq.get(), &attr), EOPNOTSUPP);
}

} // namespace
