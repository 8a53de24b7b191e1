// SPDX-License-Identifier: BSD-3-Clause
// The backend of NIXL, called by NixlCore in the order in which NIXL's core calls it.
#include <softverbs/softverbs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/context.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

#include "core.hpp"
#include "raw_peer.hpp"
#include "thread_clock.hpp"
#include "waiting.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::size_t block = 16384;
constexpr std::size_t many = 4096;
constexpr std::size_t some = 1024;

/// Two agents with memory, which know each other.
class NixlBackend : public ::testing::Test {
  protected:
    void TearDown() override { stop(); }
    /// Starts both agents, and fills the memory of the left one with a pattern.
    void start(std::size_t blocks, bool progress_thread = false) {
        stop();
        from_.resize(blocks * block);
        for (std::size_t i = 0; i < from_.size(); ++i) {
            from_[i] = static_cast<std::uint8_t>(i * 7 + i / block + 1);
        }
        to_.assign(from_.size(), 0);
        start(left_, "left", from_, progress_thread);
        start(right_, "right", to_, progress_thread);
        ASSERT_EQ(left_->load_remote_metadata(right_->local_metadata()), NIXL_SUCCESS);
        ASSERT_EQ(right_->load_remote_metadata(left_->local_metadata()), NIXL_SUCCESS);
    }
    void stop() {
        request_.reset();
        left_.reset();
        right_.reset();
    }
    static void start(std::unique_ptr<NixlCore>& agent, const char* name,
                      const std::vector<std::uint8_t>& memory, bool progress_thread = false) {
        agent = std::make_unique<NixlCore>(name);
        ASSERT_EQ(agent->create_backend({{"host", "127.0.0.1"}}, progress_thread), NIXL_SUCCESS);
        ASSERT_EQ(agent->register_memory(memory), NIXL_SUCCESS);
    }
    /// Creates request_, which transfers block i of the left agent to or from block order[i] of the
    /// right agent.
    void create(nixl_xfer_op_t operation, const std::vector<std::size_t>& order) {
        std::vector<NixlBlock> blocks;
        for (std::size_t i = 0; i < order.size(); ++i) {
            blocks.push_back({&from_[i * block], &to_[order[i] * block], block});
        }
        ASSERT_EQ(left_->create_request(operation, blocks, "right", request_), NIXL_SUCCESS);
    }
    /// Creates and posts a request of all blocks.
    void post_all(nixl_xfer_op_t operation = NIXL_WRITE) {
        std::vector<std::size_t> order(from_.size() / block);
        std::iota(order.begin(), order.end(), std::size_t{0});
        create(operation, order);
        ASSERT_EQ(left_->post(*request_), NIXL_IN_PROG);
    }
    /// Makes progress at both agents until request_ has ended.
    nixl_status_t finish() {
        nixl_status_t status = NIXL_IN_PROG;
        EXPECT_TRUE(eventually(
            [&] {
                status = left_->status(*request_);
                return status != NIXL_IN_PROG;
            },
            [&] { collect(); }));
        return status;
    }
    /// Expects that the backend completes request_, whatever the core says of it.
    void expect_success() {
        EXPECT_TRUE(eventually(
            [&] { return left_->engine().checkXfer(request_->handle()) != NIXL_IN_PROG; },
            [&] { collect(); }));
        EXPECT_EQ(left_->engine().checkXfer(request_->handle()), NIXL_SUCCESS);
    }
    /// Makes progress at both agents, and keeps the notifications that arrive.
    void collect() {
        for (const auto& [agent, kept] : {std::pair(&left_, &to_left_), {&right_, &to_right_}}) {
            for (auto& notification : *agent ? (*agent)->notifications() : notif_list_t()) {
                kept->push_back(std::move(notification));
            }
        }
    }
    /// Connects the agents. A notification arrives behind the data that was written before.
    void await_notification() {
        ASSERT_EQ(left_->engine().genNotif("right", "x"), NIXL_SUCCESS);
        const std::size_t wanted = to_right_.size() + 1;
        ASSERT_TRUE(eventually([&] { return to_right_.size() == wanted; }, [&] { collect(); }));
    }
    [[nodiscard]] bool block_arrived(std::size_t from, std::size_t to) const {
        return std::equal(&from_[from * block], &from_[from * block] + block, &to_[to * block]);
    }

