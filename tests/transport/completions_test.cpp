// SPDX-License-Identifier: BSD-3-Clause
// How a program learns that requests have ended: context pointers, sleeping, wait_any(), and the
// limits of the number of requests and channels.

#include <array>
#include <map>
#include <set>

#include "features_fixture.hpp"
#include "poll_counter.hpp"

namespace rdmabuf::testing {
namespace {

class Completions : public FeaturesTest {
  protected:
    void SetUp() override { connect_with_memory(); }

    /// Makes progress until @p count requests of an endpoint with a context have ended.
    [[nodiscard]] std::vector<Completion> poll_completions(const Endpoint& end, std::size_t count) {
        std::vector<Completion> result;
        static_cast<void>(progress_until([&] {
            std::array<Completion, 2> completions;
            const std::size_t polled = end.poll_completions(completions);
            result.insert(result.end(), completions.begin(),
                          completions.begin() + static_cast<std::ptrdiff_t>(polled));
            return result.size() >= count;
        }));
        return result;
    }
};

TEST_F(Completions, of_requests_with_a_context_are_polled_from_the_endpoint) {
    std::array<int, 8> contexts{};
    const RemoteMemory target = remote();
    static_cast<void>(receive(100, 1, 0, contexts.data()));
    static_cast<void>(receive(200000, 2, 1000, &contexts[1]));
    static_cast<void>(send(50, 1, 0, &contexts[2]));
    static_cast<void>(send(200000, 2, 0, &contexts[3]));
    Request request;
    ASSERT_EQ(left().iput(from_->memory(), from_->data(), 8, target, 500000, request, &contexts[4]),
              code(0));
    ASSERT_EQ(left().iget(from_->memory(), from_->data(500000), 300000, target, 500000, request,
                          &contexts[5]),
              code(0));
    ASSERT_EQ(left().ifence(request, &contexts[6]), code(0));
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(900000), 10, 3, full_mask, request,
                                &contexts[7]),
              code(0));
    static_cast<void>(send(10, 3));

    std::map<void*, Completion> done;
    for (const Completion& completion : poll_completions(left_end(), 5)) {
        EXPECT_TRUE(done.emplace(completion.context, completion).second);
    }
    for (const Completion& completion : poll_completions(right_end(), 3)) {
        EXPECT_TRUE(done.emplace(completion.context, completion).second);
    }
    ASSERT_EQ(done.size(), contexts.size());
    const std::array<std::size_t, 8> bytes = {50, 200000, 50, 200000, 8, 300000, 0, 10};
    for (std::size_t i = 0; i < contexts.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_TRUE(done.contains(&contexts[i]));
        const Completion& completion = done[&contexts[i]];
        EXPECT_TRUE(completion.done);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.bytes, bytes[i]);
        const bool at_right = i == 0 || i == 1 || i == 7;
        EXPECT_EQ(completion.channel, at_right ? right().number() : left().number());
    }
    EXPECT_EQ(done[contexts.data()].tag, 1);
    EXPECT_EQ(done[&contexts[1]].tag, 2);
    std::array<Completion, 4> none;
    EXPECT_EQ(left_end().poll_completions(none), 0);
    EXPECT_EQ(right_end().poll_completions(none), 0);
    EXPECT_EQ(left().in_flight(), 0);
    EXPECT_EQ(right().in_flight(), 0);
}

TEST_F(Completions, that_test_reports_are_not_polled_again) {
    int context = 0;
    Request request = receive(100, 1, 0, &context);
    Request sent = send(100, 1);
    const Completion completion = complete(right(), request);
    EXPECT_EQ(completion.bytes, 100);
    EXPECT_EQ(completion.context, &context);
    EXPECT_EQ(complete(left(), sent).error, code(0));
    std::array<Completion, 1> none;
    EXPECT_EQ(right_end().poll_completions(none), 0);
}

TEST_F(Completions, of_requests_with_a_context_are_polled_after_close) {
    std::array<int, 2> contexts{};
    Request request = receive(100, 1, 0, contexts.data());
    request = receive(200000, 2, 1000, &contexts[1]);
    EXPECT_EQ(right().close(), code(0));
    const std::vector<Completion> completions = poll_completions(right_end(), 2);
    std::set<void*> found;
    for (const Completion& completion : completions) {
        EXPECT_EQ(completion.error, code(EBADF));
        EXPECT_EQ(completion.bytes, 0);
        EXPECT_NE(completion.channel, 0);
        found.insert(completion.context);
    }
    EXPECT_EQ(found, (std::set<void*>{contexts.data(), &contexts[1]}));
}

