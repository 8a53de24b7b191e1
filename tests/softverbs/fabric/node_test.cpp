// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NodeTest : public ::testing::Test {
  protected:
    NodeDirectory directory;
};

TEST_F(NodeTest, CarriesRecordsBothWaysInOrder) {
    Connected pair(directory.options());
    ASSERT_EQ(send(*pair.there, Lane::requests, "one"), Sent::sent);
    ASSERT_EQ(send(*pair.there, Lane::requests, "two"), Sent::sent);
    ASSERT_EQ(send(*pair.back, Lane::requests, "three"), Sent::sent);
    ASSERT_EQ(send(*pair.back, Lane::responses, "four"), Sent::sent);
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 2U);
    EXPECT_EQ(pair.a.node->progress(pair.a.seen, 64), 2U);
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("one", "two"));
    EXPECT_THAT(pair.a.seen.requests, ElementsAre("three"));
    EXPECT_THAT(pair.a.seen.responses, ElementsAre("four"));
}

TEST_F(NodeTest, TakesRecordsThatWereSentBeforeItAccepted) {
    Peer a(directory.options());
    Peer b(directory.options());
    Connection* const there = a.node->connect(b.node->slot());
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(there->slot(), b.node->slot());
    EXPECT_EQ(there->pull_method(), PullMethod::unknown);
    ASSERT_EQ(send(*there, Lane::requests, "early"), Sent::sent);
    EXPECT_EQ(b.node->progress(b.seen, 64), 0U);
    b.turn();
    EXPECT_THAT(b.seen.requests, ElementsAre("early"));
    EXPECT_EQ(b.seen.from->slot(), a.node->slot());
}

TEST_F(NodeTest, ReturnsTheConnectionThereIs) {
    Connected pair(directory.options());
    EXPECT_EQ(pair.a.node->connect(pair.b.node->slot()), pair.there);
    EXPECT_EQ(pair.b.node->connect(pair.a.node->slot()), pair.back);
}

TEST_F(NodeTest, TwoNodesCanConnectAtTheSameMoment) {
    Peer a(directory.options());
    Peer b(directory.options());
    Connection* const there = a.node->connect(b.node->slot());
    Connection* const back = b.node->connect(a.node->slot());
    ASSERT_NE(there, nullptr);
    ASSERT_NE(back, nullptr);
    ASSERT_EQ(send(*there, Lane::requests, "to b"), Sent::sent);
    ASSERT_EQ(send(*back, Lane::requests, "to a"), Sent::sent);
    ASSERT_TRUE(
        turn_until({&a, &b}, [&] { return a.seen.requests.size() + b.seen.requests.size() == 2; }));
    EXPECT_THAT(a.seen.requests, ElementsAre("to a"));
    EXPECT_THAT(b.seen.requests, ElementsAre("to b"));
    EXPECT_EQ(a.seen.gone + b.seen.gone, 0U);
}

TEST_F(NodeTest, CanConnectToItself) {
    Peer a(directory.options());
    Connection* const self = a.node->connect(a.node->slot());
    ASSERT_NE(self, nullptr);
    ASSERT_EQ(send(*self, Lane::requests, "myself"), Sent::sent);
    ASSERT_TRUE(turn_until({&a}, [&] { return !a.seen.requests.empty(); }));
    ASSERT_EQ(send(*a.seen.from, Lane::responses, "yes?"), Sent::sent);
    ASSERT_TRUE(turn_until({&a}, [&] { return !a.seen.responses.empty(); }));
    EXPECT_THAT(a.seen.responses, ElementsAre("yes?"));
}