    /// The memory of the agents. It is freed after the backends: with SOFTVERBS_DISORDER, data can
    /// become visible after the completion of an RDMA write.
    std::vector<std::uint8_t> from_;
    std::vector<std::uint8_t> to_;
    std::unique_ptr<NixlCore> left_;
    std::unique_ptr<NixlCore> right_;
    NixlCore::RequestPointer request_;
    notif_list_t to_left_;
    notif_list_t to_right_;
};

TEST_F(NixlBackend, IsDescribedByThePlugin) {
    EXPECT_EQ(nixl_plugin().api_version, 1);
    EXPECT_STREQ(nixl_plugin().get_plugin_name(), "RDMABUF");
    EXPECT_THAT(nixl_plugin().get_backend_mems(), ElementsAre(DRAM_SEG, VRAM_SEG));
    EXPECT_EQ(nixl_plugin().get_backend_options().count("device"), 1U);
}

TEST_F(NixlBackend, LogsTheReasonIfItCannotStart) {
    const auto log_of_start = [](const char* profile, unsigned devices,
                                 const nixl_b_params_t& parameters) {
        EXPECT_EQ(softverbs_reset(profile, devices), 0);
        ::testing::internal::CaptureStderr();
        NixlCore agent("left");
        EXPECT_EQ(agent.create_backend(parameters), NIXL_ERR_BACKEND);
        return ::testing::internal::GetCapturedStderr();
    };
    EXPECT_THAT(log_of_start("default", SOFTVERBS_NO_DEVICES, {}), HasSubstr("no RDMA device"));
    EXPECT_THAT(log_of_start("efa", 1, {}), HasSubstr("ibv_create_srq"));
    EXPECT_THAT(log_of_start("default", 1, {{"device", "mlx5_99"}}), HasSubstr("mlx5_99"));
}

TEST_F(NixlBackend, Moves4096BlocksInOneListWithOneNotificationAndReadsThemBack) {
    start(many);
    const std::vector<std::uint8_t> expected = from_;
    std::vector<std::size_t> order(many);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(7)); // NOLINT(cert-msc51-cpp)

    create(NIXL_WRITE, order);
    ASSERT_EQ(left_->post(*request_, "the blocks are written"), NIXL_IN_PROG);
    EXPECT_EQ(finish(), NIXL_SUCCESS);
    ASSERT_TRUE(eventually([&] { return !to_right_.empty(); }, [&] { collect(); }));
    for (std::size_t i = 0; i < many; ++i) {
        ASSERT_TRUE(block_arrived(i, order[i])) << "block " << i;
    }
    EXPECT_EQ(left_->release(request_), NIXL_SUCCESS);

    std::ranges::fill(from_, std::uint8_t{0});
    create(NIXL_READ, order);
    ASSERT_EQ(left_->post(*request_, "the blocks are read"), NIXL_IN_PROG);
    EXPECT_EQ(finish(), NIXL_SUCCESS);
    EXPECT_EQ(from_, expected);
    ASSERT_TRUE(eventually([&] { return to_right_.size() == 2; }, [&] { collect(); }));
    EXPECT_THAT(to_right_, ElementsAre(Pair("left", "the blocks are written"),
                                       Pair("left", "the blocks are read")));
    EXPECT_TRUE(to_left_.empty());
}

TEST_F(NixlBackend, PostsATransferAgainAfterItHasEnded) {
    start(2);
    create(NIXL_WRITE, {1});
    for (std::uint8_t round = 1; round <= 3; ++round) {
        std::fill_n(from_.begin(), block, round);
        ASSERT_GE(left_->post(*request_), 0);
        EXPECT_EQ(finish(), NIXL_SUCCESS);
        await_notification();
        EXPECT_TRUE(block_arrived(0, 1));
        EXPECT_EQ(to_[block - 1], 0);
    }
}

TEST_F(NixlBackend, SendsNotificationsOfEveryLengthInTheirOrder) {
    start(1);
    constexpr std::array<std::size_t, 8> lengths = {0, 1, 600, 1024, 1025, 16384, 20000, 1000000};
    for (const std::size_t length : lengths) {
        ASSERT_EQ(left_->engine().genNotif("right", std::string(length, 'x')), NIXL_SUCCESS);
        ASSERT_EQ(right_->engine().genNotif("left", std::string(length, 'y')), NIXL_SUCCESS);
    }
    ASSERT_TRUE(eventually(
        [&] { return to_left_.size() == lengths.size() && to_right_.size() == lengths.size(); },
        [&] { collect(); }));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        EXPECT_EQ(to_right_[i], std::pair(std::string("left"), std::string(lengths[i], 'x')));
        EXPECT_EQ(to_left_[i], std::pair(std::string("right"), std::string(lengths[i], 'y')));
    }
}

