// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <chrono>

#include "verbs_test.hpp"

namespace {

using namespace softverbs_test;
using Clock = std::chrono::steady_clock;

class EventModeration : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        channel.reset(ibv_create_comp_channel(context.get()));
        ASSERT_NE(channel, nullptr);
        cq = make_cq(16, channel.get());
        // The agent thread, which raises delayed events, starts with the first queue pair.
        qp = make_qp(IBV_QPT_RC, cq.get());
    }
    void TearDown() override {
        qp.reset();
        cq.reset();
        channel.reset();
        VerbsTest::TearDown();
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

    UniqueChannel channel;
    UniqueCq cq;
    UniqueQp qp;
};

TEST_F(EventModeration, raisesTheEventAtTheCount) {
    ASSERT_EQ(moderate(3, 4000), 0);
    const auto begin = Clock::now();
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    complete();
    const bool early = is_readable(channel->fd);
    // On a busy machine, the lines above may take longer than the period. Then skip this check.
    if (Clock::now() - begin < std::chrono::milliseconds(4)) {
        EXPECT_FALSE(early);
    }
    complete();
    EXPECT_TRUE(is_readable(channel->fd));
    take_event();
    EXPECT_FALSE(is_readable(channel->fd, 10));
}

TEST_F(EventModeration, raisesTheEventAtTheEndOfThePeriod) {
    ASSERT_EQ(moderate(100, 3000), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    const auto begin = Clock::now();
    complete();
    ASSERT_TRUE(is_readable(channel->fd, 20'000));
    EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(3));
    take_event();
}

TEST_F(EventModeration, endsWithItsParameters) {
    ASSERT_EQ(moderate(100, 4000), 0);
    ASSERT_EQ(moderate(0, 0), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    EXPECT_TRUE(is_readable(channel->fd));
    take_event();
}

TEST_F(EventModeration, losesTheEventOfAQueueThatIsDestroyed) {
    ASSERT_EQ(moderate(100, 2000), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    complete();
    qp.reset();
    cq.reset();
    EXPECT_FALSE(is_readable(channel->fd, 10));
}

TEST_F(EventModeration, refusesWhatTheDeviceCannotCount) {
    EXPECT_EQ(moderate(1, 4095), 0);
    EXPECT_EQ(moderate(1, 4096), EINVAL);
    ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE << 1, {1, 1}};
    EXPECT_EQ(ibv_modify_cq(cq.get(), &attr), EOPNOTSUPP);
}

} // namespace
