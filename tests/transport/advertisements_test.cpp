// SPDX-License-Identifier: BSD-3-Clause
// Long messages whose receives were posted and advertised to the sender before the send.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class Advertisements : public FeaturesTest, public ::testing::WithParamInterface<std::size_t> {
  protected:
    static constexpr std::size_t size = memory_size;

    void SetUp() override {
        use_devices(GetParam());
        connect_with_memory();
    }
    /// Waits for a send without progress at the receiver.
    [[nodiscard]] Completion finish_alone(const Request& request) { return wait(left(), request); }
    [[nodiscard]] bool waits_for_the_receiver(const Request& request) {
        return !wait(left(), request, 50ms).done;
    }
};

INSTANTIATE_TEST_SUITE_P(devices, Advertisements, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(Advertisements, let_the_sender_write_without_the_processor_of_the_receiver) {
    for (int i = 0; i < 100; ++i) {
        const Request posted = receive(200000, 1, 100);
        settle();
        const Request sent = send(200000, 1, static_cast<std::size_t>(i));
        const Completion completion = finish_alone(sent);
        ASSERT_TRUE(completion.done);
        ASSERT_EQ(completion.error, code(0));
        ASSERT_EQ(finish(right(), posted).bytes, 200000);
        ASSERT_TRUE(received(100, static_cast<std::size_t>(i), 200000));
    }
}

TEST_P(Advertisements, are_used_for_shorter_messages) {
    const Request posted = receive(200000, 1, 0);
    settle();
    const Request sent = send(150001, 1, 0);
    EXPECT_TRUE(finish_alone(sent).done);
    EXPECT_EQ(finish(right(), posted).bytes, 150001);
    EXPECT_TRUE(received(0, 0, 150001));
    EXPECT_TRUE(to_->bytes(150001, 49999) == std::vector<std::byte>(49999));
}

TEST_P(Advertisements, need_one_work_request_of_each_device_also_for_shorter_messages) {
    const Request posted = receive(200000, 1, 0);
    settle();
    forget_calls();
    const Request sent = send(150001, 1, 0);
    EXPECT_TRUE(finish_alone(sent).done);
    EXPECT_EQ(finish(right(), posted).bytes, 150001);
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

TEST_P(Advertisements, are_used_up_by_eager_messages) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{100}, std::size_t{8192}}) {
        SCOPED_TRACE(length);
        const Request posted = receive(200000, 1, 0);
        settle();
        const Request sent = send(length, 1, 7);
        EXPECT_EQ(finish(right(), posted).bytes, length);
        EXPECT_EQ(finish(left(), sent).error, code(0));
        EXPECT_TRUE(received(0, 7, length));
    }
    // No advertisement remains.
    const Request late = send(200000, 1, 0);
    EXPECT_TRUE(waits_for_the_receiver(late));
    const Request posted = receive(200000, 1, 0);
    EXPECT_EQ(finish(right(), posted).bytes, 200000);
    EXPECT_EQ(finish(left(), late).error, code(0));
}

TEST_P(Advertisements, of_receives_that_are_too_short_end_with_emsgsize_at_both_ends) {
    const Request posted = receive(20000, 1, 0);
    settle();
    const Request sent = send(20001, 1, 0);
    EXPECT_EQ(finish(right(), posted).error, code(EMSGSIZE));
    EXPECT_EQ(finish(left(), sent).error, code(EMSGSIZE));
    EXPECT_TRUE(to_->bytes(0, 20000) == std::vector<std::byte>(20000));
    pass(*from_, *to_, 50000);
}

TEST_P(Advertisements, are_ignored_if_a_message_in_flight_matches_their_receive) {
    const Request first = receive(100000, 1, 0);
    right().progress();
    const Request small = send(10, 1, 0);
    for (int i = 0; i < 100; ++i) {
        left().progress(); // The advertisement arrives.
    }
    const Request large = send(100000, 1, 10);
    EXPECT_TRUE(waits_for_the_receiver(large));
    EXPECT_EQ(finish(right(), first).bytes, 10);
    const Request second = receive(100000, 1, 100000);
    EXPECT_EQ(finish(right(), second).bytes, 100000);
    EXPECT_EQ(finish(left(), small).error, code(0));
    EXPECT_EQ(finish(left(), large).error, code(0));
    EXPECT_TRUE(received(0, 0, 10));
    EXPECT_TRUE(to_->bytes(10, 99990) == std::vector<std::byte>(99990));
    EXPECT_TRUE(received(100000, 10, 100000));
}