TEST_F(NodeTest, FindsNobodyInAFreeSlot) {
    Peer a(directory.options());
    errno = 0;
    EXPECT_EQ(a.node->connect((a.node->slot() + 1) % 64), nullptr);
    EXPECT_EQ(errno, ENOENT);
    errno = 0;
    EXPECT_EQ(a.node->connect(64), nullptr);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(NodeTest, CarriesTheLongestRecordInEachLane) {
    Connected pair(directory.options());
    const std::size_t longest = pair.there->max_record();
    EXPECT_EQ(longest, 4096U - 8U);
    const std::string request(longest, 'q');
    const std::string response(longest, 'p');
    for (std::size_t round = 1; round <= 20; ++round) {
        ASSERT_EQ(send(*pair.there, Lane::requests, request), Sent::sent) << round;
        ASSERT_EQ(send(*pair.back, Lane::responses, response), Sent::sent) << round;
        ASSERT_TRUE(pair.turn_until([&] {
            return pair.b.seen.requests.size() == round && pair.a.seen.responses.size() == round;
        }));
        EXPECT_EQ(pair.b.seen.requests.back(), request);
        EXPECT_EQ(pair.a.seen.responses.back(), response);
    }
}

TEST_F(NodeTest, SaysThatALaneIsFullAndOnceWhenItHasRoom) {
    Connected pair(directory.options());
    const std::string record(1016, 'x');
    unsigned sent = 0;
    while (send(*pair.there, Lane::requests, record) == Sent::sent) {
        ASSERT_LT(++sent, 100U);
    }
    EXPECT_GE(sent, 15U);
    EXPECT_FALSE(pair.there->has_room(Lane::requests, record.size()));
    EXPECT_TRUE(pair.there->has_room(Lane::responses, record.size()))
        << "the other lane is its own";
    pair.a.turn();
    EXPECT_EQ(pair.a.seen.rooms, 0U);
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 2), 2U);
    pair.a.turn();
    EXPECT_EQ(pair.a.seen.rooms, 1U);
    pair.a.turn();
    EXPECT_EQ(pair.a.seen.rooms, 1U);
    EXPECT_TRUE(pair.there->has_room(Lane::requests, record.size()));
    EXPECT_EQ(send(*pair.there, Lane::requests, record), Sent::sent);
}

TEST_F(NodeTest, CountsWhatWasSentAndWhatWasTaken) {
    Connected pair(directory.options());
    EXPECT_EQ(pair.there->sent(), 1U);
    EXPECT_EQ(pair.there->taken(), 1U);
    ASSERT_EQ(send(*pair.there, Lane::requests, "one"), Sent::sent);
    ASSERT_EQ(send(*pair.there, Lane::requests, "two"), Sent::sent);
    ASSERT_EQ(send(*pair.there, Lane::responses, "does not count"), Sent::sent);
    EXPECT_EQ(pair.there->sent(), 3U);
    EXPECT_EQ(pair.there->taken(), 1U);
    pair.b.seen.refusals = 1;
    pair.b.node->progress(pair.b.seen, 64);
    EXPECT_EQ(pair.there->taken(), 1U);
    pair.b.node->progress(pair.b.seen, 1);
    EXPECT_EQ(pair.there->taken(), 2U);
    pair.b.node->progress(pair.b.seen, 64);
    EXPECT_EQ(pair.there->taken(), 3U);
}

TEST_F(NodeTest, CountsARequestAsTakenOnlyWhenItIsDoneWith) {
    struct Answering : Recorder {
        bool on_request(Connection& /*asking*/, std::span<const std::byte> /*record*/) override {
            taken_meanwhile = asker->taken();
            return true;
        }
        Connection* asker = nullptr;
        std::uint64_t taken_meanwhile = 0;
    };
    Connected pair(directory.options());
    ASSERT_EQ(send(*pair.there, Lane::requests, "question"), Sent::sent);
    Answering answering;
    answering.asker = pair.there;
    pair.b.node->progress(answering, 1);
    EXPECT_EQ(answering.taken_meanwhile, 1U);
    EXPECT_EQ(pair.there->taken(), 2U);
}

TEST_F(NodeTest, KeepsToItsBudgetAndTakesTurns) {
    Peer target(directory.options());
    std::vector<std::unique_ptr<Peer>> senders;
    for (const std::string name : {"a", "b", "c"}) {
        senders.push_back(std::make_unique<Peer>(directory.options()));
        Connection* const there = senders.back()->node->connect(target.node->slot());
        ASSERT_NE(there, nullptr);
        for (int record = 0; record < 4; ++record) {
            ASSERT_EQ(send(*there, Lane::requests, name), Sent::sent);
        }
    }
    target.node->service(target.seen);
    EXPECT_EQ(target.node->progress(target.seen, 2), 2U);
    EXPECT_EQ(target.node->progress(target.seen, 2), 2U);
    EXPECT_EQ(target.node->progress(target.seen, 2), 2U);
    auto& order = target.seen.requests;
    std::sort(order.begin(), order.end());
    EXPECT_THAT(order, ElementsAre("a", "a", "b", "b", "c", "c"));
}

