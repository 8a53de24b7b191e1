// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/completion_queue.hpp>

#include "poll_counter.hpp"
#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::error_of;
using testing::eventually;
using testing::fails_with;
using testing::lasts_at_least;
using testing::PollCounter;
using testing::SoftverbsTest;

ibv_wc completion(std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.status = status;
    return wc;
}

/// Waits until a thread has armed the queue. That thread polls once more, and then sleeps.
void wait_until_armed(const CompletionQueue& cq) {
    EXPECT_TRUE(eventually([&] { return softverbs_cq_armed(cq.native()) != 0; }));
}

/// Something completes.
void complete(const CompletionQueue& cq, const ibv_wc& completion) {
    EXPECT_EQ(softverbs_complete(cq.native(), &completion), 0);
}

class CompletionQueueTest : public SoftverbsTest {
  protected:
    Context context_ = Context::open_first();
    std::array<WorkCompletion, 4> found_{};
};

TEST_F(CompletionQueueTest, IsMadeAsAskedAndOnlyPolledByDefault) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.depth = 17, .channel = &channel, .vector = 3});
    const auto& made = testing::record().cqs.at(0);
    EXPECT_EQ(made.depth, 17);
    EXPECT_EQ(made.channel, channel.native());
    EXPECT_EQ(made.vector, 3);
    EXPECT_EQ(cq.native()->cqe, 17);

    const CompletionQueue plain(context_);
    const auto& by_default = testing::record().cqs.at(1);
    EXPECT_EQ(by_default.depth, 256);
    EXPECT_EQ(by_default.channel, nullptr);
    EXPECT_EQ(by_default.vector, 0);
}

TEST_F(CompletionQueueTest, NeedsADepthTheDeviceHas) {
    for (const unsigned depth : {0U, 4097U, std::numeric_limits<unsigned>::max()}) {
        EXPECT_THAT(error_of([&] { CompletionQueue(context_, {.depth = depth}); }),
                    fails_with("ibv_create_cq", EINVAL,
                               "depth " + std::to_string(depth) +
                                   " of at most 4096, vector 0 of 4 on soft0"));
    }
}

TEST_F(CompletionQueueTest, NeedsAVectorTheDeviceHas) {
    for (const int vector : {-1, 4}) {
        EXPECT_THAT(error_of([&] { CompletionQueue(context_, {.vector = vector}); }),
                    fails_with("ibv_create_cq", EINVAL,
                               "vector " + std::to_string(vector) + " of 4 on soft0"));
    }
}

TEST_F(CompletionQueueTest, IsPolledOldestFirstIntoASpan) {
    const CompletionQueue cq(context_);
    EXPECT_EQ(cq.poll(found_), 0);
    for (std::uint64_t id = 1; id <= 6; ++id) {
        complete(cq, completion(id));
    }
    EXPECT_EQ(cq.poll(found_), 4);
    EXPECT_EQ(found_[0].wr_id, 1U);
    EXPECT_EQ(found_[3].wr_id, 4U);
    EXPECT_EQ(cq.poll(found_[0]), 1);
    EXPECT_EQ(found_[0].wr_id, 5U);
    EXPECT_EQ(cq.poll({}), 0);
    EXPECT_EQ(cq.poll(found_), 1);
    EXPECT_EQ(found_[0].wr_id, 6U);
}

TEST_F(CompletionQueueTest, WithoutAChannelWaitsByPolling) {
    const CompletionQueue cq(context_);
    PollCounter counter(context_);
    counter.before_each_poll([&] {
        if (counter.polls == 1000) {
            complete(cq, completion(1));
        }
    });
    EXPECT_EQ(cq.wait(found_, wait_forever), 1U);
    EXPECT_EQ(counter.polls, 1000U);
    EXPECT_TRUE(testing::record().notifications.empty());
}

TEST_F(CompletionQueueTest, WithAChannelSleepsUntilTheEvent) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    std::thread device([&] {
        wait_until_armed(cq);
        complete(cq, completion(1));
        complete(cq, completion(2));
    });
    std::size_t count = cq.wait(found_, wait_forever);
    while (count < 2) {
        count += cq.wait(std::span(found_).subspan(count), wait_forever);
    }
    device.join();
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(found_[1].wr_id, 2U);
    EXPECT_THAT(testing::record().notifications, ::testing::Contains(false));
    EXPECT_THAT(testing::record().notifications, ::testing::Not(::testing::Contains(true)));
}

