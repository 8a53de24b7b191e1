// SPDX-License-Identifier: BSD-3-Clause
// Tag masks, receives from any channel, probing and cancelling, between endpoints.
#include <array>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

/// An inline message, a gathered message, and a message that is transferred by RDMA.
constexpr std::array<std::size_t, 4> lengths = {0, 10, 5000, 200000};

class Matching : public FeaturesTest {
  protected:
    void SetUp() override { connect_with_memory(); }

    [[nodiscard]] Request receive_any(std::size_t length, Tag tag, Tag mask,
                                      std::size_t offset = 0) {
        Request request;
        EXPECT_EQ(right_end().irecv(to_->memory(), to_->data(offset), length, tag, mask, request),
                  code(0));
        return request;
    }
    /// Sends from the third endpoint, which has memory of its own.
    void send_from_third(const TestMemory& memory, std::size_t length, Tag tag, Request& request) {
        ASSERT_EQ(third().isend(memory.memory(), memory.data(), length, tag, request), code(0));
    }
    [[nodiscard]] TestMemory third_memory() {
        TestMemory memory = memory_of(*third_end_, memory_size);
        memory.fill(pattern(memory_size, 3));
        return memory;
    }
};

TEST_F(Matching, a_receive_from_any_channel_belongs_to_its_endpoint) {
    connect_third();
    const TestMemory theirs = third_memory();
    Request foreign;
    ASSERT_EQ(third_end_->irecv(theirs.memory(), theirs.data(), 64, 1, full_mask, foreign),
              code(0));
    Request own = receive_any(64, 1, full_mask);
    EXPECT_EQ(right_end().test(foreign).error, code(EINVAL));
    EXPECT_EQ(right_end().cancel(foreign), code(EINVAL));
    EXPECT_EQ(right_end().cancel(own), code(0));
    const Completion completion = complete(right_end(), own);
    EXPECT_EQ(completion.error, code(ECANCELED));
    EXPECT_EQ(completion.channel, 0U);
    EXPECT_EQ(third_end_->cancel(foreign), code(0));
    EXPECT_EQ(third_end_->wait(foreign, time_limit).error, code(ECANCELED));
}

// The object of a receive that has ended is used again.
TEST_F(Matching, a_receive_for_one_tag_after_one_with_a_mask_takes_its_message_and_no_other) {
    Request masked;
    ASSERT_EQ(right().irecv_masked(to_->memory(), to_->data(), 64, 0, 0, masked), code(0));
    Request sent = send(64, 5);
    EXPECT_EQ(complete(right(), masked).tag, 5);
    EXPECT_EQ(complete(left(), sent).error, code(0));
    for (const bool cancelled : {false, true}) {
        SCOPED_TRACE(cancelled);
        Request exact = receive(64, 7, 64);
        Request other;
        ASSERT_EQ(right().irecv_masked(to_->memory(), to_->data(128), 64, 0x100, 0xff00, other),
                  code(0));
        if (cancelled) {
            EXPECT_EQ(right().cancel(exact), code(0));
            EXPECT_EQ(complete(right(), exact).error, code(ECANCELED));
        } else {
            sent = send(64, 7);
            EXPECT_EQ(complete(right(), exact).error, code(0));
            EXPECT_EQ(complete(left(), sent).error, code(0));
        }
        std::array<Request, 4> received;
        for (Request& each : received) {
            each = receive(64, 7, 1024);
        }
        for (Request& each : received) {
            sent = send(64, 7);
            EXPECT_EQ(complete(right(), each).error, code(0));
            EXPECT_EQ(complete(left(), sent).error, code(0));
        }
        sent = send(64, 0x101);
        EXPECT_EQ(complete(right(), other).tag, 0x101);
        EXPECT_EQ(complete(left(), sent).error, code(0));
    }
    EXPECT_EQ(right().in_flight(), 0);
}

// Another channel may be connected later.
TEST_F(Matching, a_receive_from_any_channel_outlives_the_channels) {
    Request request = receive_any(memory_size, 9, full_mask);
    EXPECT_EQ(left().close(), code(0));
    EXPECT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
    EXPECT_EQ(right().close(), code(0));
    progress_all();
    EXPECT_FALSE(right_end().test(request).done);
    connect_third();
    const TestMemory theirs = third_memory();
    Request sent;
    send_from_third(theirs, 5000, 9, sent);
    const Completion completion = complete(right_end(), request);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.channel, right_of_third().number());
    EXPECT_EQ(complete(third(), sent).error, code(0));
}

