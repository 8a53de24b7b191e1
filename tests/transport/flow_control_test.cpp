// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/flow_control.hpp>
#include <rdmabuf/transport/detail/send_queue.hpp>

namespace rdmabuf::transport::detail {
namespace {

TEST(MessageWindows, wrap_around_the_16_bits_of_a_report) {
    MessageWindow sender;
    MessageWindow receiver;
    for (std::uint32_t i = 0; i < 200000; ++i) {
        ASSERT_TRUE(sender.available());
        sender.count_sent();
        receiver.count_received();
        if (receiver.due()) {
            ASSERT_TRUE(sender.peer_received(receiver.received()));
            ASSERT_FALSE(sender.peer_received(static_cast<std::uint16_t>(receiver.received() + 1)));
            receiver.reported();
        }
    }
    EXPECT_EQ(sender.sent(), 200000);
}

TEST(ByteCreditsOfMessages, limit_the_bytes_that_wait_at_the_peer) {
    ByteCredits credits(4096, 4096);
    constexpr std::uint32_t most = 4096 - ByteCredits::overhead;
    EXPECT_TRUE(credits.available(most));
    EXPECT_FALSE(credits.available(most + 1));
    credits.sent(1000);
    EXPECT_EQ(credits.messages(1000), 2);
    EXPECT_EQ(credits.messages(most - 1000 - ByteCredits::overhead), 1);
    EXPECT_EQ(credits.messages(most - 1000 - ByteCredits::overhead + 1), 0);
    EXPECT_TRUE(credits.available(most - 1000 - ByteCredits::overhead));
    EXPECT_FALSE(credits.available(most - 1000 - ByteCredits::overhead + 1));
    EXPECT_TRUE(credits.peer_consumed(1000 + ByteCredits::overhead));
    EXPECT_TRUE(credits.available(most));
}

TEST(ByteCreditsOfMessages, are_returned_by_a_message_of_their_own_from_a_quarter_on) {
    ByteCredits credits(4096, 4096);
    credits.consumed(1024 - ByteCredits::overhead - 1);
    EXPECT_FALSE(credits.due());
    credits.consumed(0);
    EXPECT_TRUE(credits.due());
    credits.reported();
    EXPECT_FALSE(credits.due());
    EXPECT_EQ(credits.consumed(), 1023 + ByteCredits::overhead);
}

TEST(ByteCreditsOfMessages, wrap_around) {
    // 5,000 messages of 1 MiB are more than 2^32 bytes.
    constexpr std::uint32_t limit = std::uint32_t{1} << 30U;
    constexpr std::uint32_t length = std::uint32_t{1} << 20U;
    ByteCredits sender(limit, limit);
    ByteCredits receiver(limit, limit);
    for (int i = 0; i < 5000; ++i) {
        ASSERT_TRUE(sender.available(length));
        sender.sent(length);
        ASSERT_TRUE(receiver.arrived(length));
        receiver.consumed(length);
        if (receiver.due()) {
            ASSERT_FALSE(sender.peer_consumed(receiver.consumed() + 1));
            ASSERT_TRUE(sender.peer_consumed(receiver.consumed()));
            receiver.reported();
        }
    }
}

TEST(SendQueues, leave_reserved_entries_free_and_one_for_a_failed_queue_pair) {
    SendQueue queue(16);
    for (int i = 0; i < 11; ++i) {
        ASSERT_TRUE(queue.has_room(4));
        queue.posted(false);
    }
    EXPECT_FALSE(queue.has_room(4));
    EXPECT_TRUE(queue.has_room(3));
    for (int i = 11; i < 15; ++i) {
        ASSERT_TRUE(queue.has_room());
        queue.posted(false);
    }
    EXPECT_FALSE(queue.has_room());
}

TEST(SendQueues, free_the_entries_of_all_earlier_work_requests_with_one_completion) {
    SendQueue queue(16);
    EXPECT_TRUE(queue.idle());
    for (std::uint32_t i = 1; i <= 15; ++i) {
        ASSERT_EQ(queue.next(), i);
        queue.posted(i == 10);
    }
    queue.completed(10);
    EXPECT_TRUE(queue.is_completed(1));
    EXPECT_TRUE(queue.is_completed(10));
    EXPECT_FALSE(queue.is_completed(11));
    EXPECT_TRUE(queue.has_room(9));
    EXPECT_FALSE(queue.has_room(10));
    EXPECT_FALSE(queue.idle());
    queue.completed(15);
    EXPECT_TRUE(queue.idle());
}

TEST(SendQueues, never_fill_without_a_signaled_work_request) {
    for (std::uint32_t depth = 16; depth <= 300; ++depth) {
        SendQueue queue(depth);
        std::uint32_t unsignaled = 0;
        for (int i = 0; i < 1000; ++i) {
            const bool signaled = queue.must_signal();
            const std::uint32_t left = queue.unsignaled_left(4);
            ASSERT_EQ(left == 0, signaled || !queue.has_room(4));
            unsignaled = signaled ? 0 : unsignaled + 1;
            ASSERT_LT(unsignaled, (depth - 1) / 4);
            const std::uint32_t sequence = queue.next();
            queue.posted(signaled);
            if (left != 0) {
                ASSERT_EQ(queue.unsignaled_left(4), left - 1);
            }
            ASSERT_EQ(queue.all_signaled(), signaled);
            if (signaled) {
                queue.completed(sequence);
                ASSERT_TRUE(queue.idle());
            }
        }
    }
}

TEST(WorkIds, survive_encoding) {
    for (const WorkId id :
         {WorkId{.work = Work::receive, .number = 65535, .sequence = 0},
          WorkId{.work = Work::remote, .number = WorkId::no_request, .sequence = 0xffffffffU},
          WorkId{.work = Work::loopback, .number = (2U << 20U) + 1048575U, .sequence = 1}}) {
        const WorkId decoded = WorkId::decode(id.encode());
        EXPECT_EQ(decoded.work, id.work);
        EXPECT_EQ(decoded.number, id.number);
        EXPECT_EQ(decoded.sequence, id.sequence);
    }
}

} // namespace
} // namespace rdmabuf::transport::detail