TEST_F(CompletionQueueTest, RefusesToWaitForWhatHasNoRoom) {
    const CompletionQueue cq(context_);
    EXPECT_THAT(
        error_of([&] { static_cast<void>(cq.wait({}, wait_forever)); }),
        fails_with("ibv_poll_cq", EINVAL, "there is no room for a completion: the span is empty"));
}

TEST_F(CompletionQueueTest, StopsWaitingWhenTheTimeIsOver) {
    const CompletionChannel channel(context_);
    const CompletionQueue polled(context_);
    const CompletionQueue announced(context_, {.channel = &channel});
    for (const CompletionQueue* const cq : {&polled, &announced}) {
        EXPECT_EQ(cq->wait(found_, 0ms), 0U);
        EXPECT_FALSE(cq->wait_one(0ms));
        EXPECT_TRUE(lasts_at_least(30ms, [&] { EXPECT_EQ(cq->wait(found_, 30ms), 0U); }));
    }
}

TEST_F(CompletionQueueTest, TakesWhatIsThereEvenWhenThereIsNoTime) {
    const CompletionQueue cq(context_);
    complete(cq, completion(1));
    EXPECT_EQ(cq.wait(found_, 0ms), 1U);
}

TEST_F(CompletionQueueTest, WaitsForTheLongestTimeThereIs) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    std::thread device([&] {
        wait_until_armed(cq);
        complete(cq, completion(1));
    });
    EXPECT_EQ(cq.wait(found_, std::chrono::milliseconds::max()), 1U);
    device.join();
}

TEST_F(CompletionQueueTest, OutlivesAnEventThatCameForWhatWasPolledBefore) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    ASSERT_TRUE(cq.request_notification());
    complete(cq, completion(1));
    EXPECT_EQ(cq.poll(found_), 1);
    // The event is still there, and nothing to poll with it.
    EXPECT_EQ(cq.wait(found_, 20ms), 0U);
}

// The two ways to sleep through a completion. Without the care taken, each wait lasts all its time.

TEST_F(CompletionQueueTest, SeesWhatCameBetweenPollingAndAskingForAnEvent) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    const ibv_wc late = completion(1);
    ASSERT_EQ(softverbs_complete_before_request(cq.native(), &late), 0);
    // The completion raises no event: a thread that does not see it sleeps for ever.
    EXPECT_EQ(cq.wait(found_, wait_forever), 1U);
}

TEST_F(CompletionQueueTest, AsksAgainAfterAnEventWithNothingToPoll) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    std::thread device([&] {
        wait_until_armed(cq);
        EXPECT_EQ(softverbs_raise_cq_event(cq.native()), 0);
        wait_until_armed(cq);
        complete(cq, completion(1));
    });
    EXPECT_EQ(cq.wait(found_, wait_forever), 1U);
    device.join();
    EXPECT_EQ(testing::record().notifications.size(), 2U);
}

// Several threads

/// Lets another thread read the event between the readiness of the descriptor and the read: the
/// thread does so when the test's thread enters ibv_get_cq_event().
TEST_F(CompletionQueueTest, StopsWaitingWhenAnotherThreadTakesTheEvent) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    for (const bool through_queue : {true, false}) {
        ASSERT_TRUE(cq.request_notification());
        ASSERT_EQ(softverbs_raise_cq_event(cq.native()), 0);
        bool stolen = false;
        testing::before_each_call([&](const char* verb) {
            if (std::string_view(verb) == "ibv_get_cq_event" && !std::exchange(stolen, true)) {
                EXPECT_EQ(channel.wait(0ms), cq.native());
            }
        });
        EXPECT_TRUE(lasts_at_least(50ms, [&] {
            if (through_queue) {
                EXPECT_EQ(cq.wait(found_, 50ms), 0U);
            } else {
                EXPECT_EQ(channel.wait(50ms), nullptr);
            }
        }));
        EXPECT_TRUE(stolen);
        testing::before_each_call(nullptr);
    }
}

