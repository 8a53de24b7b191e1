// SPDX-License-Identifier: BSD-3-Clause
// Channels that are connected by exchanged addresses, without a listener and a socket.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include "prepared_channels_fixture.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;

/// One end connects so late that packets on the queue pairs of the channel would fail. The requests
/// that the other end has started meanwhile are all executed.
TEST_F(PreparedChannels, keep_the_requests_until_the_later_end_is_connected) {
    open();
    prepare_ends();
    connect_left();
    TestMemory from = left_memory(300000);
    const TestMemory to = right_memory(300000);
    const TestMemory window = right_memory(64);
    from.fill(pattern(300000));
    const std::array<std::size_t, 3> sizes = {100, 8000, 300000};
    std::array<Request, 3> sends;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        ASSERT_EQ(left().isend(from.memory(), from.data(), sizes[i], i, sends[i]), code(0));
    }
    const RemoteMemory remote = window.memory().remote().value();
    Request put;
    ASSERT_EQ(left().iput_notify(from.memory(), from.data(), 64, remote, 0, 77, put), code(0));
    progress_for_datagrams(300, left_end()); // at intervals of 2 ms
    EXPECT_EQ(left().state(), code(0)) << left().reason();
    EXPECT_EQ(left().in_flight(), 4);
    EXPECT_FALSE(left().test(sends[0]).done);
    connect_right();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        Request receive;
        ASSERT_EQ(right().irecv(to.memory(), to.data(), sizes[i], i, receive), code(0));
        const Completion received = finish(right(), receive);
        ASSERT_EQ(received.error, code(0)) << right().reason() << left().reason();
        EXPECT_EQ(received.bytes, sizes[i]);
        EXPECT_TRUE(to.bytes(0, sizes[i]) == from.bytes(0, sizes[i]));
        EXPECT_EQ(finish(left(), sends[i]).error, code(0));
    }
    EXPECT_EQ(next_notification(right()), 77);
    EXPECT_EQ(finish(left(), put).error, code(0));
    EXPECT_TRUE(window.bytes(0, 64) == from.bytes(0, 64));
}

/// The program computes for longer than EndpointOptions::linger between two calls of try_close().
/// There is no socket that would tell the peer.
TEST_F(PreparedChannels, tell_an_idle_peer_that_they_were_closed_by_a_slow_program) {
    open();
    connect_ends();
    const TestMemory from = left_memory(100);
    const TestMemory to = right_memory(100);
    pass(from, to, 100);
    {
        const StoppedClock clock;
        EXPECT_EQ(left().try_close(), code(EAGAIN));
        StoppedClock::advance(options_.linger + 1ms);
        while (left().try_close() == code(EAGAIN)) {
            StoppedClock::advance(1ms);
        }
    }
    EXPECT_EQ(end_of(right()), code(ECONNRESET));
    EXPECT_EQ(right().close(), code(0));
}

/// While a channel waits for its peer, it does not use the processor: Endpoint::wait() ends about
/// ten times per heartbeat.
TEST_F(PreparedChannels, sleep_while_they_wait_for_the_peer) {
    options_.heartbeat = 1000ms;
    open();
    prepare_ends();
    connect_left();
    const TestMemory memory = left_memory(100);
    Request request;
    ASSERT_EQ(left().isend(memory.memory(), memory.data(), 100, 1, request), code(0));
    EXPECT_TRUE(lasts_at_least(500ms, [&] {
        for (int i = 0; i < 30; ++i) {
            left_end().wait(50ms);
            left_end().progress();
        }
    }));
    EXPECT_EQ(left().state(), code(0));
}

TEST_F(PreparedChannels, fail_with_etimedout_if_the_peer_does_not_connect) {
    options_.handshake = 100ms;
    open();
    prepare_ends();
    connect_left();
    const TestMemory memory = left_memory(100);
    Request request;
    ASSERT_EQ(left().isend(memory.memory(), memory.data(), 100, 1, request), code(0));
    EXPECT_EQ(wait(left(), request).error, code(ETIMEDOUT));
    EXPECT_EQ(left().state(), code(ETIMEDOUT));
    EXPECT_THAT(left().reason(), HasSubstr("EndpointOptions::handshake"));
    EXPECT_EQ(left().close(), code(ETIMEDOUT));
    // The datagrams of the first end have arrived before it failed. If the other endpoint has
    // processed one of them before the other end connects, its device gets no response.
    connect_right();
    ASSERT_EQ(right().isend(memory.memory(), memory.data(), 0, 1, request), code(0));
    EXPECT_THAT(end_of(right()).value(), ::testing::AnyOf(EHOSTUNREACH, ETIMEDOUT));
}

TEST_F(PreparedChannels, fail_with_etimedout_if_the_peer_has_been_destroyed) {
    options_.handshake = 100ms;
    open();
    prepare_ends();
    const ChannelAddress address = right_prepared_->address();
    right_prepared_.reset();
    left_.emplace(connect(std::move(*left_prepared_), address));
    EXPECT_EQ(end_of(left()), code(ETIMEDOUT)) << left().reason();
}