TEST_F(NodeTest, HandsOutAllThatArrivedBeforeItSaysThatTheOtherSideIsGone) {
    Connected pair(directory.options());
    ASSERT_EQ(send(*pair.there, Lane::requests, "one"), Sent::sent);
    ASSERT_EQ(send(*pair.there, Lane::requests, "two"), Sent::sent);
    ASSERT_EQ(send(*pair.there, Lane::responses, "three"), Sent::sent);
    pair.a.node.reset();
    pair.b.node->service(pair.b.seen);
    EXPECT_EQ(pair.b.seen.gone, 0U);
    EXPECT_EQ(send(*pair.back, Lane::requests, "to nobody"), Sent::closed);
    EXPECT_TRUE(pair.back->has_room(Lane::requests, 1)) << "who waits for room would wait for ever";
    pair.b.seen.refusals = 1;
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 1U);
    EXPECT_EQ(pair.b.seen.gone, 0U);
    EXPECT_EQ(pair.b.node->progress(pair.b.seen, 64), 2U);
    EXPECT_EQ(pair.b.seen.gone, 1U);
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("one", "two"));
    EXPECT_THAT(pair.b.seen.responses, ElementsAre("three"));
    pair.b.turn();
    EXPECT_EQ(pair.b.seen.gone, 1U);
}

TEST_F(NodeTest, ConnectsAnewToTheNextNodeInASlotBeforeItKnowsThatTheFirstIsGone) {
    NodeOptions options = directory.options();
    options.slots = 2;
    Connected pair(options);
    const unsigned slot = pair.b.node->slot();
    pair.b.node.reset();
    pair.b.node = std::make_unique<Node>(options);
    ASSERT_EQ(pair.b.node->slot(), slot) << "the only one that was free";
    // The node checks at most once per millisecond whether the other process is alive.
    Connection* again = pair.there;
    ASSERT_TRUE(turn_until({}, [&] {
        again = pair.a.node->connect(slot);
        return again != pair.there;
    }));
    ASSERT_NE(again, nullptr);
    ASSERT_EQ(send(*again, Lane::requests, "who are you?"), Sent::sent);
    ASSERT_TRUE(pair.turn_until([&] { return !pair.b.seen.requests.empty(); }));
    EXPECT_THAT(pair.b.seen.requests, ElementsAre("who are you?"));
    EXPECT_EQ(pair.a.seen.gone, 1U);
}

TEST_F(NodeTest, CanConnectAgainWhenItHearsThatTheOtherSideIsGone) {
    struct Again : Recorder {
        void on_closed(Connection& connection) override {
            Recorder::on_closed(connection);
            again = node->connect(connection.slot());
        }
        Node* node = nullptr;
        Connection* again = nullptr;
    };
    NodeOptions options = directory.options();
    options.slots = 2;
    Connected pair(options);
    pair.b.node.reset();
    pair.b.node = std::make_unique<Node>(options);
    Again handler;
    handler.node = pair.a.node.get();
    pair.a.node->service(handler);
    EXPECT_EQ(handler.gone, 1U);
    ASSERT_NE(handler.again, nullptr);
    EXPECT_EQ(send(*handler.again, Lane::requests, "again"), Sent::sent);
}

TEST_F(NodeTest, LeavesNothingOpenBehind) {
    const std::size_t before = open_descriptors();
    {
        Connected pair(directory.options());
        ASSERT_EQ(send(*pair.there, Lane::requests, "one"), Sent::sent);
    }
    EXPECT_EQ(open_descriptors(), before);
    {
        Peer a(directory.options());
        for (int round = 0; round < 10; ++round) {
            Peer b(directory.options());
            ASSERT_NE(b.node->connect(a.node->slot()), nullptr);
            a.turn();
            b.turn();
            EXPECT_EQ(a.seen.gone, static_cast<unsigned>(round));
            b.node.reset();
            a.turn();
        }
        EXPECT_EQ(a.seen.gone, 10U);
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_THAT(directory.names(), IsEmpty());
}

} // namespace
} // namespace softverbs::fabric::testing
