// SPDX-License-Identifier: BSD-3-Clause
// A peer sends messages on connected queue pairs, and then the set-up of its channel fails.
#include <softverbs/softverbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <rdmabuf/transport.hpp>

#include "raw_connector.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {
namespace {

class SetupAbort : public RawPeerTest {
  protected:
    using Kind = transport::detail::Kind;

    static constexpr Tag tag = 3;

    /// Connects a peer that sends messages before it reports that it could not connect.
    /// @param send  sends the messages
    template <class Send>
    void fail_set_up(const Send& send) {
        if (!right_end_) {
            open();
        }
        transport::Listener listener = listen();
        raw_.emplace(1, 1, 64);
        raw_->before_result = [&] { send(*raw_); };
        std::optional<Channel> channel;
        EXPECT_EQ(raw_->connect(listener, channel, ENOMEM), code(ENOMEM));
        EXPECT_FALSE(channel);
        post_receives();
        ASSERT_FALSE(HasFailure());
    }
    /// Destroys the peer, and lets the endpoint post its receive buffers again.
    void post_receives() {
        raw_.reset();
        right_end().progress();
        right_end().progress();
    }
    /// Lets a peer send messages to the first queue pair of a channel, and fail the call that
    /// connects the second one.
    void fail_second_queue_pair() {
        transport::Listener listener = listen();
        raw_.emplace(1, 2, 64);
        unsigned changes = 0;
        before_each_call([&](std::string_view verb) {
            // Four calls have moved both queue pairs to INIT, and the first one to RTR and RTS. The
            // fifth call moves the second one to RTR.
            if (verb == "ibv_modify_qp" && ++changes == 5) {
                raw_->connect_queue_pair(0);
                for (int i = 0; i < 12; ++i) {
                    raw_->send({.kind = Kind::eager, .value = tag}, pattern(10));
                }
                fail_next("ibv_modify_qp", ENOMEM);
            }
        });
        std::optional<Channel> channel;
        EXPECT_EQ(raw_->connect(listener, channel), code(ENOMEM));
        EXPECT_GE(changes, 5U);
        forget_calls();
        post_receives();
        ASSERT_FALSE(HasFailure());
    }
    /// Receives more messages than the endpoint has receive buffers.
    void receive_messages() {
        ASSERT_NO_FATAL_FAILURE(connect_raw());
        const TestMemory to = right_memory(4096);
        for (std::uint32_t i = 0; i < options_.receive_buffers + 36; ++i) {
            Request request;
            ASSERT_EQ(channel_->irecv(to.memory(), to.data(), 4096, tag, request), code(0));
            raw_->send({.kind = Kind::eager, .received = 0, .value = tag}, pattern(10));
            ASSERT_EQ(wait(*channel_, request).error, code(0)) << channel_->reason();
        }
    }
};

// The program does not know the channel yet, and the set-up can still fail.
TEST_F(SetupAbort, messages_that_arrive_before_accept_has_returned_match_no_receive) {
    open();
    const TestMemory to = right_memory(1 << 20U);
    std::array<Request, 2> requests;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(right_end().irecv(to.memory(), to.data(i * 4096), 4096, tag, transport::full_mask,
                                    requests[i]),
                  code(0));
    }
    const auto send_early = [&](RawConnector& raw) {
        raw.send({.kind = Kind::eager, .value = tag}, pattern(100));
        raw.send({.kind = Kind::rts, .value = tag},
                 RtsBody{.length = 4096, .request = 1, .chunks = 0, .rails = 1}, {});
        settle([this] { right_end().progress(); });
        EXPECT_FALSE(right_end().test(requests[0]).done);
        EXPECT_FALSE(raw.has_message()); // No CTS.
        EXPECT_EQ(right_end().probe(tag, transport::full_mask), std::nullopt);
        Request later;
        EXPECT_EQ(
            right_end().irecv(to.memory(), to.data(8192), 4096, tag, transport::full_mask, later),
            code(0));
        EXPECT_FALSE(right_end().test(later).done);
        EXPECT_EQ(right_end().cancel(later), code(0));
    };
    fail_set_up(send_early);
    for (Request& request : requests) {
        EXPECT_FALSE(right_end().test(request).done);
    }

