// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;

/// Returns whether wait() ends before its timeout.
bool wakes(Node& node) {
    return !lasts_at_least(time_limit, [&node] { node.wait(time_limit_ns); });
}

/// Returns whether wait() ends by its timeout.
bool sleeps(Node& node) {
    constexpr std::chrono::milliseconds duration{20};
    return lasts_at_least(duration, [&] { node.wait(std::chrono::nanoseconds(duration).count()); });
}

class WakeTest : public ::testing::Test {
  protected:
    NodeDirectory directory;
    Connected pair{directory.options()};
};

TEST_F(WakeTest, DoesNotArmOverARecord) {
    ASSERT_EQ(send(*pair.there, Lane::requests, "there"), Sent::sent);
    EXPECT_FALSE(pair.b.node->arm());
    pair.b.turn();
    EXPECT_TRUE(pair.b.node->arm());
    ASSERT_EQ(send(*pair.there, Lane::responses, "there"), Sent::sent);
    EXPECT_FALSE(pair.b.node->arm());
}

TEST_F(WakeTest, ARecordWakesAnArmedNode) {
    for (const Lane lane : {Lane::requests, Lane::responses}) {
        ASSERT_TRUE(pair.b.node->arm());
        ASSERT_EQ(send(*pair.there, lane, "wake up"), Sent::sent);
        EXPECT_TRUE(wakes(*pair.b.node));
        pair.b.turn();
    }
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("wake up"));
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_TRUE(sleeps(*pair.b.node)) << "a bell that was heard rings no more";
}

TEST_F(WakeTest, ABellIsHeardWithoutService) {
    ASSERT_TRUE(pair.b.node->arm());
    ASSERT_EQ(send(*pair.there, Lane::requests, "ring"), Sent::sent);
    EXPECT_TRUE(wakes(*pair.b.node));
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 1U);
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_TRUE(sleeps(*pair.b.node));
}

TEST_F(WakeTest, NobodyRingsForANodeThatPolls) {
    ASSERT_TRUE(pair.b.node->arm());
    pair.b.node->disarm();
    ASSERT_EQ(send(*pair.there, Lane::requests, "quiet"), Sent::sent);
    EXPECT_TRUE(sleeps(*pair.b.node));
}

TEST_F(WakeTest, RoomWakesWhoWaitsForIt) {
    const std::string record(1016, 'x');
    while (send(*pair.there, Lane::requests, record) == Sent::sent) {
    }
    ASSERT_TRUE(pair.a.node->arm());
    EXPECT_TRUE(sleeps(*pair.a.node));
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 1), 1U);
    EXPECT_TRUE(wakes(*pair.a.node));
    pair.a.node->progress(pair.a.seen, 1);
    EXPECT_EQ(pair.a.seen.rooms, 1U);
}

TEST_F(WakeTest, RoomThatCameBeforeKeepsFromSleeping) {
    const std::string record(1016, 'x');
    while (send(*pair.there, Lane::requests, record) == Sent::sent) {
    }
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 1), 1U);
    EXPECT_FALSE(pair.a.node->arm());
    pair.a.node->progress(pair.a.seen, 1);
    EXPECT_EQ(pair.a.seen.rooms, 1U);
    EXPECT_TRUE(pair.a.node->arm());
}

TEST_F(WakeTest, ALaneThatFillsUpWhileSomebodySleepsWakesHim) {
    ASSERT_TRUE(pair.a.node->arm());
    const std::string record(1016, 'x');
    while (send(*pair.there, Lane::requests, record) == Sent::sent) {
    }
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 1), 1U);
    EXPECT_TRUE(wakes(*pair.a.node));
}

TEST_F(WakeTest, ARefusedRequestAloneDoesNotKeepFromSleeping) {
    ASSERT_EQ(send(*pair.there, Lane::requests, "no"), Sent::sent);
    pair.b.seen.refusals = 2;
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 0U);
    ASSERT_TRUE(pair.b.node->arm());
    ASSERT_EQ(send(*pair.there, Lane::responses, "a change"), Sent::sent);
    EXPECT_TRUE(wakes(*pair.b.node));
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 1U);
    EXPECT_EQ(pair.b.seen.refusals, 0U);
    EXPECT_TRUE(pair.b.node->arm()) << "the response came before the rejection";
    pair.b.node->progress(pair.b.seen, 64);
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("no"));
}

TEST_F(WakeTest, WhatHappensAfterARefusalKeepsFromSleepingUntilItIsTriedAgain) {
    Peer third(directory.options());
    Connection* const from_third = third.node->connect(pair.b.node->slot());
    ASSERT_NE(from_third, nullptr);
    pair.b.turn();
    ASSERT_EQ(send(*pair.there, Lane::requests, "refused"), Sent::sent);
    pair.b.seen.refusals = 100;
    // The order of the connections changes: the response is processed once before the request is
    // rejected, and once after it.
    unsigned armed = 0;
    for (int round = 0; round < 2; ++round) {
        ASSERT_EQ(send(*from_third, Lane::responses, "a change"), Sent::sent);
        EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 1U);
        armed += pair.b.node->arm() ? 1 : 0;
        pair.b.node->disarm();
    }
    EXPECT_EQ(armed, 1U);
    pair.b.node->progress(pair.b.seen, 64);
    EXPECT_TRUE(pair.b.node->arm());
}

