// SPDX-License-Identifier: BSD-3-Clause
// A test stops the clock of softverbs, and does the work of its background threads.
#include <errno.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "command.hpp"
#include "pair_test.hpp"

namespace softverbs_test {
namespace {

using namespace std::chrono_literals;

class Clock : public PairTest {
  protected:
    void SetUp() override {
        PairTest::SetUp();
        channel.reset(ibv_create_comp_channel(context.get()));
        moderated = make_cq(16, channel.get());
    }
    /// Adds a completion whose event is delayed.
    void complete_with_delay(std::uint16_t period_us) const {
        ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE, {100, period_us}};
        ASSERT_EQ(ibv_modify_cq(moderated.get(), &attr), 0);
        ASSERT_EQ(ibv_req_notify_cq(moderated.get(), 0), 0);
        const ibv_wc wc{};
        ASSERT_EQ(softverbs_complete(moderated.get(), &wc), 0);
    }
    void take_event() const {
        ibv_cq* from = nullptr;
        void* cq_context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &from, &cq_context), 0);
        ibv_ack_cq_events(from, 1);
    }

    UniqueChannel channel;
    UniqueCq moderated;
};

TEST_F(Clock, CannotBeMovedWhileItRuns) {
    EXPECT_EQ(softverbs_advance(1), EPERM);
    errno = 0;
    EXPECT_EQ(softverbs_step(), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(softverbs_release_clock(), EPERM);
    const ManualClock clock;
    EXPECT_EQ(softverbs_take_clock(), EBUSY);
    EXPECT_EQ(softverbs_advance(UINT64_MAX), EINVAL);
}

TEST_F(Clock, StandsStillUntilItIsMoved) {
    start();
    const ManualClock clock;
    const auto begin = ManualClock::now();
    complete_with_delay(1);
    EXPECT_EQ(softverbs_next_timer(), 1000U);
    EXPECT_TRUE(eventually([] { return is_at_rest(::getpid()); }));
    EXPECT_FALSE(is_readable(channel->fd)) << "a background thread has run the timer";
    EXPECT_EQ(ManualClock::now(), begin);
    EXPECT_EQ(softverbs_step(), 0);
    ManualClock::advance(999ns);
    EXPECT_FALSE(is_readable(channel->fd));
    ManualClock::advance(1ns);
    EXPECT_TRUE(is_readable(channel->fd));
    EXPECT_EQ(ManualClock::now() - begin, 1us);
    EXPECT_EQ(softverbs_next_timer(), UINT64_MAX);
    take_event();
}

TEST_F(Clock, StopsTheCopyOfALongMessage) {
    start();
    const ManualClock clock;
    a.fill(std::byte{0x77});
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 1, memory_size)), 0);
    EXPECT_TRUE(eventually([] { return is_at_rest(::getpid()); }));
    EXPECT_EQ(b.memory.back(), std::byte{0}) << "a background thread has copied";
    settle();
    EXPECT_EQ(b.memory.back(), std::byte{0x77});
    expect(a, 1, IBV_WC_SUCCESS);
}

TEST_F(Clock, RunsTimersOfAllThreadsInTheOrderOfTheirTimes) {
    timeout = 10;
    start();
    const ManualClock clock;
    // The delayed packet arrives at a port that is down. The retransmissions after 4.2 and 8.4 ms
    // find the port down and up again.
    ASSERT_EQ(softverbs_set_faults("packet#1=delay:5,port=up@6ms,port=down@3ms"), 0);
    a.set_number(0, 77);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 1, 8)), 0);
    ManualClock::advance(8ms);
    EXPECT_EQ(b.number(0), 0U);
    ASSERT_EQ(next_event().value().event_type, IBV_EVENT_PORT_ERR);
    ASSERT_EQ(next_event().value().event_type, IBV_EVENT_PORT_ACTIVE);
    ManualClock::advance(1ms);
    EXPECT_EQ(b.number(0), 77U);
    expect(a, 1, IBV_WC_SUCCESS);
}

TEST_F(Clock, ContinuesWhereItStoodWhenItRunsAgain) {
    start();
    std::uint64_t stood_at = 0;
    {
        const ManualClock clock;
        complete_with_delay(2000);
        ManualClock::advance(1ms);
        EXPECT_FALSE(is_readable(channel->fd));
        stood_at = softverbs_now();
    }
    EXPECT_GE(softverbs_now(), stood_at);
    EXPECT_TRUE(becomes_readable(channel->fd)) << "the agent thread does not run the timer";
    EXPECT_GE(softverbs_now() - stood_at, 1'000'000U);
    take_event();
    const std::uint64_t before = softverbs_now();
    {
        const ManualClock clock;
        ManualClock::advance(1h);
    }
    EXPECT_GE(softverbs_now() - before, std::uint64_t{3600} * 1'000'000'000);
    complete_with_delay(1000);
    EXPECT_TRUE(becomes_readable(channel->fd));
    take_event();
}

TEST_F(Clock, DISABLED_IsStoppedFromTheBeginning) {
    EXPECT_EQ(softverbs_take_clock(), EBUSY);
    complete_with_delay(1);
    ManualClock::advance(1us);
    EXPECT_TRUE(is_readable(channel->fd));
    take_event();
}

TEST_F(Clock, CanBeStoppedByTheEnvironment) {
    const std::string test = "Clock.DISABLED_IsStoppedFromTheBeginning";
    const CommandResult stopped = run_disabled_test(test, "SOFTVERBS_CLOCK=manual");
    EXPECT_EQ(stopped.exit_status, 0) << stopped.output;
    const CommandResult refused = run_disabled_test(test, "SOFTVERBS_CLOCK=fast");
    EXPECT_EQ(refused.exit_status, 2);
    EXPECT_NE(refused.output.find("has to be manual"), std::string::npos) << refused.output;
}

} // namespace
} // namespace softverbs_test
