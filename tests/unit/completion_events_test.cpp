// SPDX-License-Identifier: BSD-3-Clause
// Events of completion queues in an event loop: epoll, acknowledgements in batches, moderation.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <thread>

#include <rdmabuf/completion_queue.hpp>

#include "manual_clock.hpp"
#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using softverbs_test::ManualClock;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using testing::fails_with;
using testing::is_asleep;
using ::testing::IsEmpty;
using testing::record;
using testing::SoftverbsTest;

constexpr unsigned batch = 64;

class CompletionEvents : public SoftverbsTest {
  protected:
    Context context_ = Context::open_first();
    CompletionChannel channel_{context_};

    static void complete(const CompletionQueue& cq, std::uint64_t wr_id = 1) {
        ibv_wc completion{};
        completion.wr_id = wr_id;
        ASSERT_EQ(softverbs_complete(cq.native(), &completion), 0);
    }
    /// Lets the device raise an event of @p cq, and takes the event without acknowledging it.
    void take_event(const CompletionQueue& cq) const {
        ASSERT_TRUE(cq.request_notification());
        ASSERT_EQ(softverbs_raise_cq_event(cq.native()), 0);
        ASSERT_EQ(channel_.get_event(), cq.native());
    }
};

TEST_F(CompletionEvents, CarryThePointerOfTheProgram) {
    int one = 0;
    int two = 0;
    const CompletionQueue first(context_, {.channel = &channel_, .cq_context = &one});
    const CompletionQueue second(context_, {.channel = &channel_, .cq_context = &two});
    ASSERT_TRUE(first.request_notification());
    ASSERT_TRUE(second.request_notification());
    complete(second);
    complete(first);
    EXPECT_EQ(channel_.wait(20s)->cq_context, &two);
    EXPECT_EQ(channel_.wait(20s)->cq_context, &one);
}

TEST_F(CompletionEvents, AreReportedByEpollAndTakenWithoutWaiting) {
    const CompletionQueue one(context_, {.channel = &channel_});
    const CompletionQueue two(context_, {.channel = &channel_});
    EXPECT_NE(::fcntl(channel_.fd(), F_GETFL) & O_NONBLOCK, 0);
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, channel_.fd(), &wanted), 0);
    epoll_event found{};
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, 0), 0);
    EXPECT_EQ(channel_.get_event(), nullptr);
    ASSERT_TRUE(one.request_notification());
    ASSERT_TRUE(two.request_notification());
    std::thread device([&, waiting = ::gettid()] {
        EXPECT_TRUE(eventually([&] { return is_asleep(waiting); }));
        complete(two);
    });
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, -1), 1);
    device.join();
    EXPECT_EQ(channel_.get_event(), two.native());
    EXPECT_EQ(::epoll_wait(epoll.get(), &found, 1, 0), 0);
    EXPECT_EQ(channel_.get_event(), nullptr);
    two.acknowledge_event();
}

TEST_F(CompletionEvents, ThatCannotBeTakenAreAnError) {
    testing::fail_next("ibv_get_cq_event", EIO);
    EXPECT_THAT(error_of([&] { static_cast<void>(channel_.get_event()); }),
                fails_with("ibv_get_cq_event", EIO, ""));
}

// Acknowledgements

TEST_F(CompletionEvents, AreAcknowledgedManyTogetherAndTheRestWhenTheQueueIsDestroyed) {
    {
        const CompletionQueue cq(context_, {.channel = &channel_});
        for (unsigned i = 0; i < batch + 2; ++i) {
            take_event(cq);
            EXPECT_EQ(record().acknowledgements.size(), i < batch ? 0U : 1U) << i;
            cq.acknowledge_event();
        }
    }
    EXPECT_THAT(record().acknowledgements, ElementsAre(batch, 2U));
}

TEST_F(CompletionEvents, AreAcknowledgedWhenTheQueueIsClosed) {
    CompletionQueue cq(context_, {.channel = &channel_});
    take_event(cq);
    cq.acknowledge_event();
    EXPECT_THAT(record().acknowledgements, IsEmpty());
    cq.close();
    EXPECT_THAT(record().acknowledgements, ElementsAre(1U));
}

TEST_F(CompletionEvents, AreAcknowledgedWhenTheQueueIsReleased) {
    CompletionQueue cq(context_, {.channel = &channel_});
    const CompletionQueue copy = cq;
    take_event(cq);
    take_event(cq);
    cq.acknowledge_event();
    copy.acknowledge_event();
    ibv_cq* const released = cq.release();
    EXPECT_THAT(record().acknowledgements, ElementsAre(2U));
    take_event(copy);
    copy.acknowledge_event();
    EXPECT_THAT(record().acknowledgements, ElementsAre(2U, 1U));
    EXPECT_EQ(ibv_destroy_cq(released), 0);
}

