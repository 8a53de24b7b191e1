// SPDX-License-Identifier: BSD-3-Clause
// The credits for messages and notifications, and a peer that sends more than it has credits for.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocol_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::MessageWindow;

TEST_F(Protocol, sends_eager_messages_only_for_credits_and_at_most_a_window_of_messages) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    std::vector<Request> requests(MessageWindow::size + 12);
    for (Request& request : requests) {
        ASSERT_EQ(channel_->isend(Memory(), nullptr, 0, tag, request), code(0));
    }
    make_progress();
    for (std::uint32_t i = 0; i < MessageWindow::size; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, i < RawConnector::credits ? Kind::eager : Kind::rts)
            << i;
    }
    EXPECT_FALSE(raw_->has_message());
    EXPECT_TRUE(channel_->test(requests[RawConnector::credits - 1]).done);
    EXPECT_FALSE(channel_->test(requests[RawConnector::credits]).done);

    raw_->send({.kind = Kind::credit, .received = 3});
    make_progress();
    for (std::uint32_t i = 0; i < 3; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, Kind::rts);
    }
    EXPECT_FALSE(raw_->has_message());
    raw_->send({.kind = Kind::credit, .received = 7, .number = 2 * 64});
    make_progress();
    for (std::uint32_t i = 0; i < 4; ++i) {
        ASSERT_EQ(raw_->receive().header.kind, i < 2 ? Kind::eager : Kind::rts);
    }
    EXPECT_FALSE(raw_->has_message());
}

TEST_F(Protocol, returns_credits_in_a_message_of_their_own_after_a_quarter_is_used) {
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    for (std::uint32_t i = 1; i <= MessageWindow::size; ++i) {
        Request request;
        ASSERT_EQ(channel_->irecv(Memory(), nullptr, 0, tag, request), code(0));
        send_eager(0);
        make_progress();
        ASSERT_TRUE(channel_->test(request).done);
        if (i % (MessageWindow::size / 4) == 0) {
            const Header header = raw_->receive().header;
            EXPECT_EQ(header.kind, Kind::credit);
            EXPECT_EQ(header.received, i);
            EXPECT_EQ(header.number, i * 64);
        }
        ASSERT_FALSE(raw_->has_message()) << i;
    }
}

TEST_F(Protocol, returns_the_credits_of_consumed_notifications) {
    options_.notification_limit = 4096;
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    for (std::uint32_t i = 1; i <= 2; ++i) {
        for (int n = 0; n < 8; ++n) {
            raw_->send({.kind = Kind::notify}, std::vector<std::byte>(64));
        }
        make_progress();
        EXPECT_FALSE(raw_->has_message());
        std::array<std::byte, 64> bytes{};
        for (int n = 0; n < 8; ++n) {
            EXPECT_TRUE(channel_->notification(bytes).ok());
        }
        make_progress();
        const Header header = raw_->receive().header;
        EXPECT_EQ(header.kind, Kind::credit);
        EXPECT_EQ(header.value, i * 1024);
        EXPECT_FALSE(raw_->has_message());
    }
}

TEST_F(Protocol, ends_after_a_message_that_is_longer_than_allowed_or_without_credits) {
    expect_violation("longer than the eager limit", [&] { send_eager(options_.eager_limit + 1); });
    expect_violation("longer than the receive buffer",
                     [&] { send_eager(options_.eager_limit + 4096); });
    expect_violation("a notification longer than its limit", [&] {
        raw_->send({.kind = Kind::notify}, std::vector<std::byte>(transport::max_notification + 1));
    });
    right_end_.reset();
    memory_.reset();
    options_.unexpected_limit = options_.notification_limit = 4096;
    expect_violation("eager messages without credits", [&] {
        for (std::uint32_t i = 0; i <= 4096 / 64; ++i) {
            EXPECT_EQ(channel_->state(), code(0));
            send_eager(0);
            make_progress();
        }
    });
    expect_violation("one eager message without credits", [&] { send_eager(4096); });
    expect_violation("notifications without credits", [&] {
        for (std::uint32_t i = 0; i <= 4096 / 64; ++i) {
            EXPECT_EQ(channel_->state(), code(0));
            raw_->send({.kind = Kind::notify});
            make_progress();
        }
    });
}

TEST_F(Protocol, ends_after_more_rts_than_its_depth_permits) {
    options_.depth = 64;
    expect_violation("RTS flood", [&] {
        EXPECT_EQ(raw_->listener_hello.depth, 64);
        std::vector<std::byte> rts;
        append(rts, Header{.kind = Kind::rts, .value = tag});
        append(rts, RtsBody{.length = length});
        for (std::uint32_t i = 0; i < options_.depth; ++i) {
            raw_->send(rts);
        }
        make_progress();
        EXPECT_EQ(channel_->state(), code(0));
        raw_->send(rts);
    });
}

TEST_F(Protocol, sends_at_most_as_many_rts_as_the_depth_of_the_peer_permits) {
    raw_depth_ = 2;
    ASSERT_NO_FATAL_FAILURE(connect_raw());
    std::array<Request, 3> requests;
    for (Request& request : requests) {
        request = send();
    }
    make_progress();
    std::array<std::uint32_t, 2> numbers{};
    for (std::uint32_t& number : numbers) {
        number = raw_->receive().as<RtsBody>().request;
    }
    make_progress();
    EXPECT_FALSE(raw_->has_message());
    raw_->send({.kind = Kind::nack, .number = numbers[0]});
    EXPECT_EQ(raw_->receive().header.kind, Kind::rts);
}

} // namespace
} // namespace rdmabuf::testing