    // accept() delivers them in the order in which they have arrived.
    transport::Listener listener = listen();
    raw_.emplace(1, 1, 64);
    raw_->before_result = [&] { send_early(*raw_); };
    ASSERT_EQ(raw_->connect(listener, channel_), code(0));
    const Completion completion = right_end().wait(requests[0], time_limit);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.channel, channel_->number());
    EXPECT_TRUE(to.bytes(0, 100) == pattern(100));
    raw_->while_waiting = [this] { right_end().progress(); };
    EXPECT_EQ(raw_->receive().header.kind, Kind::cts);
    channel_.reset();
    EXPECT_NE(right_end().wait(requests[1], time_limit).error, code(0));
}

TEST_F(SetupAbort, a_channel_that_fails_before_accept_is_reported_by_poll_failed_afterwards) {
    open();
    transport::Listener listener = listen();
    raw_.emplace(1, 1, 64);
    raw_->before_result = [this] {
        raw_->send({.kind = Kind::close});
        settle([this] { right_end().progress(); });
        EXPECT_EQ(right_end().poll_failed(), std::nullopt);
    };
    ASSERT_EQ(raw_->connect(listener, channel_), code(0));
    EXPECT_EQ(channel_->state(), code(ECONNRESET));
    EXPECT_EQ(right_end().poll_failed(), channel_->number());
    EXPECT_EQ(right_end().poll_failed(), std::nullopt);
}

// The receive buffers of messages that were not polled must be posted again.
TEST_F(SetupAbort, the_receive_buffers_of_the_endpoint_are_not_lost) {
    options_.receive_buffers = 64;
    for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(i);
        fail_set_up([](RawConnector& raw) {
            for (int k = 0; k < 60; ++k) {
                raw.send({.kind = Kind::eager, .value = tag}, pattern(10));
            }
        });
    }
    receive_messages();
}

// A peer knows the queue pairs of the listener before it sends its own addresses.
TEST_F(SetupAbort, receive_buffers_are_not_lost_when_only_one_queue_pair_is_connected) {
    options_.receive_buffers = 16;
    options_.queue_pairs_per_device = 2;
    open();
    for (int i = 0; i < 3; ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(fail_second_queue_pair());
    }
    receive_messages();
}

// The completion queue cannot become longer, for example because the device has reached its limit.
TEST_F(SetupAbort, receive_buffers_are_not_lost_when_the_completion_queue_has_no_room) {
    options_.receive_buffers = 16;
    options_.queue_pairs_per_device = 4;
    connect(); // The first channel needs no longer queue.
    transport::Listener listener = listen();
    raw_.emplace(1, 4, 64);
    unsigned changes = 0;
    before_each_call([&](std::string_view verb) {
        // The first queue pair is connected; the last call connects the last one.
        if (verb == "ibv_modify_qp" && ++changes == 12) {
            raw_->connect_queue_pair(0);
            for (std::uint32_t i = 0; i < options_.receive_buffers; ++i) {
                raw_->send({.kind = Kind::eager, .value = tag}, pattern(10));
            }
        }
    });
    ASSERT_EQ(softverbs_fail_call("ibv_resize_cq", 1, ENOMEM), 0);
    std::optional<Channel> channel;
    EXPECT_EQ(raw_->connect(listener, channel), code(ENOMEM));
    EXPECT_EQ(softverbs_pending_faults(), 0U);
    forget_calls();
    post_receives();
    receive_messages();
}

TEST_F(SetupAbort, a_forked_child_can_use_an_endpoint_of_its_own) {
    connect();
    const pid_t child = ::fork();
    if (child == 0) {
        left_.reset();
        right_.reset();
        left_end_.reset();
        right_end_.reset();
        bool good = true;
        for (int i = 0; i < 3 && good; ++i) {
            auto own = Endpoint::open(Context::open_first(), resolver_, options_);
            // This call reads the asynchronous events.
            good = own.ok() && own->prepare_channel().ok();
        }
        ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

} // namespace
} // namespace rdmabuf::testing