TEST_F(Completions, that_were_not_polled_keep_an_endpoint_from_being_armed) {
    int context = 0;
    const auto is_armed = [&] { return left_end().arm(); };
    ASSERT_TRUE(eventually(is_armed));
    static_cast<void>(send(10, 1, 0, &context)); // It ends in the call.
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(is_armed());
    }
    EXPECT_EQ(poll_completions(left_end(), 1).size(), 1);
    EXPECT_TRUE(eventually(is_armed));
}

TEST_F(Completions, make_the_descriptor_of_an_armed_endpoint_readable) {
    for (const std::size_t length : {std::size_t{10}, std::size_t{5000}, std::size_t{200000}}) {
        for (int round = 0; round < 20; ++round) {
            SCOPED_TRACE(length);
            Request request = receive(length, 1);
            ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
            EXPECT_FALSE(is_readable(right_end().descriptor()));
            Request sent = send(length, 1);
            // The message arrives after arm(), so only the event of its completion can make the
            // descriptor readable.
            ASSERT_TRUE(becomes_readable(right_end().descriptor()));
            Completion completion;
            for (int wakeups = 0; !completion.done; ++wakeups) {
                ASSERT_LT(wakeups, 1000);
                // The sender has to make progress for a long message.
                left_end().progress();
                if (right_end().arm()) {
                    ASSERT_TRUE(becomes_readable(right_end().descriptor()));
                }
                completion = right().test(request);
            }
            EXPECT_EQ(completion.bytes, length);
            EXPECT_EQ(complete(left(), sent).error, code(0));
        }
    }
}

TEST_F(Completions, the_end_of_a_peer_makes_the_descriptor_readable) {
    ASSERT_TRUE(progress_until([&] { return right_end().arm(); }));
    EXPECT_EQ(left().close(), code(0));
    EXPECT_TRUE(becomes_readable(right_end().descriptor()));
    EXPECT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
}

// A call that does not sleep polls all the time.
constexpr unsigned polls_before_sleep = 20'000;

TEST_F(Completions, waiting_for_one_and_for_any_one_sleeps) {
    std::array<transport::Pending, 2> pending = {
        {{.channel = &right(), .request = receive(10, 1)},
         {.channel = &right(), .request = receive(10, 2, 100)}}};
    const PollCounter counter(right_end().protection_domain().context());
    EXPECT_FALSE(right().wait(pending[0].request, 2000ms).done);
    Completion completion;
    EXPECT_EQ(transport::wait_any(pending, completion, 2000ms), pending.size());
    EXPECT_LT(counter.polls, polls_before_sleep);
}

TEST_F(Completions, wait_any_reports_what_the_test_of_another_request_has_ended) {
    std::array<transport::Pending, 2> pending = {
        {{.channel = &right(), .request = receive(10, 1)},
         {.channel = &right(), .request = receive(10, 2, 100)}}};
    PollCounter counter(right_end().protection_domain().context());
    counter.before_each_poll([&] {
        if (counter.polls == 2) { // of the test of the second request
            static_cast<void>(send(10, 1));
            settle([&] { left_end().progress(); });
        }
    });
    Completion completion;
    EXPECT_EQ(transport::wait_any(pending, completion, 0ms), 0);
    EXPECT_EQ(completion.tag, 1);
}

TEST_F(Completions, wait_any_reports_requests_of_a_closed_channel_once) {
    std::array<transport::Pending, 2> pending = {
        {{.channel = &right(), .request = receive(10, 1)},
         {.channel = &right(), .request = receive(10, 2, 100)}}};
    static_cast<void>(right().close());
    Completion completion;
    for (std::size_t i = 0; i < pending.size(); ++i) {
        EXPECT_EQ(transport::wait_any(pending, completion, wait_forever), i);
        EXPECT_EQ(completion.error, code(EBADF));
    }
    EXPECT_EQ(transport::wait_any(pending, completion, wait_forever), pending.size());
}

TEST_F(Completions, wait_and_wait_any_take_receives_of_any_channel) {
    Request any;
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(), 64, 0, 0, any), code(0));
    EXPECT_FALSE(right_end().wait(any, 1ms).done);
    Request sent = send(10, 7);
    Completion completion = right_end().wait(any, time_limit);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.tag, 7);
    EXPECT_EQ(complete(left(), sent).error, code(0));

    std::array<transport::Pending, 2> pending = {
        {{.channel = &right(), .request = receive(64, 9)}, {.endpoint = &right_end()}}};
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(), 64, 8, full_mask, pending[1].request),
              code(0));
    EXPECT_EQ(transport::wait_any(pending, completion, 1ms), pending.size());
    EXPECT_FALSE(completion.done);
    sent = send(10, 8);
    EXPECT_EQ(transport::wait_any(pending, completion, time_limit), 1);
    EXPECT_EQ(completion.tag, 8);
    EXPECT_EQ(completion.channel, right().number());
    EXPECT_EQ(complete(left(), sent).error, code(0));
    sent = send(10, 9);
    EXPECT_EQ(transport::wait_any(pending, completion, time_limit), 0);
    EXPECT_EQ(complete(left(), sent).error, code(0));
}