TEST_F(Matching, probe_describes_a_message_and_leaves_it_to_its_receive) {
    connect_third();
    EXPECT_EQ(right().probe(0, 0), std::nullopt);
    for (const std::size_t length : lengths) {
        SCOPED_TRACE(length);
        Request sent = send(length, 0xabcd);
        std::optional<MessageInfo> info;
        ASSERT_TRUE(progress_until([&] {
            info = right().probe(0xab00, 0xff00);
            return info.has_value();
        }));
        EXPECT_EQ(info->tag, 0xabcd);
        EXPECT_EQ(info->length, length);
        EXPECT_EQ(info->channel, right().number());
        EXPECT_EQ(right().probe(0xabce), std::nullopt);
        EXPECT_EQ(right_of_third().probe(0, 0), std::nullopt) << "the message of another channel";
        EXPECT_TRUE(right().probe(0xabcd).has_value());
        const auto any = right_end().probe(0, 0);
        ASSERT_TRUE(any.has_value());
        EXPECT_EQ(any->channel, right().number());
        Request request = receive(info->length, info->tag);
        EXPECT_EQ(complete(right(), request).bytes, length);
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_EQ(right().probe(0, 0), std::nullopt);
    }
}

TEST_F(Matching, mprobe_takes_a_message_from_all_other_receives) {
    connect_third();
    for (const std::size_t length : lengths) {
        SCOPED_TRACE(length);
        Request sent = send(length, 5, 1);
        Request behind = send(length, 5, 7);
        std::optional<MatchedMessage> taken;
        ASSERT_TRUE(progress_until([&] {
            taken = right().mprobe(0, 0);
            return taken.has_value();
        }));
        EXPECT_EQ(taken->tag, 5);
        EXPECT_EQ(taken->length, length);
        EXPECT_EQ(taken->channel, right().number());
        Request other = receive(length, 5);
        EXPECT_EQ(complete(right(), other).bytes, length);
        EXPECT_TRUE(received(0, 7, length));
        EXPECT_EQ(right().mprobe(5), std::nullopt);

        Request request;
        EXPECT_EQ(right_of_third().imrecv(*taken, to_->memory(), to_->data(), length, request),
                  code(ESTALE));
        ASSERT_EQ(right().imrecv(*taken, to_->memory(), to_->data(), length, request), code(0));
        const Completion completion = complete(right(), request);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.tag, 5);
        EXPECT_EQ(completion.bytes, length);
        EXPECT_TRUE(received(0, 1, length));
        EXPECT_EQ(right().imrecv(*taken, to_->memory(), to_->data(), length, request),
                  code(ESTALE));
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_EQ(complete(left(), behind).error, code(0));
    }
}

TEST_F(Matching, mprobe_of_the_endpoint_takes_a_message_of_any_channel) {
    connect_third();
    const TestMemory theirs = third_memory();
    Request sent;
    send_from_third(theirs, 10, 4, sent);
    std::optional<MatchedMessage> taken;
    ASSERT_TRUE(progress_until([&] {
        taken = right_end().mprobe(4, full_mask);
        return taken.has_value();
    }));
    EXPECT_EQ(taken->channel, right_of_third().number());
    EXPECT_EQ(right_end().probe(0, 0), std::nullopt);
    Request request;
    ASSERT_EQ(right_of_third().imrecv(*taken, to_->data(), 10, request), code(0));
    EXPECT_EQ(complete(right_of_third(), request).bytes, 10);
    EXPECT_TRUE(to_->bytes(0, 10) == theirs.bytes(0, 10));
    EXPECT_EQ(complete(third(), sent).error, code(0));
}

TEST_F(Matching, a_taken_message_that_has_arrived_outlives_its_sender) {
    Request eager = send(10, 1);
    static_cast<void>(send(200000, 2)); // by RDMA
    std::optional<MatchedMessage> short_one;
    std::optional<MatchedMessage> long_one;
    ASSERT_TRUE(progress_until([&] {
        short_one = short_one ? short_one : right().mprobe(1);
        long_one = long_one ? long_one : right().mprobe(2);
        return short_one && long_one;
    }));
    EXPECT_EQ(complete(left(), eager).error, code(0));
    static_cast<void>(left().close());
    ASSERT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
    Request request;
    EXPECT_EQ(right().imrecv(*long_one, to_->memory(), to_->data(), 200000, request),
              code(ECONNRESET));
    ASSERT_EQ(right().imrecv(*short_one, to_->memory(), to_->data(), 10, request), code(0));
    EXPECT_EQ(complete(right(), request).bytes, 10);
    EXPECT_TRUE(received(0, 0, 10));
}

TEST_F(Matching, a_message_that_has_arrived_can_be_received_after_any_failure) {
    Request sent = send(10, 1);
    ASSERT_TRUE(progress_until([&] { return right().probe(1).has_value(); }));
    EXPECT_EQ(complete(left(), sent).error, code(0));
    ASSERT_EQ(softverbs_fail_call("ibv_post_send", 1, EIO), 0);
    Request own;
    static_cast<void>(right().isend(to_->memory(), to_->data(), 10, 3, own));
    ASSERT_TRUE(progress_until([&] { return static_cast<bool>(right().state()); }));
    ASSERT_NE(right().state(), code(ECONNRESET));
    Request request;
    EXPECT_EQ(right().irecv(to_->memory(), to_->data(), 10, 2, request), right().state());
    ASSERT_EQ(right().irecv(to_->memory(), to_->data(), 10, 1, request), code(0));
    EXPECT_EQ(complete(right(), request).bytes, 10);
    EXPECT_TRUE(received(0, 0, 10));
}