TEST_P(Advertisements, of_many_tags_all_receive_their_messages) {
    constexpr std::size_t count = 50;
    constexpr std::size_t length = 20000;
    std::array<Request, count> receives;
    std::array<Request, count> sends;
    for (std::size_t i = 0; i < count; ++i) {
        receives[i] = receive(length, i, i * length);
    }
    settle();
    for (std::size_t i = count; i-- > 0;) {
        sends[i] = send(length, i, i * length);
    }
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(finish(right(), receives[i]).bytes, length);
        EXPECT_EQ(finish(left(), sends[i]).error, code(0));
    }
    EXPECT_TRUE(received(0, 0, count * length));
}

/// One message and its receive. The receive of the n-th message of a tag is the n-th one.
struct Exchange {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t length = 0;
    std::size_t room = 0;
    Tag tag = 0;
    Request sent = {};
    Request received = {};
};

// The order of sends, receives and progress at both ends is random.
TEST_P(Advertisements, and_other_messages_keep_the_order_of_each_tag) {
    constexpr std::array<std::size_t, 8> lengths = {0, 1, 500, 8192, 8193, 20000, 65536, 100000};
    constexpr std::size_t count = 8;
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed);
        const auto below = [&](std::size_t n) { return random() % n; };
        to_->fill(std::vector<std::byte>(size));

        std::vector<Exchange> exchanges(count);
        for (std::size_t i = 0; i < count; ++i) {
            Exchange& exchange = exchanges[i];
            exchange = {.from = below(100000), .to = i * (size / count), .tag = below(2)};
            exchange.length = lengths[below(lengths.size())];
            exchange.room = below(4) != 0 ? exchange.length : lengths[below(lengths.size())];
        }
        // Both ends start the requests of one tag in the same order. The order of receives of
        // different tags is random.
        std::deque<Exchange*> to_send;
        std::deque<Exchange*> to_receive;
        for (Exchange& exchange : exchanges) {
            to_send.push_back(&exchange);
            to_receive.push_back(&exchange);
        }
        std::stable_sort(
            to_receive.begin(), to_receive.end(),
            [flip = below(3)](const Exchange* a, const Exchange* b) {
                return flip == 0 ? a->tag < b->tag : flip == 1 ? a->tag > b->tag : false;
            });
        while (!to_send.empty() || !to_receive.empty()) {
            switch (below(4)) {
                case 0:
                    left().progress();
                    break;
                case 1:
                    right().progress();
                    break;
                case 2:
                    if (!to_send.empty()) {
                        Exchange& next = *to_send.front();
                        next.sent = send(next.length, next.tag, next.from);
                        to_send.pop_front();
                    }
                    break;
                default:
                    if (!to_receive.empty()) {
                        Exchange& next = *to_receive.front();
                        next.received = receive(next.room, next.tag, next.to);
                        to_receive.pop_front();
                    }
                    break;
            }
        }
        for (const Exchange& exchange : exchanges) {
            const bool fits = exchange.length <= exchange.room;
            const Completion completion = finish(right(), exchange.received);
            ASSERT_EQ(completion.error, code(fits ? 0 : EMSGSIZE));
            ASSERT_EQ(completion.bytes, exchange.length);
            const Completion sent = finish(left(), exchange.sent);
            ASSERT_EQ(sent.error, code(fits || exchange.length <= 8192 ? 0 : EMSGSIZE));
            const std::size_t written = fits ? exchange.length : 0;
            ASSERT_TRUE(received(exchange.to, exchange.from, written));
            ASSERT_TRUE(to_->bytes(exchange.to + written, size / count - written) ==
                        std::vector<std::byte>(size / count - written));
        }
        ASSERT_EQ(left().in_flight() + right().in_flight(), 0);
    }
}

} // namespace
} // namespace rdmabuf::testing
