// SPDX-License-Identifier: BSD-3-Clause
// Long messages whose receives were posted and advertised to the sender before the send.
#include "features_fixture.hpp"
#include "post_filter.hpp"

namespace rdmabuf::testing {
namespace {

class Advertisements : public FeaturesTest, public ::testing::WithParamInterface<std::size_t> {
  protected:
    void SetUp() override {
        use_devices(GetParam());
        connect_with_memory();
    }
    /// While the result exists, the right end cannot send: ibv_post_send(3) fails with ENOMEM,
    /// although the send queue has room.
    [[nodiscard]] PostFilter refuse_messages() {
        return {right_end().protection_domain().context().native(),
                [](const ibv_qp&, const ibv_send_wr& work) {
                    return work.opcode == IBV_WR_SEND ? ENOMEM : 0;
                }};
    }
};

INSTANTIATE_TEST_SUITE_P(devices, Advertisements, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(Advertisements, need_one_work_request_of_each_device_and_no_progress_of_the_receiver) {
    const Request posted = receive(200000, 1, 100);
    settle();
    forget_calls();
    const Completion completion = wait(left(), send(150001, 1, 3));
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(finish(right(), posted).bytes, 150001) << "shorter than the receive";
    EXPECT_TRUE(received(100, 3, 150001));
    std::size_t writes = 0;
    for (const Send& work : record().sends) {
        writes += work.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 1 : 0;
        EXPECT_NE(work.request.opcode, IBV_WR_SEND) << "the message has no FIN";
    }
    EXPECT_EQ(writes, GetParam());
}

TEST_P(Advertisements, are_reported_with_the_length_of_their_receive) {
    const Request posted = receive(200000, 1, 0);
    ASSERT_TRUE(progress_until([&] { return left().advertised_receive(1).has_value(); }));
    EXPECT_EQ(left().advertised_receive(1), 200000U);
    EXPECT_EQ(left().advertised_receive(2), std::nullopt);
    const Request sent = send(100, 1, 0);
    EXPECT_EQ(left().advertised_receive(1), std::nullopt) << "the message matches the receive";
    EXPECT_EQ(finish(right(), posted).bytes, 100);
    EXPECT_EQ(finish(left(), sent).error, code(0));
}

TEST_P(Advertisements, include_receives_of_0_bytes_if_the_eager_limit_is_0) {
    disconnect_all();
    options_.eager_limit = 0;
    connect_with_memory();
    for (const std::size_t length : {0U, 1U}) {
        Request posted;
        ASSERT_EQ(right().irecv(nullptr, 0, 1, posted), code(0));
        ASSERT_TRUE(progress_until([&] { return left().advertised_receive(1).has_value(); }));
        EXPECT_EQ(left().advertised_receive(1), 0U);
        const Request sent = send(length, 1, 0);
        EXPECT_EQ(left().advertised_receive(1), std::nullopt) << "the message matches the receive";
        EXPECT_EQ(finish(right(), posted).error, code(length == 0 ? 0 : EMSGSIZE));
        EXPECT_EQ(finish(left(), sent).error, code(length == 0 ? 0 : EMSGSIZE));
    }
}

// A program that closes the channel after this completion loses no message.
TEST_P(Advertisements, complete_messages_of_0_bytes_after_the_acknowledgement_if_the_limit_is_0) {
    disconnect_all();
    options_.eager_limit = 0;
    connect_with_memory();
    Request sent;
    for (void* const context : {static_cast<void*>(nullptr), static_cast<void*>(&sent)}) {
        for (const std::size_t room : {0U, 100U}) {
            const Request posted = receive(room, 1, 0);
            ASSERT_TRUE(progress_until([&] { return left().advertised_receive(1).has_value(); }));
            forget_calls();
            sent = send(0, 1, 0, context);
            EXPECT_FALSE(left().endpoint()->is_done(sent));
            EXPECT_EQ(finish(left(), sent).error, code(0));
            const Completion completion = finish(right(), posted);
            EXPECT_EQ(completion.error, code(0));
            EXPECT_EQ(completion.bytes, 0);
            std::size_t writes = 0;
            for (const Send& work : record().sends) {
                writes += work.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 1 : 0;
                EXPECT_NE(work.request.opcode, IBV_WR_SEND) << "the message is not eager";
            }
            EXPECT_EQ(writes, 1);
        }
    }
}

TEST_P(Advertisements, are_limited_and_need_that_earlier_receives_are_advertised) {
    EXPECT_TRUE(right().can_advertise(1, 32));
    EXPECT_FALSE(right().can_advertise(1, 33));
    std::vector<Request> posted{receive(100, 2, 0)};
    EXPECT_FALSE(right().can_advertise(2)) << "a shorter receive of this tag is not advertised";
    for (std::size_t i = 0; i < 32; ++i) {
        ASSERT_TRUE(right().can_advertise(1));
        posted.push_back(receive(10000, 1, 0));
        settle();
    }
    EXPECT_FALSE(right().can_advertise(3));
    for (const Request& request : posted) {
        const Request sent = send(50, &request == posted.data() ? 2 : 1, 0);
        EXPECT_EQ(finish(right(), request).bytes, 50);
        EXPECT_EQ(finish(left(), sent).error, code(0));
    }
    EXPECT_TRUE(right().can_advertise(2, 32));
}

TEST_P(Advertisements, that_cannot_be_posted_are_sent_later_in_their_order) {
    std::vector<Request> posted;
    {
        const PostFilter filter = refuse_messages();
        for (const std::size_t i : {0U, 1U, 2U, 3U}) {
            EXPECT_TRUE(right().can_advertise(i == 1 ? 2 : 1));
            posted.push_back(receive(50000 + i, i == 1 ? 2 : 1, 60000 * i));
        }
        progress_all();
    }
    ASSERT_TRUE(progress_until([&] { return left().advertised_receive(2).has_value(); }));
    settle();
    forget_calls();
    for (const std::size_t i : {0U, 1U, 2U, 3U}) {
        EXPECT_EQ(left().advertised_receive(i == 1 ? 2 : 1), 50000 + i);
        EXPECT_EQ(wait(left(), send(50000, i == 1 ? 2 : 1, i)).error, code(0));
    }
    for (const Send& work : record().sends) {
        EXPECT_NE(work.request.opcode, IBV_WR_SEND) << "there is no RTS";
    }
    for (const std::size_t i : {0U, 1U, 2U, 3U}) {
        EXPECT_EQ(finish(right(), posted[i]).bytes, 50000);
        EXPECT_TRUE(received(60000 * i, i, 50000));
    }
}

TEST_P(Advertisements, that_cannot_be_posted_are_not_sent_after_a_message_has_matched) {
    Request first;
    Request second;
    Request sent;
    {
        const PostFilter filter = refuse_messages();
        first = receive(50000, 1, 0);
        second = receive(50001, 1, 60000);
        sent = send(40000, 1, 7);
        settle();
    }
    EXPECT_EQ(finish(right(), first).bytes, 40000);
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_TRUE(received(0, 7, 40000));
    ASSERT_TRUE(progress_until([&] { return left().advertised_receive(1).has_value(); }));
    EXPECT_EQ(left().advertised_receive(1), 50001U);
    sent = send(30000, 1, 8);
    EXPECT_EQ(finish(right(), second).bytes, 30000);
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_TRUE(received(60000, 8, 30000));
    EXPECT_TRUE(right().can_advertise(1, 32));
}

TEST_P(Advertisements, that_cannot_be_posted_are_cancelled_or_end_with_the_channel) {
    Request cancelled;
    Request other;
    {
        const PostFilter filter = refuse_messages();
        cancelled = receive(50000, 1, 0);
        other = receive(50001, 1, 0);
        EXPECT_EQ(right().cancel(cancelled), code(0));
        progress_all();
    }
    EXPECT_EQ(finish(right(), cancelled).error, code(ECANCELED));
    ASSERT_TRUE(progress_until([&] { return left().advertised_receive(1).has_value(); }));
    EXPECT_EQ(left().advertised_receive(1), 50001U);
    {
        const PostFilter filter = refuse_messages();
        cancelled = receive(50000, 2, 0);
        left_.reset();
    }
    EXPECT_EQ(finish(right(), cancelled).error, code(ECONNRESET));
    EXPECT_EQ(finish(right(), other).error, code(ECONNRESET));
}

} // namespace
} // namespace rdmabuf::testing