TEST_F(CompletionEvents, OfABorrowedQueueAreAcknowledgedAtOnce) {
    ibv_cq* const cq = ibv_create_cq(context_.native(), 4, nullptr, channel_.native(), 0);
    {
        const CompletionQueue borrowed = CompletionQueue::borrow(cq);
        take_event(borrowed);
        borrowed.acknowledge_event();
        EXPECT_THAT(record().acknowledgements, ElementsAre(1U));
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(CompletionEvents, OfAWaitAreAcknowledgedManyTogether) {
    {
        const CompletionQueue cq(context_, {.channel = &channel_});
        WorkCompletion completion{};
        for (int i = 0; i < 3; ++i) {
            std::thread device([&] {
                EXPECT_TRUE(eventually([&] { return softverbs_cq_armed(cq.native()) != 0; }));
                complete(cq);
            });
            EXPECT_EQ(cq.wait({&completion, 1}, 10s), 1U);
            device.join();
        }
        EXPECT_THAT(record().acknowledgements, IsEmpty());
    }
    EXPECT_EQ(record().acknowledgements.size(), 1U);
    // A completion between polling and arming leaves its event for the next wait.
    EXPECT_GE(record().acknowledgements.at(0), 2U);
}

TEST_F(CompletionEvents, AreCountedByManyThreads) {
    constexpr unsigned each = 1000;
    {
        const CompletionQueue cq(context_, {.channel = &channel_});
        for (unsigned i = 0; i < 2 * each; ++i) {
            take_event(cq);
        }
        const auto acknowledge_half = [&] {
            for (unsigned i = 0; i < each; ++i) {
                cq.acknowledge_event();
            }
        };
        std::thread other(acknowledge_half);
        acknowledge_half();
        other.join();
    }
    unsigned sum = 0;
    for (const unsigned count : record().acknowledgements) {
        sum += count;
    }
    EXPECT_EQ(sum, 2 * each);
    EXPECT_EQ(record().acknowledgements.size(), 2 * each / batch + 1);
}

// Moderation and depth

class ChangedCompletionQueue : public CompletionEvents {
  protected:
    CompletionQueue cq_{context_, {.depth = 8, .channel = &channel_}};
};

TEST_F(ChangedCompletionQueue, RaisesAnEventForSeveralCompletionsOrAfterThePeriod) {
    cq_.moderate(2, 4ms);
    const ManualClock clock;
    for (const bool completes : {false, true}) {
        ASSERT_TRUE(cq_.request_notification());
        complete(cq_);
        ManualClock::advance(4ms - 1ns);
        EXPECT_EQ(channel_.wait(0ms), nullptr);
        completes ? complete(cq_) : ManualClock::advance(1ns);
        EXPECT_EQ(channel_.wait(0ms), cq_.native());
    }
    cq_.moderate(0, 0us);
    ASSERT_TRUE(cq_.request_notification());
    complete(cq_);
    EXPECT_EQ(channel_.wait(0ms), cq_.native());
}

TEST_F(ChangedCompletionQueue, IsModeratedWithinTheLimitsOfTheDevice) {
    EXPECT_THAT(error_of([&] { cq_.moderate(7, 5ms); }),
                fails_with("ibv_modify_cq", EINVAL,
                           "7 completions of at most 65535, 5000 us of at most 4095 on soft0"));
    for (const std::chrono::microseconds period : {-1us, 65'536us}) {
        EXPECT_THAT(error_of([&] { cq_.moderate(7, period); }),
                    fails_with("ibv_modify_cq", EINVAL,
                               std::to_string(period.count()) + " us of at most 4095"));
    }
    testing::change_device([](ibv_device_attr_ex& attributes) { attributes.cq_mod_caps = {}; });
    EXPECT_THAT(error_of([&] { cq_.moderate(1, 1us); }),
                fails_with("ibv_modify_cq", EOPNOTSUPP, "of at most 0"));
}

TEST_F(ChangedCompletionQueue, IsResizedToADepthTheDeviceHas) {
    for (const unsigned depth : {0U, 4097U, std::numeric_limits<unsigned>::max()}) {
        EXPECT_THAT(error_of([&] { cq_.resize(depth); }),
                    fails_with("ibv_resize_cq", EINVAL,
                               "from 8 to " + std::to_string(depth) +
                                   " completions, of at most 4096 on soft0"));
    }
    EXPECT_EQ(cq_.native()->cqe, 8);
    cq_.resize(10);
    EXPECT_EQ(cq_.native()->cqe, 10);
}

} // namespace
} // namespace rdmabuf