/// Two ends connect to the same address. The peer connects to one of them, which works. The peer
/// ignores the other end, whose datagrams may arrive first.
TEST_F(PreparedChannels, of_a_used_address_fail_with_etimedout_and_leave_the_first_channel_alone) {
    open();
    prepare_ends();
    EndpointOptions short_options = options_;
    short_options.handshake = 500ms;
    const auto third_end = Endpoint::open(Context::open_first(), resolver_, short_options);
    ASSERT_TRUE(third_end.ok()) << third_end.message();
    PreparedChannel third = prepare(*third_end);
    connect_right();
    const TestMemory from = left_memory(100000);
    const TestMemory to = right_memory(100000);
    Request early;
    ASSERT_EQ(right().isend(to.memory(), to.data(), 100, 9, early), code(0));
    Channel unused = connect(std::move(third), right_prepared_->address());
    const auto progress_both = [&] {
        unused.progress();
        right().progress();
    };
    settle(progress_both);
    EXPECT_EQ(right().state(), code(0)) << right().reason();
    EXPECT_FALSE(right().test(early).done);
    connect_left();
    pass(from, to, 100);
    EXPECT_TRUE(eventually([&] { return unused.state() == code(ETIMEDOUT); }, progress_both))
        << unused.reason();
    pass(from, to, 100000);
    EXPECT_EQ(finish(right(), early).error, code(0));
}

TEST_F(PreparedChannels, are_connected_at_most_once) {
    open();
    PreparedChannel left = prepare(left_end());
    const PreparedChannel right = prepare(right_end());
    EXPECT_EQ(std::move(left).connect(left.address()).code(), code(EINVAL));
    EXPECT_EQ(std::move(left).connect(right.address()).code(), code(EBADF));
}

TEST_F(PreparedChannels, can_be_closed_before_the_peer_is_connected) {
    // A close() that waits for the peer waits longer than the time limit of this program.
    options_.linger = 1h;
    open();
    prepare_ends();
    connect_left();
    EXPECT_EQ(left().close(), code(0));
    connect_right();
    settle_at(right_end());
    // If the datagram of the left end has arrived late, the right end closes a connected channel.
    EXPECT_THAT(right().close().value(), ::testing::AnyOf(0, EHOSTUNREACH));
}

TEST_F(PreparedChannels, may_outlive_their_endpoint) {
    open();
    prepare_ends();
    left_end_.reset();
    right_end_.reset();
    connect_left();
    connect_right();
    settle();
    EXPECT_EQ(left_->state(), code(0));
    EXPECT_EQ(left_->close(), code(0));
}

/// The n-th verbs call fails, for each n: the call returns the error, both ends fail within the
/// time of the handshake, or the call only loses a datagram. Nothing is leaked.
TEST_F(PreparedChannels, that_fail_at_any_call_of_verbs_leak_nothing) {
    options_.inline_data = 0;
    options_.handshake = 200ms;
    unsigned failed_calls = 0;
    bool happened = true;
    for (unsigned n = 1; happened; ++n) {
        ASSERT_LT(n, 500U);
        SCOPED_TRACE(n);
        // A failed call can end the endpoint.
        disconnect();
        open();
        const TestMemory memory = left_memory(100);
        const TestMemory other_memory = right_memory(100);
        fail_call(n, ENOMEM);
        auto left = left_end().prepare_channel();
        auto right = right_end().prepare_channel();
        std::error_code error = left.ok() ? right.code() : left.code();
        if (!error) {
            const ChannelAddress left_address = left->address();
            auto left_channel = std::move(*left).connect(right->address());
            auto right_channel = std::move(*right).connect(left_address);
            error = left_channel.ok() ? right_channel.code() : left_channel.code();
            if (!error) {
                left_.emplace(*std::move(left_channel));
                right_.emplace(*std::move(right_channel));
            }
        }
        if (error) {
            ++failed_calls;
            EXPECT_EQ(error, code(ENOMEM));
            continue;
        }
        while (left_->in_flight() + right_->in_flight() == 0 && !left_->state() &&
               !right_->state()) {
            Request send;
            ASSERT_EQ(left_->isend(memory.memory(), memory.data(), 100, 1, send), code(0));
            left_->progress();
        }
        Request receive;
        if (right_->irecv(other_memory.memory(), other_memory.data(), 100, 1, receive) ||
            finish(*right_, receive).error) {
            EXPECT_THAT(end_of(*left_).value(), ::testing::AnyOf(EIO, ETIMEDOUT, EHOSTUNREACH));
            EXPECT_THAT(end_of(*right_).value(), ::testing::AnyOf(EIO, ETIMEDOUT, EHOSTUNREACH));
        }
        happened = all_failed();
    }
    softverbs_clear_faults();
    EXPECT_GE(failed_calls, 8U);
}

} // namespace
} // namespace rdmabuf::testing