TEST_F(Completions, poll_failed_reports_each_failed_channel_once) {
    connect_third();
    EXPECT_EQ(right_end().poll_failed(), std::nullopt);
    const std::uint32_t first = right().number();
    const std::uint32_t second = right_of_third().number();
    EXPECT_EQ(third().close(), code(0));
    std::optional<std::uint32_t> failed;
    ASSERT_TRUE(progress_until([&] {
        failed = right_end().poll_failed();
        return failed.has_value();
    }));
    EXPECT_EQ(failed, second);
    EXPECT_EQ(right_of_third().state(), code(ECONNRESET));
    EXPECT_EQ(right_end().poll_failed(), std::nullopt);
    EXPECT_EQ(left().close(), code(0));
    ASSERT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
    EXPECT_EQ(right_end().poll_failed(), first);
    EXPECT_EQ(right_end().poll_failed(), std::nullopt);
    // A channel that the program closes is not reported, nor is one that it has closed.
    connect_third();
    EXPECT_EQ(third().close(), code(0));
    ASSERT_TRUE(progress_until([&] { return right_of_third().state() == code(ECONNRESET); }));
    static_cast<void>(right_of_third().close());
    EXPECT_EQ(right_end().poll_failed(), std::nullopt);
}

TEST_F(Completions, wait_any_skips_empty_entries) {
    std::array<transport::Pending, 3> pending = {
        {{.channel = nullptr, .request = {}},
         {.channel = &right(), .request = receive(10, 1)},
         {.channel = &right(), .request = receive(10, 2, 100)}}};
    Request first = send(10, 2);
    Completion completion;
    ASSERT_EQ(transport::wait_any(pending, completion, time_limit), 2);
    EXPECT_EQ(completion.tag, 2);
    EXPECT_EQ(completion.bytes, 10);
    Request second = send(10, 1);
    ASSERT_EQ(transport::wait_any(pending, completion, time_limit), 1);
    EXPECT_EQ(completion.tag, 1);
    // All entries are empty now.
    completion = {};
    EXPECT_EQ(transport::wait_any(pending, completion, wait_forever), 3);
    EXPECT_EQ(transport::wait_any({}, completion, wait_forever), 0);
    EXPECT_FALSE(completion.done);
    EXPECT_EQ(complete(left(), first).error, code(0));
    EXPECT_EQ(complete(left(), second).error, code(0));
}

class Sockets : public FeaturesTest, public ::testing::WithParamInterface<std::pair<bool, bool>> {
  protected:
    [[nodiscard]] static Result<Endpoint> open_with(const Resolver& resolver,
                                                    EndpointOptions options, bool keep_sockets) {
        options.keep_sockets = keep_sockets;
        return Endpoint::open(Context::open_first(), resolver, options);
    }
};

INSTANTIATE_TEST_SUITE_P(keep, Sockets,
                         ::testing::Values(std::pair(true, true), std::pair(false, true),
                                           std::pair(true, false), std::pair(false, false)),
                         [](const auto& value) {
                             return std::string(value.param.first ? "left" : "nobody") + "_" +
                                    (value.param.second ? "right" : "nobody");
                         });

TEST_P(Sockets, that_one_end_does_not_keep_do_not_end_the_channel) {
    auto left_opened = open_with(resolver_, options_, GetParam().first);
    ASSERT_TRUE(left_opened.ok()) << left_opened.message();
    left_end_.emplace(*std::move(left_opened));
    auto right_opened = open_with(resolver_, options_, GetParam().second);
    ASSERT_TRUE(right_opened.ok()) << right_opened.message();
    right_end_.emplace(*std::move(right_opened));
    transport::Listener listener = listen();
    auto channels = connect_another(left_end(), listener);
    left_.emplace(std::move(channels.first));
    right_.emplace(std::move(channels.second));
    from_.emplace(left_memory(memory_size));
    to_.emplace(right_memory(memory_size));
    from_->fill(pattern(memory_size));
    for (int i = 0; i < 2000; ++i) {
        progress_all();
    }
    // The endpoints look at the sockets when they sleep.
    left_end().wait(150ms);
    right_end().wait(150ms);
    for (const std::size_t length : {std::size_t{10}, std::size_t{200000}}) {
        pass(*from_, *to_, length);
    }
    EXPECT_EQ(left().state(), code(0));
    EXPECT_EQ(right().state(), code(0));
    EXPECT_EQ(left().close(), code(0));
    EXPECT_TRUE(progress_until([&] { return right().state() == code(ECONNRESET); }));
    EXPECT_STREQ(right().reason(), "the peer has closed the channel");
}

} // namespace
} // namespace rdmabuf::testing