TEST_F(WakeTest, TheEndOfTheOtherSideWakes) {
    ASSERT_TRUE(pair.b.node->arm());
    pair.a.node.reset();
    EXPECT_TRUE(wakes(*pair.b.node));
    pair.b.node->service(pair.b.seen);
    EXPECT_EQ(pair.b.seen.gone, 1U);
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_TRUE(sleeps(*pair.b.node));
}

TEST_F(WakeTest, ANewConnectionWakes) {
    ASSERT_TRUE(pair.b.node->arm());
    Peer third(directory.options());
    ASSERT_NE(third.node->connect(pair.b.node->slot()), nullptr);
    EXPECT_TRUE(wakes(*pair.b.node));
}

TEST_F(WakeTest, AConnectionMadeWhileSomebodySleepsHasABell) {
    ASSERT_TRUE(pair.b.node->arm());
    Peer third(directory.options());
    Connection* const there = third.node->connect(pair.b.node->slot());
    ASSERT_NE(there, nullptr);
    // Only the sockets are serviced. No record was delivered.
    pair.b.node->service(pair.b.seen);
    EXPECT_TRUE(sleeps(*pair.b.node));
    // The connector has not received the doorbell of the acceptor yet.
    ASSERT_EQ(send(*there, Lane::requests, "poke"), Sent::sent);
    EXPECT_TRUE(wakes(*pair.b.node));
    pair.b.turn();
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("poke"));
    ASSERT_TRUE(pair.b.node->arm());
    EXPECT_TRUE(sleeps(*pair.b.node)) << "the poke was read";
}

TEST_F(WakeTest, ABellThatAnotherThreadHeardRingsAgain) {
    ASSERT_TRUE(pair.b.node->arm());
    ASSERT_EQ(send(*pair.there, Lane::requests, "one"), Sent::sent);
    pair.b.turn();
    ASSERT_EQ(send(*pair.there, Lane::requests, "two"), Sent::sent);
    EXPECT_TRUE(wakes(*pair.b.node));
}

TEST_F(WakeTest, WakeEndsOneWaitNowOrLater) {
    ASSERT_TRUE(pair.b.node->arm());
    pair.b.node->wake();
    EXPECT_TRUE(wakes(*pair.b.node));
    EXPECT_TRUE(sleeps(*pair.b.node));
    std::thread waking([this] { pair.b.node->wake(); });
    EXPECT_TRUE(wakes(*pair.b.node));
    waking.join();
}

/// Sleeps while there is nothing to do. Returns false if nothing arrives.
bool sleep_until_woken(Node& node) {
    const bool woken = !node.arm() || wakes(node);
    node.disarm();
    return woken;
}

/// Sends and receives records alternately. Sleeps while there is nothing to do.
void play(Peer& peer, Connection& to, std::size_t rounds, bool starts) {
    std::size_t heard = 0;
    std::size_t said = 0;
    while (heard < rounds) {
        if (said < heard + (starts ? 1 : 0)) {
            ASSERT_EQ(send(to, said % 2 == 0 ? Lane::requests : Lane::responses, "ball"),
                      Sent::sent);
            ++said;
        }
        ASSERT_TRUE(sleep_until_woken(*peer.node));
        peer.node->progress(peer.seen, 64);
        heard = peer.seen.requests.size() + peer.seen.responses.size();
    }
    if (said < rounds) {
        EXPECT_EQ(send(to, Lane::requests, "last ball"), Sent::sent);
    }
    EXPECT_EQ(heard, rounds);
}

TEST_F(WakeTest, NoBellIsMissedInTenThousandRounds) {
    constexpr std::size_t rounds = 10000;
    std::thread other([this] { play(pair.b, *pair.back, rounds, false); });
    play(pair.a, *pair.there, rounds, true);
    other.join();
}

TEST_F(WakeTest, NoRoomIsMissedWhenTheProducerSleeps) {
    constexpr unsigned records = 5000;
    const std::string record(1016, 'x');
    std::thread consumer([this] {
        while (pair.b.seen.requests.size() < records) {
            ASSERT_TRUE(sleep_until_woken(*pair.b.node));
            pair.b.node->progress(pair.b.seen, 3);
        }
    });
    unsigned sent = 0;
    while (sent < records && !HasFailure()) {
        if (send(*pair.there, Lane::requests, record) == Sent::sent) {
            ++sent;
            continue;
        }
        EXPECT_TRUE(sleep_until_woken(*pair.a.node));
        pair.a.node->progress(pair.a.seen, 1);
    }
    consumer.join();
    EXPECT_EQ(sent, records);
    EXPECT_EQ(pair.b.seen.requests.size(), records);
    EXPECT_GT(pair.a.seen.rooms, 0U);
}

} // namespace
} // namespace softverbs::fabric::testing