TEST_F(Matching, a_taken_message_is_freed_with_its_channel) {
    Request sent = send(10, 1);
    ASSERT_TRUE(progress_until([&] { return right().mprobe(1).has_value(); }));
    EXPECT_EQ(complete(left(), sent).error, code(0));
    right_.reset();
    EXPECT_TRUE(progress_until([&] { return left().state() == code(ECONNRESET); }));
}

TEST_F(Matching, a_synchronous_send_completes_after_its_message_has_matched_a_receive) {
    for (const std::size_t length : lengths) {
        SCOPED_TRACE(length);
        Request sent;
        ASSERT_EQ(left().issend(from_->memory(), from_->data(3), length, 5, sent), code(0));
        Request behind = send(10, 6);
        ASSERT_TRUE(progress_until([&] { return right().probe(6).has_value(); }));
        for (int i = 0; i < 100; ++i) {
            progress_all();
        }
        EXPECT_FALSE(left().test(sent).done);
        EXPECT_EQ(right().probe(5)->length, length);
        Request request = receive(length, 5);
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_EQ(complete(right(), request).bytes, length);
        EXPECT_TRUE(received(0, 3, length));
        request = receive(10, 6);
        EXPECT_EQ(complete(right(), request).bytes, 10);
        EXPECT_EQ(complete(left(), behind).error, code(0));

        request = receive(length, 5, 100);
        ASSERT_EQ(left().issend(from_->data(4), length, 5, sent), code(0));
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_EQ(complete(right(), request).bytes, length);
        EXPECT_TRUE(received(100, 4, length));
    }
    EXPECT_EQ(left().in_flight(), 0);
}

TEST_F(Matching, only_receives_that_wait_for_their_message_can_be_cancelled) {
    Request sent = send(200000, 5);
    EXPECT_EQ(left().cancel(sent), code(EINVAL));
    EXPECT_EQ(left().cancel(Request{}), code(EINVAL));
    Request from_any = receive_any(100, 9, full_mask);
    Request from_left = receive(100, 9);
    EXPECT_EQ(right().cancel(from_any), code(EINVAL)) << "the receive belongs to the endpoint";
    EXPECT_EQ(right_end().cancel(from_left), code(EINVAL)) << "the receive belongs to the channel";
    ASSERT_EQ(right_end().cancel(from_any), code(0));
    ASSERT_EQ(right().cancel(from_left), code(0));
    EXPECT_EQ(complete(right_end(), from_any).error, code(ECANCELED));
    EXPECT_EQ(complete(right(), from_left).error, code(ECANCELED));
    ASSERT_TRUE(progress_until([&] { return right().probe(5).has_value(); }));
    Request request = receive(200000, 5);
    const Request copy = request;
    // The message has arrived, and its data is being transferred.
    EXPECT_EQ(right().cancel(request), code(EALREADY));
    EXPECT_EQ(complete(right(), request).bytes, 200000);
    EXPECT_EQ(right().cancel(copy), code(ESTALE));
    EXPECT_EQ(complete(left(), sent).error, code(0));

    Request short_receive = receive(100, 6);
    Request eager = send(100, 6);
    EXPECT_EQ(complete(left(), eager).error, code(0));
    settle();
    EXPECT_EQ(right().cancel(short_receive), code(EALREADY));
    EXPECT_EQ(complete(right(), short_receive).bytes, 100);

    Request advertised = receive(200000, 7);
    settle();
    EXPECT_EQ(right().cancel(advertised), code(0));
    EXPECT_EQ(right().cancel(advertised), code(EALREADY));
    EXPECT_EQ(complete(right(), advertised).error, code(ECANCELED));
    Request last = receive(100, 8);
    EXPECT_EQ(right().close(), code(0));
    EXPECT_EQ(right().cancel(last), code(EBADF));
}

TEST_F(Matching, a_cancellation_that_waits_for_the_send_queue_ends_with_its_receive) {
    disconnect_all();
    options_.send_depth = 16;
    connect_with_memory();
    TestMemory mine = left_memory(4096);
    const auto descriptor = mine.memory().remote();
    ASSERT_TRUE(descriptor.ok());
    Request request = receive(200000, 5);
    settle();
    // The left end writes the data without progress of the right end.
    Request sent = send(200000, 5);
    EXPECT_EQ(wait(left(), sent).error, code(0));
    // The send queue of the right end is full.
    std::vector<Request> puts(20);
    for (Request& put : puts) {
        ASSERT_EQ(right().iput(to_->memory(), to_->data(memory_size / 2), 8, *descriptor, 0, put),
                  code(0));
    }
    ASSERT_EQ(right().cancel(request), code(0));
    EXPECT_EQ(complete(right(), request).bytes, 200000);
    for (Request& put : puts) {
        EXPECT_EQ(complete(right(), put).error, code(0));
    }
    // Nothing is left to do, so the endpoint can sleep.
    EXPECT_TRUE(progress_until([&] { return right_end().arm(); }));
}

} // namespace
} // namespace rdmabuf::testing