TEST_F(CompletionQueueTest, WakesEveryThreadForWhichThereIsACompletion) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    constexpr unsigned count = 4;
    std::atomic<unsigned> taken = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; ++i) {
        threads.emplace_back([copy = cq, &taken] {
            WorkCompletion one{};
            taken += static_cast<unsigned>(copy.wait({&one, 1}, wait_forever));
        });
    }
    wait_until_armed(cq);
    // One event is raised for all of them.
    for (std::uint64_t id = 1; id <= count; ++id) {
        complete(cq, completion(id));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(taken, count);
}

TEST_F(CompletionQueueTest, StopsWaitingWhenTheTimeIsOverWhileAnotherThreadSleeps) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    std::thread longer([copy = cq] {
        WorkCompletion one{};
        EXPECT_EQ(copy.wait({&one, 1}, wait_forever), 1U);
    });
    wait_until_armed(cq);
    EXPECT_TRUE(lasts_at_least(30ms, [&] { EXPECT_EQ(cq.wait(found_, 30ms), 0U); }));
    // The other thread is still asleep, and takes the completion.
    EXPECT_NE(softverbs_cq_armed(cq.native()), 0);
    complete(cq, completion(1));
    longer.join();
}

TEST_F(CompletionQueueTest, ThatWasAdoptedSleepsOnItsChannel) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(context_.native());
    ASSERT_NE(channel, nullptr);
    {
        const CompletionQueue adopted = CompletionQueue::adopt(
            context_, ibv_create_cq(context_.native(), 16, nullptr, channel, 0));
        const CompletionQueue borrowed = CompletionQueue::borrow(adopted.native());
        for (const CompletionQueue* const cq : {&adopted, &borrowed}) {
            PollCounter counter(context_);
            EXPECT_EQ(cq->wait(found_, 300ms), 0U);
            // Before and after the queue is armed, and after the sleep; the sleep may end in the
            // last millisecond.
            EXPECT_LE(counter.polls, 10U);
            std::thread device([&] {
                wait_until_armed(*cq);
                complete(*cq, completion(1));
            });
            EXPECT_EQ(cq->wait(found_, wait_forever), 1U);
            device.join();
        }
    }
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(CompletionQueueTest, ThatIsBrokenSaysSo) {
    const CompletionQueue cq(context_);
    ASSERT_EQ(softverbs_break_cq(cq.native()), 0);
    EXPECT_LT(cq.poll(found_), 0);
    EXPECT_THAT(error_of([&] { static_cast<void>(cq.wait(found_, 1s)); }),
                fails_with("ibv_poll_cq", EIO, "most likely it overran"));
}

TEST_F(CompletionQueueTest, DoesNotTakeAnotherQueuesEventForItsOwn) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    const CompletionQueue other(context_, {.channel = &channel});
    ASSERT_TRUE(other.request_notification());
    complete(other, completion(1));
    EXPECT_THAT(error_of([&] { static_cast<void>(cq.wait(found_, 1s)); }),
                fails_with("ibv_get_cq_event", EINVAL, "CompletionChannel::wait"));
    EXPECT_EQ(other.poll(found_), 1);
}

TEST_F(CompletionQueueTest, ThatCannotBeArmedSaysSo) {
    const CompletionChannel channel(context_);
    const CompletionQueue cq(context_, {.channel = &channel});
    testing::fail_next("ibv_req_notify_cq", EIO);
    EXPECT_THAT(error_of([&] { static_cast<void>(cq.wait(found_, 1s)); }),
                fails_with("ibv_req_notify_cq", EIO, ""));
    testing::fail_next("ibv_req_notify_cq", EIO);
    EXPECT_EQ(cq.request_notification(), Status(EIO));
}

TEST_F(CompletionQueueTest, CanBeToldAboutSolicitedCompletionsOnly) {
    const CompletionQueue cq(context_);
    EXPECT_TRUE(cq.request_notification());
    EXPECT_TRUE(cq.request_notification(true));
    EXPECT_THAT(testing::record().notifications, ElementsAre(false, true));
}

} // namespace
} // namespace rdmabuf