// NIXL's core cannot invalidate the metadata of the agent itself.
TEST_F(NixlBackend, TransfersWithinAnAgentAgainAfterAFailure) {
    start(2);
    const auto transfer = [&] {
        EXPECT_EQ(left_->create_request(NIXL_READ, {{from_.data(), &from_[block], block}}, "left",
                                        request_),
                  NIXL_SUCCESS);
        const nixl_status_t status = left_->post(*request_);
        return status == NIXL_IN_PROG ? finish() : status;
    };
    EXPECT_EQ(transfer(), NIXL_SUCCESS);
    EXPECT_TRUE(std::equal(from_.data(), &from_[block], &from_[block]));
    ASSERT_EQ(softverbs_fail_call("ibv_post_send", 1, EIO), 0);
    EXPECT_EQ(transfer(), NIXL_ERR_REMOTE_DISCONNECT);
    EXPECT_EQ(transfer(), NIXL_SUCCESS);
}

TEST_F(NixlBackend, DescribesMemoryInAsFewBytesAsUcx) {
    start(1);
    EXPECT_LE(left_->local_metadata().memory.front().metaInfo.size(), 52U);
}

TEST_F(NixlBackend, RefusesWhatItDoesNotKnow) {
    start(1);
    EXPECT_EQ(left_->create_request(NIXL_READ, {{from_.data(), &to_[1], block}}, "right", request_),
              NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(left_->create_request(NIXL_READ, {{&from_[1], to_.data(), block}}, "right", request_),
              NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(left_->engine().connect("nobody"), NIXL_ERR_NOT_FOUND);
    EXPECT_EQ(left_->engine().genNotif("nobody", ""), NIXL_ERR_NOT_FOUND);
    const std::string connection = right_->local_metadata().connection;
    const nixlBlobDesc memory = right_->local_metadata().memory.front();
    EXPECT_EQ(left_->load_remote_metadata({"other", "", {memory}}), NIXL_ERR_NOT_FOUND);
    EXPECT_EQ(left_->load_remote_metadata({"other", "no handle", {}}), NIXL_ERR_MISMATCH);
    EXPECT_EQ(left_->load_remote_metadata({"other", connection, {{0, 1, 0, "no memory"}}}),
              NIXL_ERR_MISMATCH);
    const std::vector<std::uint8_t> host(block);
    const std::size_t registered = softverbs_live(SOFTVERBS_MR);
    EXPECT_EQ(left_->register_memory(host, VRAM_SEG), NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), registered);
    EXPECT_EQ(left_->register_memory(host, FILE_SEG), NIXL_ERR_NOT_SUPPORTED);
}

TEST_F(NixlBackend, ReportsALostAgentAndAcceptsItsSuccessor) {
    start(1);
    await_notification();
    create(NIXL_WRITE, {0});
    right_.reset();
    const nixl_status_t posted = left_->post(*request_);
    EXPECT_EQ(posted == NIXL_IN_PROG ? finish() : posted, NIXL_ERR_REMOTE_DISCONNECT);
    EXPECT_EQ(left_->release(request_), NIXL_SUCCESS);

    start(right_, "right", to_);
    ASSERT_EQ(left_->load_remote_metadata(right_->local_metadata()), NIXL_SUCCESS);
    create(NIXL_WRITE, {0});
    ASSERT_GE(left_->post(*request_), 0);
    EXPECT_EQ(finish(), NIXL_SUCCESS);

    // The agent ends again, and a notification is the first to find out.
    right_.reset();
    EXPECT_TRUE(eventually(
        [&] { return left_->engine().genNotif("right", "x") == NIXL_ERR_REMOTE_DISCONNECT; }));
}

// The usual end of a consumer. The left agent looks at its request only afterwards.
TEST_F(NixlBackend, CompletesATransferToAnAgentThatEndsAfterItsNotification) {
    start(some);
    await_notification();
    to_right_.clear();
    std::vector<std::size_t> order(some);
    std::iota(order.begin(), order.end(), std::size_t{0});
    create(NIXL_WRITE, order);
    ASSERT_EQ(left_->post(*request_, "done"), NIXL_IN_PROG);
    ASSERT_TRUE(eventually([&] { return !to_right_.empty(); }, [&] { collect(); }));
    right_.reset();
    ASSERT_TRUE(eventually(
        [&] { return left_->engine().genNotif("right", "x") == NIXL_ERR_REMOTE_DISCONNECT; }));
    EXPECT_EQ(left_->status(*request_), NIXL_SUCCESS);
}

// After the success, the program may compute, and never call the backend again.
TEST_F(NixlBackend, CompletesATransferWhenItsNotificationIsSent) {
    for (const nixl_xfer_op_t operation : {NIXL_READ, NIXL_WRITE}) {
        SCOPED_TRACE(operation);
        start(1);
        await_notification();
        to_right_.clear();
        create(operation, {0});
        const std::string message(1'000'000, 'x');
        ASSERT_GE(left_->post(*request_, message), 0);
        const auto collect_right = [&] {
            for (auto& notification : right_->notifications()) {
                to_right_.push_back(std::move(notification));
            }
        };
        EXPECT_TRUE(
            eventually([&] { return left_->status(*request_) == NIXL_SUCCESS; }, collect_right));
        EXPECT_TRUE(eventually([&] { return !to_right_.empty(); }, collect_right));
        EXPECT_EQ(to_right_, notif_list_t({{"left", message}}));
    }
}

TEST_F(NixlBackend, ReportsATransferWhoseNotificationDidNotReachTheAgent) {
    start(1);
    await_notification();
    create(NIXL_READ, {0});
    ASSERT_GE(left_->post(*request_, std::string(1'000'000, 'x')), 0);
    EXPECT_TRUE(eventually([&] { return block_arrived(0, 0) || from_ == to_; },
                           [&] { static_cast<void>(left_->status(*request_)); }));
    EXPECT_EQ(left_->status(*request_), NIXL_IN_PROG);
    right_.reset();
    EXPECT_EQ(finish(), NIXL_ERR_REMOTE_DISCONNECT);
}

TEST_F(NixlBackend, ReportsAnAgentThatEndedBeforeItWasConnected) {
    start(1);
    create(NIXL_WRITE, {0});
    right_.reset();
    const nixl_status_t posted = left_->post(*request_);
    EXPECT_EQ(posted == NIXL_IN_PROG ? finish() : posted, NIXL_ERR_REMOTE_DISCONNECT);
}

TEST_F(NixlBackend, ReportsThatNotificationsDidNotReachAnAgent) {
    start(1);
    right_.reset();
    EXPECT_EQ(left_->engine().genNotif("right", "x"), NIXL_SUCCESS);
    EXPECT_TRUE(eventually(
        [&] { return left_->engine().genNotif("right", "x") == NIXL_ERR_REMOTE_DISCONNECT; }));
}

TEST_F(NixlBackend, SendsItsNotificationsBeforeItEnds) {
    for (const bool connected : {false, true}) {
        SCOPED_TRACE(connected);
        start(1, true);
        to_right_.clear();
        if (connected) {
            await_notification();
        }
        for (int i = 0; i < 500; ++i) {
            ASSERT_EQ(left_->engine().genNotif("right", std::string(1000, 'x')), NIXL_SUCCESS);
        }
        left_.reset();
        const std::size_t wanted = 500 + (connected ? 1 : 0);
        EXPECT_TRUE(eventually([&] { return to_right_.size() == wanted; }, [&] { collect(); }))
            << to_right_.size();
    }
}

// The right agent makes no progress before the left one has disconnected it.
TEST_F(NixlBackend, DisconnectsWithoutWaitingAndSendsItsNotificationsAfterwards) {
    for (const bool connected : {false, true}) {
        SCOPED_TRACE(connected);
        start(1);
        to_right_.clear();
        const auto queue_pairs = [] { return softverbs_live(SOFTVERBS_QP); };
        // Each agent connects to itself.
        ASSERT_TRUE(eventually([&] { return queue_pairs() == 4; }, [&] { collect(); }));
        if (connected) {
            await_notification();
        }
        for (int i = 0; i < 500; ++i) {
            ASSERT_EQ(left_->engine().genNotif("right", std::string(1000, 'x')), NIXL_SUCCESS);
        }
        EXPECT_EQ(left_->invalidate_remote_metadata("right"), NIXL_SUCCESS);
        EXPECT_EQ(left_->engine().genNotif("right", "x"), NIXL_ERR_NOT_FOUND);
        const std::size_t wanted = 500 + (connected ? 1 : 0);
        EXPECT_TRUE(eventually([&] { return to_right_.size() == wanted; }, [&] { collect(); }))
            << to_right_.size();
        EXPECT_TRUE(eventually([&] { return queue_pairs() == 4; }, [&] { collect(); }));
    }
}

// Without a progress thread, an agent that computes makes no progress.
TEST_F(NixlBackend, ConnectsToAnAgentThatComputesForHoursMeanwhile) {
    start(1);
    create(NIXL_WRITE, {0});
    const auto queue_pairs = [] { return softverbs_live(SOFTVERBS_QP); };
    // Each agent connects to itself.
    ASSERT_TRUE(eventually([&] { return queue_pairs() == 4; }, [&] { collect(); }));
    ASSERT_EQ(left_->post(*request_), NIXL_IN_PROG);
    ASSERT_TRUE(eventually([&] { return queue_pairs() == 5; },
                           [&] {
                               EXPECT_EQ(left_->status(*request_), NIXL_IN_PROG);
                               collect();
                           }));
    const ThreadClock clock;
    ThreadClock::advance(std::chrono::hours(1));
    ASSERT_TRUE(eventually([&] { return queue_pairs() == 6; },
                           [&] { EXPECT_EQ(left_->status(*request_), NIXL_IN_PROG); }));
    ThreadClock::advance(std::chrono::hours(1));
    EXPECT_EQ(left_->status(*request_), NIXL_IN_PROG);
    EXPECT_EQ(finish(), NIXL_SUCCESS);
}

TEST_F(NixlBackend, KeepsTheMemoryOfATransferThatIsInProgress) {
    for (const bool connected : {true, false}) {
        SCOPED_TRACE(connected);
        start(some);
        if (connected) {
            await_notification();
        }
        post_all();
        left_->deregister_memory(from_.data());
        EXPECT_EQ(finish(), NIXL_SUCCESS);
        await_notification();
        EXPECT_EQ(to_, from_);
    }
}

TEST_F(NixlBackend, DeregistersTheMemoryOfARequestThatIsNotInProgress) {
    start(2);
    for (const bool posted : {true, false}) {
        SCOPED_TRACE(posted);
        create(NIXL_WRITE, {0});
        if (posted) {
            ASSERT_GE(left_->post(*request_), 0);
            EXPECT_EQ(finish(), NIXL_SUCCESS);
        }
        const std::size_t regions = softverbs_live(SOFTVERBS_MR);
        left_->deregister_memory(from_.data());
        EXPECT_LT(softverbs_live(SOFTVERBS_MR), regions);
        EXPECT_EQ(left_->post(*request_), NIXL_ERR_NOT_FOUND);
        ASSERT_EQ(left_->register_memory(from_), NIXL_SUCCESS);
        EXPECT_EQ(left_->post(*request_), NIXL_ERR_NOT_FOUND) << "this memory has another key";
    }
    create(NIXL_WRITE, {1});
    ASSERT_GE(left_->post(*request_), 0);
    EXPECT_EQ(finish(), NIXL_SUCCESS);
}

TEST_F(NixlBackend, RefusesATransferToItsOwnMemoryThatIsDeregistered) {
    start(1);
    ASSERT_EQ(left_->register_memory(to_), NIXL_SUCCESS);
    ASSERT_EQ(
        left_->create_request(NIXL_WRITE, {{from_.data(), to_.data(), block}}, "left", request_),
        NIXL_SUCCESS);
    left_->deregister_memory(to_.data());
    EXPECT_EQ(left_->post(*request_), NIXL_ERR_NOT_FOUND);
}

// The memory of the earlier process does not exist any more.
TEST_F(NixlBackend, RefusesARequestForAnAgentThatWasReplaced) {
    start(2);
    create(NIXL_WRITE, {0});
    const NixlCore::RequestPointer earlier = std::move(request_);
    right_.reset();
    EXPECT_EQ(left_->invalidate_remote_metadata("right"), NIXL_SUCCESS);
    start(right_, "right", to_);
    ASSERT_EQ(left_->load_remote_metadata(right_->local_metadata()), NIXL_SUCCESS);
    await_notification();
    create(NIXL_WRITE, {1});
    for (int i = 0; i < 2; ++i) {
        ASSERT_GE(left_->post(*request_), 0);
        EXPECT_EQ(left_->post(*earlier), NIXL_ERR_NOT_FOUND);
        EXPECT_EQ(finish(), NIXL_SUCCESS);
    }
}

TEST_F(NixlBackend, KeepsAnAgentThatWasLoadedAgainWhenAnEarlierTransferFails) {
    start(1);
    create(NIXL_WRITE, {0});
    ASSERT_EQ(left_->post(*request_), NIXL_IN_PROG);
    EXPECT_EQ(left_->invalidate_remote_metadata("right"), NIXL_SUCCESS);
    ASSERT_EQ(left_->load_remote_metadata(right_->local_metadata()), NIXL_SUCCESS);
    EXPECT_EQ(left_->status(*request_), NIXL_ERR_REMOTE_DISCONNECT);
    create(NIXL_WRITE, {0});
    ASSERT_GE(left_->post(*request_), 0);
    EXPECT_EQ(finish(), NIXL_SUCCESS);
}

TEST_F(NixlBackend, EndsTheTransfersToAnAgentWhoseMetadataIsInvalidated) {
    for (const auto& [connected, finishes] :
         {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
        SCOPED_TRACE(connected);
        SCOPED_TRACE(finishes);
        start(some);
        if (connected) {
            await_notification();
        }
        post_all();
        EXPECT_EQ(left_->invalidate_remote_metadata("right",
                                                    [&, finishes = finishes] {
                                                        if (finishes) {
                                                            expect_success();
                                                        }
                                                    }),
                  NIXL_SUCCESS);
        EXPECT_EQ(left_->status(*request_), NIXL_ERR_NOT_FOUND);
        EXPECT_EQ(left_->release(request_), NIXL_SUCCESS);
        ASSERT_EQ(left_->load_remote_metadata(right_->local_metadata()), NIXL_SUCCESS);
        post_all();
        EXPECT_EQ(finish(), NIXL_SUCCESS);
    }
}

TEST_F(NixlBackend, ReleasesARequestWhenItsPostedBlocksHaveEnded) {
    for (const nixl_xfer_op_t operation : {NIXL_WRITE, NIXL_READ}) {
        SCOPED_TRACE(operation);
        start(some);
        await_notification();
        // Packets wait until the clock runs again.
        ASSERT_EQ(softverbs_take_clock(), 0);
        ASSERT_EQ(softverbs_slow_down(1), 0);
        post_all(operation);
        EXPECT_EQ(left_->release(request_), NIXL_ERR_REPOST_ACTIVE);
        ASSERT_NE(request_, nullptr);
        EXPECT_EQ(left_->engine().checkXfer(request_->handle()), NIXL_ERR_CANCELED);
        EXPECT_EQ(left_->post(*request_), NIXL_ERR_REPOST_ACTIVE);
        ASSERT_EQ(softverbs_slow_down(0), 0);
        ASSERT_EQ(softverbs_release_clock(), 0);
        EXPECT_EQ(left_->release(request_), NIXL_SUCCESS);

        // The program may now use the memory for other data.
        left_->deregister_memory(from_.data());
        const std::vector<std::uint8_t> before = from_;
        std::ranges::fill(from_, std::uint8_t{255});
        await_notification();
        EXPECT_EQ(std::ranges::count(from_, 255), from_.size());
        std::size_t arrived = 0;
        for (std::size_t i = 0; i < some && operation == NIXL_WRITE; ++i) {
            if (to_[i * block] != 0) {
                ++arrived;
                ASSERT_TRUE(
                    std::equal(&to_[i * block], &to_[i * block] + block, &before[i * block]));
            }
        }
        EXPECT_LT(arrived, some / 2);
    }
}

// The data has arrived, but the remote agent does not call getNotifs().
TEST_F(NixlBackend, ReleasesWritesWhoseNotificationsHaveNoRoomAtTheRemoteAgent) {
    start(1);
    await_notification();
    std::vector<NixlCore::RequestPointer> requests(300);
    for (NixlCore::RequestPointer& request : requests) {
        ASSERT_EQ(left_->create_request(NIXL_WRITE, {{from_.data(), to_.data(), block}}, "right",
                                        request),
                  NIXL_SUCCESS);
        ASSERT_GE(left_->post(*request, std::string(400, 'x')), 0);
    }
    ASSERT_TRUE(eventually([&] { return left_->status(*requests.front()) == NIXL_SUCCESS; }));
    EXPECT_EQ(left_->status(*requests.back()), NIXL_IN_PROG);
    while (left_->release(requests.back()) == NIXL_ERR_REPOST_ACTIVE) {
    }
    EXPECT_EQ(requests.back(), nullptr);
    requests.pop_back();
    const std::size_t wanted = to_right_.size() + requests.size();
    for (const NixlCore::RequestPointer& request : requests) {
        EXPECT_TRUE(eventually([&] { return left_->status(*request) != NIXL_IN_PROG; },
                               [&] { collect(); }));
        EXPECT_EQ(left_->status(*request), NIXL_SUCCESS);
    }
    ASSERT_EQ(left_->engine().genNotif("right", "last"), NIXL_SUCCESS);
    EXPECT_TRUE(eventually([&] { return to_right_.back().second == "last"; }, [&] { collect(); }));
    EXPECT_EQ(to_right_.size(), wanted + 1);
}

// A peer that has the metadata, but is no agent, sends an RTS, and does not answer the CTS.
TEST_F(NixlBackend, DoesNotWaitForAMessageThatNoAgentSends) {
    start(1);
    std::string info;
    ASSERT_EQ(right_->engine().getConnInfo(info), NIXL_SUCCESS);
    const auto handle = transport::Handle::decode(std::as_bytes(std::span(info)));
    ASSERT_TRUE(handle) << handle.message();
    auto endpoint = transport::Endpoint::open(Context::open_first(), Resolver(),
                                              {.read_long_messages = false, .linger = {}});
    ASSERT_TRUE(endpoint) << endpoint.message();
    std::array<std::byte, 100> bytes{};
    const auto memory = endpoint->register_memory(bytes.data(), bytes.size());
    auto connector = endpoint->start_connect(*handle);
    std::optional<transport::Channel> channel;
    ASSERT_TRUE(eventually([&] { return !connector->try_connect(channel); }, [&] { collect(); }));
    ASSERT_EQ(channel->send_copy(std::span(bytes).first(4), 1), std::error_code());
    transport::Request request;
    ASSERT_EQ(channel->issend(*memory, bytes.data(), bytes.size(), 1, request), std::error_code());
    await_notification();
    EXPECT_TRUE(eventually([&] { return static_cast<bool>(channel->state()); },
                           [&] {
                               endpoint->progress();
                               collect();
                           }))
        << "the agent closes the connection";
}

TEST_F(NixlBackend, SleepsInItsOwnThreadUntilSomethingHappens) {
    // An agent that wakes every 10 ms wakes many times during so many looks.
    const auto is_idle = [] { return is_at_rest(::getpid(), 2000); };
    start(1, true);
    std::string info;
    ASSERT_EQ(right_->engine().getConnInfo(info), NIXL_SUCCESS);
    const RawPeer stranger =
        RawPeer::connect(transport::Handle::decode(std::as_bytes(std::span(info))).value().port());
    stranger.send("R");
    EXPECT_TRUE(eventually(is_idle)) << "a connection that proves nothing is no work";

    std::unique_ptr<NixlCore> busy;
    start(busy, "busy", to_);
    ASSERT_EQ(left_->load_remote_metadata(busy->local_metadata()), NIXL_SUCCESS);
    ASSERT_EQ(left_->engine().genNotif("busy", "x"), NIXL_SUCCESS);
    EXPECT_TRUE(eventually(is_idle)) << "an agent that computes does not accept";
    busy.reset();

    start(1, true);
    create(NIXL_WRITE, {0});
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(eventually(is_idle));
        // Nobody calls the right agent: its own thread accepts the connection.
        ASSERT_GE(left_->post(*request_), 0);
        EXPECT_TRUE(eventually([&] { return left_->status(*request_) != NIXL_IN_PROG; }));
        EXPECT_EQ(left_->status(*request_), NIXL_SUCCESS);
    }
    ASSERT_TRUE(eventually(is_idle));
    // After this call, the thread of the right agent connects and sends the notification.
    ASSERT_EQ(right_->engine().genNotif("left", "x"), NIXL_SUCCESS);
    ASSERT_TRUE(eventually([&] { return !left_->notifications().empty(); }));
    EXPECT_TRUE(eventually(is_idle));
}

} // namespace
} // namespace rdmabuf::testing
