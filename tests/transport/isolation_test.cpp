// SPDX-License-Identifier: BSD-3-Clause
// Messages that are not received do not delay others, many channels of one endpoint, and data for
// GPU kernels that are already running.
#include <array>
#include <set>

#include "features_fixture.hpp"
#include "post_filter.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

using transport::Visibility;

class UnexpectedMessages : public FeaturesTest {
  protected:
    /// Writes @p length bytes with a notification. The data and the notification arrive, although
    /// no message is received.
    void pass_notification(std::size_t length) {
        Request put;
        clear_received();
        ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(9), length, remote(), 100,
                                     length + 1, put),
                  code(0));
        EXPECT_EQ(next_notification(right()), length + 1);
        EXPECT_TRUE(received(100, 9, length));
        EXPECT_EQ(complete(left(), put).error, code(0));
    }
    /// Sends messages of tag 1 that are not received yet. Then passes messages of tag 2 and
    /// notifications. Then receives all messages of tag 1 in order.
    void flood(std::size_t count, std::size_t length) {
        options_.depth = static_cast<std::uint32_t>(count) + 100;
        connect_with_memory();
        std::vector<Request> sent;
        for (std::size_t i = 0; i < count; ++i) {
            sent.push_back(send(length, 1, i));
            if (i % 64 == 0) {
                progress_all();
            }
        }
        for (const std::size_t other :
             {std::size_t{0}, std::size_t{10}, std::size_t{5000}, std::size_t{200000}}) {
            SCOPED_TRACE(other);
            pass(*from_, *to_, other, 2);
            pass_notification(other);
        }
        for (std::size_t i = 0; i < count; ++i) {
            Request request = receive(length, 1);
            ASSERT_EQ(complete(right(), request).bytes, length) << i;
            ASSERT_TRUE(received(0, i, length)) << i;
            ASSERT_EQ(complete(left(), sent[i]).error, code(0)) << i;
        }
    }
};

TEST_F(UnexpectedMessages, do_not_block_another_tag_or_notifications_if_there_are_5000) {
    flood(5000, 10);
}
TEST_F(UnexpectedMessages,
       of_which_5000_exceed_the_limit_do_not_block_another_tag_or_notifications) {
    options_.unexpected_limit = 4096; // 55 messages
    flood(5055, 10);
}
TEST_F(UnexpectedMessages, that_exceed_the_limit_by_their_bytes_do_not_block_another_tag) {
    options_.unexpected_limit = 65536;
    flood(300, 5000);
}
TEST_F(UnexpectedMessages, that_are_long_do_not_block_another_tag_or_notifications) {
    flood(500, 20000);
}

TEST_F(UnexpectedMessages, for_device_memory_count_towards_the_limit_until_they_are_copied) {
    options_.unexpected_limit = 4096; // 55 messages
    connect_with_memory();
    const TestMemory device = right_memory(memory_size, Kind::dmabuf);
    transport::detail::SendQueue& queue = right().endpoint()->shared.rails[0]->loopback->queue;
    queue.suspend(); // The loopback queue pair has no room for a copy.
    constexpr std::size_t length = 10;
    std::vector<Request> receives;
    std::size_t sent = 0;
    for (int round = 0; round < 10; ++round) {
        while (left().send_copy(from_->bytes(sent, length), 1) == code(0)) {
            ++sent;
        }
        settle();
        while (receives.size() < sent) {
            void* const to = device.data(receives.size() * length);
            ASSERT_EQ(right().irecv(device.memory(), to, length, 1, receives.emplace_back()),
                      code(0));
        }
        settle();
    }
    EXPECT_EQ(sent, 55 + transport::detail::BouncePool::copy_buffers);
    queue.resume();
    for (std::size_t i = 0; i < sent; ++i) {
        EXPECT_EQ(complete(right(), receives[i]).error, code(0)) << i;
        EXPECT_TRUE(device.bytes(i * length, length) == from_->bytes(i, length)) << i;
    }
    settle(); // The credits arrive.
    EXPECT_EQ(left().send_copy(from_->bytes(0, length), 1), code(0));
}

using Channels = FeaturesTest;

TEST_F(Channels, of_one_endpoint_can_be_several_hundred) {
    constexpr std::size_t count = 300;
    use_devices(1);
    open();
    from_.emplace(left_memory(memory_size));
    to_.emplace(right_memory(memory_size));
    from_->fill(pattern(memory_size));
    transport::Listener listener = listen();
    std::vector<std::pair<Channel, Channel>> channels;
    std::set<std::uint32_t> numbers = {0};
    for (std::size_t i = 0; i < count; ++i) {
        channels.push_back(connect_another(left_end(), listener));
        EXPECT_TRUE(numbers.insert(channels.back().first.number()).second);
        EXPECT_TRUE(numbers.insert(channels.back().second.number()).second);
    }
    constexpr std::size_t room = 100;
    std::vector<Request> sends(count);
    std::vector<Request> receives(count);
    for (std::size_t i = 0; i < count; ++i) {
        auto& [near, far] = channels[i];
        ASSERT_EQ(far.irecv(to_->memory(), to_->data(i * room), room, 1, receives[i]), code(0));
        // The messages of the channels have different lengths.
        ASSERT_EQ(near.isend(from_->memory(), from_->data(i), i % room, 1, sends[i]), code(0));
    }
    for (std::size_t i = count; i-- > 0;) {
        auto& [near, far] = channels[i];
        const Completion completion = complete(far, receives[i]);
        ASSERT_EQ(completion.error, code(0)) << i;
        ASSERT_EQ(completion.bytes, i % room);
        ASSERT_EQ(completion.channel, far.number());
        ASSERT_TRUE(received(i * room, i, i % room)) << i;
        ASSERT_EQ(complete(near, sends[i]).error, code(0)) << i;
    }
    // Each channel ends without an effect on the others.
    for (std::size_t i = 0; i < count; i += 2) {
        EXPECT_EQ(channels[i].first.close(), code(0));
        EXPECT_EQ(channels[i].first.number(), 0);
    }
    ASSERT_TRUE(progress_until([&] {
        for (std::size_t i = 0; i < count; i += 2) {
            if (channels[i].second.state() != code(ECONNRESET)) {
                return false;
            }
        }
        return true;
    }));
    for (std::size_t i = 1; i < count; i += 2) {
        auto& [near, far] = channels[i];
        ASSERT_EQ(far.irecv(to_->memory(), to_->data(), 5000, 1, receives[i]), code(0));
        ASSERT_EQ(near.isend(from_->memory(), from_->data(), 5000, 1, sends[i]), code(0));
        ASSERT_EQ(complete(far, receives[i]).bytes, 5000);
        ASSERT_EQ(complete(near, sends[i]).error, code(0));
    }
    // The numbers of closed channels are not used again.
    channels.push_back(connect_another(left_end(), listener));
    EXPECT_TRUE(numbers.insert(channels.back().first.number()).second);
    EXPECT_TRUE(numbers.insert(channels.back().second.number()).second);
    channels.clear();
}

// The peer of the other channels computes, so that its receive buffers are full.
TEST_F(Channels, send_although_the_messages_of_many_others_are_not_received) {
    options_.receive_buffers = 16;
    options_.inline_data = 0; // Each message needs a send buffer, also a credit or a CTS.
    options_.linger = 1ms;
    open();
    ASSERT_NO_FATAL_FAILURE(connect_third());
    auto listener = left_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    std::vector<std::pair<Channel, Channel>> blocked;
    blocked.reserve(20);
    for (int i = 0; i < 20; ++i) {
        blocked.push_back(connect_another(right_end(), *listener));
    }
    const TestMemory source = right_memory(memory_size);
    const TestMemory target = memory_of(*third_end_, memory_size);
    for (auto& [near, far] : blocked) {
        for (int i = 0; i < 100; ++i) {
            Request request;
            ASSERT_EQ(near.isend(source.memory(), source.data(), 300, 1, request), code(0));
        }
    }
    for (const std::size_t length : {10U, 300U, 5000U, 200000U}) {
        SCOPED_TRACE(length);
        for (int i = 0; i < 40; ++i) {
            for (const bool to_third : {true, false}) {
                Channel& sender = to_third ? right_of_third() : third();
                Channel& receiver = to_third ? third() : right_of_third();
                const TestMemory& from = to_third ? source : target;
                const TestMemory& to = to_third ? target : source;
                Request sent;
                Request received;
                ASSERT_EQ(sender.isend(from.memory(), from.data(), length, 2, sent), code(0));
                ASSERT_EQ(receiver.irecv(to.memory(), to.data(), length, 2, received), code(0));
                bool sending = true;
                bool receiving = true;
                ASSERT_TRUE(eventually([&] {
                    sending = sending && !sender.test(sent).done;
                    receiving = receiving && !receiver.test(received).done;
                    return !sending && !receiving;
                }));
            }
        }
    }
    std::vector<Channel> near;
    for (auto& pair : blocked) {
        EXPECT_EQ(pair.first.state(), code(0)) << pair.first.reason();
        near.push_back(std::move(pair.first));
    }
    EXPECT_EQ(Channel::close_all(near), code(ETIMEDOUT));
}

class Visible : public FeaturesTest, public ::testing::WithParamInterface<std::size_t> {
  protected:
    void SetUp() override {
        use_devices(GetParam());
        connect();
        from_.emplace(left_memory(memory_size));
        from_->fill(pattern(memory_size));
        buffer_.emplace(memfds_->allocate(memory_size));
    }
    void TearDown() override {
        FeaturesTest::TearDown(); // Requests that have not ended use the memory until then.
        memory_.reset();
        buffer_.reset();
    }

    void register_memory(Visibility visibility) {
        auto memory =
            right_end().register_memory(reinterpret_cast<const void*>(buffer_->address()),
                                        memory_size, Endpoint::default_access, visibility);
        ASSERT_TRUE(memory.ok()) << memory.message();
        memory_.emplace(*std::move(memory));
    }
    /// Returns the number of work requests that were posted to the loopback queue pairs of the
    /// right endpoint.
    [[nodiscard]] std::uint32_t loopback_requests() const {
        std::uint32_t count = 0;
        for (const auto& rail : right_->endpoint()->shared.rails) {
            count += rail->loopback ? rail->loopback->queue.next() - 1 : 0;
        }
        return count;
    }
    /// Receives a message into the device memory.
    /// @return the number of loopback work requests
    std::uint32_t pass_to_device(std::size_t length, bool receive_first) {
        const std::uint32_t before = loopback_requests();
        Request request;
        Request sent;
        const auto receive_message = [&] {
            ASSERT_EQ(right().irecv(*memory_, reinterpret_cast<void*>(buffer_->address()),
                                    memory_size, 1, request),
                      code(0));
            settle();
        };
        if (receive_first) {
            receive_message();
        }
        sent = send(length, 1, 3);
        if (!receive_first) {
            settle();
            receive_message();
        }
        EXPECT_EQ(complete(right(), request).bytes, length);
        EXPECT_EQ(complete(left(), sent).error, code(0));
        std::vector<std::byte> bytes(length);
        buffer_->copy_out(0, bytes);
        EXPECT_TRUE(bytes == from_->bytes(3, length));
        return loopback_requests() - before;
    }

    /// Copies a message to device memory while another channel flushes revoked memory. A copy that
    /// was executed, and is not acknowledged yet, is flushed before the request that fails.
    void pass_beside_revoked_memory(bool revoked_first) {
        ASSERT_NO_FATAL_FAILURE(connect_third());
        register_memory(Visibility::next_kernel);
        const TestMemory revoked = right_memory(memory_size, Kind::dmabuf);
        TestMemory source = memory_of(*third_end_, memory_size);
        source.fill(pattern(memory_size, 3));
        Request sent;
        ASSERT_EQ(third().isend(source.memory(), source.data(), 200, 1, sent), code(0));
        settle();
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
        ASSERT_EQ(softverbs_revoke_mr(revoked.memory().state()->lease.registration().native()), 0);
        Request culprit;
        Request innocent;
        for (const bool flushes : {revoked_first, !revoked_first}) {
            if (flushes) {
                ASSERT_EQ(right().iflush(revoked.memory(), revoked.data(), 100, culprit), code(0));
            } else {
                ASSERT_EQ(
                    right_of_third().irecv(*memory_, reinterpret_cast<void*>(buffer_->address()),
                                           200, 1, innocent),
                    code(0));
            }
        }
        right().progress();
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
        EXPECT_EQ(complete(right(), culprit).error, code(EFAULT));
        EXPECT_EQ(complete(right_of_third(), innocent).error, code(0)) << right_of_third().reason();
        EXPECT_EQ(right_of_third().state(), code(0));
        std::vector<std::byte> bytes(200);
        buffer_->copy_out(0, bytes);
        EXPECT_TRUE(bytes == source.bytes(0, 200));
        for (const auto& rail : right_->endpoint()->shared.rails) {
            EXPECT_EQ(rail->suspects, 0U);
        }
    }

    std::optional<Buffer> buffer_;
    std::optional<Memory> memory_;
};

INSTANTIATE_TEST_SUITE_P(devices, Visible, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(Visible, revoked_memory_ends_no_receives_of_other_channels) {
    ASSERT_NO_FATAL_FAILURE(connect_third());
    register_memory(Visibility::next_kernel);
    const TestMemory revoked = right_memory(memory_size, Kind::dmabuf);
    TestMemory source = memory_of(*third_end_, memory_size);
    source.fill(pattern(memory_size, 3));
    Request culprit;
    Request innocent;
    ASSERT_EQ(right().irecv(revoked.memory(), revoked.data(), 5000, 1, culprit), code(0));
    ASSERT_EQ(right_of_third().irecv(*memory_, reinterpret_cast<void*>(buffer_->address()), 5000, 1,
                                     innocent),
              code(0));
    ibv_mr* const region = revoked.memory().state()->lease.registration().native();
    ASSERT_EQ(softverbs_revoke_mr(region), 0);
    // Both copies wait on the loopback queue pair when the first one fails.
    const Request sent = send(5000);
    Request other;
    ASSERT_EQ(third().isend(source.memory(), source.data(), 5000, 1, other), code(0));
    EXPECT_EQ(complete(right(), culprit).error, code(EFAULT));
    EXPECT_EQ(right().state(), code(ECONNABORTED));
    EXPECT_EQ(complete(right_of_third(), innocent).error, code(0)) << right_of_third().reason();
    EXPECT_EQ(right_of_third().state(), code(0));
    std::vector<std::byte> bytes(5000);
    buffer_->copy_out(0, bytes);
    EXPECT_TRUE(bytes == source.bytes(0, 5000));
    static_cast<void>(sent);
}

TEST_P(Visible, a_flush_of_revoked_memory_ends_beside_many_others) {
    register_memory(Visibility::next_kernel);
    const TestMemory revoked = right_memory(memory_size, Kind::dmabuf);
    ASSERT_EQ(softverbs_revoke_mr(revoked.memory().state()->lease.registration().native()), 0);
    std::array<Request, 200> flushes;
    const auto start = [&](Request& flush) {
        ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 10, flush),
                  code(0));
    };
    std::ranges::for_each(flushes, start);
    Request culprit;
    ASSERT_EQ(right().iflush(revoked.memory(), revoked.data(), 10, culprit), code(0));
    // A flush that has ended is started again, so that many are in flight, until the failure ends
    // the channel. Channel::test() would make progress.
    const auto is_done = [&](const Request& request) {
        return right().endpoint()->is_done(request);
    };
    for (std::size_t others = 0; !is_done(culprit);) {
        right_end().progress();
        for (Request& flush : flushes) {
            if (is_done(flush) && !right().state()) {
                ASSERT_EQ(right().test(flush).error, code(0));
                ASSERT_LT(++others, 10 * flushes.size());
                start(flush);
            }
        }
    }
    EXPECT_EQ(right().test(culprit).error, code(EFAULT));
}

TEST_P(Visible, many_copies_of_a_channel_do_not_delay_those_of_another) {
    constexpr std::size_t messages = 300;
    constexpr std::size_t at_a_time = 48; // more than there are copy buffers
    options_.depth = 2 * messages;
    ASSERT_NO_FATAL_FAILURE(connect_third());
    register_memory(Visibility::next_kernel);
    const TestMemory source = memory_of(*third_end_, memory_size);
    std::vector<Request> sent(messages);
    for (Request& each : sent) {
        ASSERT_EQ(third().isend(source.memory(), source.data(), 100, 1, each), code(0));
        progress_all();
    }
    const Request alone = send(100);
    settle();
    void* const data = reinterpret_cast<void*>(buffer_->address());
    const auto start = [&](Request& receive) {
        ASSERT_EQ(right_of_third().irecv(*memory_, data, 100, 1, receive), code(0));
    };
    std::array<Request, at_a_time> receives;
    std::ranges::for_each(receives, start);
    Request request;
    ASSERT_EQ(right().irecv(*memory_, data, 100, 1, request), code(0));
    std::size_t ended = 0;
    while (!right().test(request).done) {
        for (Request& receive : receives) {
            if (right_of_third().test(receive).done) {
                ASSERT_LT(++ended, 2 * at_a_time);
                start(receive);
            }
        }
    }
    static_cast<void>(alone);
}

TEST_P(Visible, a_copy_before_a_flush_of_revoked_memory_is_repeated) {
    pass_beside_revoked_memory(false);
}

TEST_P(Visible, a_copy_behind_a_flush_of_revoked_memory_is_repeated) {
    pass_beside_revoked_memory(true);
}

TEST_P(Visible, data_for_a_running_kernel_only_is_flushed_by_each_device) {
    for (const Visibility visibility : {Visibility::running_kernel, Visibility::next_kernel}) {
        register_memory(visibility);
        const bool is_flushed = visibility == Visibility::running_kernel;
        const auto flushes = is_flushed ? static_cast<std::uint32_t>(GetParam()) : 0U;
        for (const bool receive_first : {true, false}) {
            SCOPED_TRACE(::testing::Message() << "flushes " << flushes << ", " << receive_first);
            EXPECT_EQ(pass_to_device(0, receive_first), 0);
            // An eager message needs one copy.
            EXPECT_EQ(pass_to_device(100, receive_first), 1 + flushes);
            EXPECT_EQ(pass_to_device(5000, receive_first), 1 + flushes);
            EXPECT_EQ(pass_to_device(300000, receive_first), flushes);
        }
    }
}

TEST_P(Visible, a_copy_that_cannot_be_posted_is_repeated) {
    register_memory(Visibility::running_kernel);
    // The queue pair then has a receive without a send. If it cannot be moved to the error state,
    // which flushes the receive, this is tried again.
    for (const bool abort_fails : {false, true}) {
        SCOPED_TRACE(abort_fails);
        const ibv_qp* const loopback =
            right().endpoint()->shared.rails[0]->loopback->queue_pair.native();
        unsigned failures = 0;
        const PostFilter filter(right_end().protection_domain().context().native(),
                                [&](const ibv_qp& queue_pair, const ibv_send_wr& work) {
                                    const bool fails = &queue_pair == loopback &&
                                                       work.opcode == IBV_WR_SEND && failures == 0;
                                    if (fails && abort_fails) {
                                        softverbs_fail_call("modify_qp", 1, ENOMEM);
                                    }
                                    failures += fails ? 1 : 0;
                                    return fails ? ENOMEM : 0;
                                });
        pass_to_device(100, true);
        EXPECT_EQ(failures, 1);
        EXPECT_EQ(softverbs_pending_faults(), 0);
        EXPECT_EQ(right().state(), code(0)) << right().reason();
    }
}

// Its work requests would never be flushed.
TEST_P(Visible, a_loopback_queue_pair_that_cannot_enter_the_error_state_is_destroyed) {
    register_memory(Visibility::next_kernel);
    const auto& loopback = right().endpoint()->shared.rails[0]->loopback;
    Request received;
    ASSERT_EQ(
        right().irecv(*memory_, reinterpret_cast<void*>(buffer_->address()), 100, 1, received),
        code(0));
    settle();
    {
        const ibv_qp* const full = loopback->queue_pair.native();
        const PostFilter filter(right_end().protection_domain().context().native(),
                                [full](const ibv_qp& queue_pair, const ibv_send_wr& work) {
                                    const bool fails =
                                        &queue_pair == full && work.opcode == IBV_WR_SEND;
                                    return fails ? ENOMEM : 0;
                                });
        for (unsigned nth = 1; nth <= 1000; ++nth) {
            ASSERT_EQ(softverbs_fail_call("ibv_modify_qp", nth, ENOMEM), 0);
        }
        static_cast<void>(send(100));
        ASSERT_TRUE(progress_until([&] { return !loopback; }));
    }
    softverbs_clear_faults();
    EXPECT_EQ(complete(right(), received).error, code(0)) << right().reason();
    std::vector<std::byte> bytes(100);
    buffer_->copy_out(0, bytes);
    EXPECT_TRUE(bytes == from_->bytes(0, 100));
}

class VisibleByTwo : public Visible {
  protected:
    VisibleByTwo() {
        options_.ack_timeout = 10;
        options_.retry_count = 1;
    }
};

INSTANTIATE_TEST_SUITE_P(devices, VisibleByTwo, ::testing::Values(2));

TEST_P(VisibleByTwo, data_is_flushed_by_the_first_device_just_after_the_other_has_failed) {
    register_memory(Visibility::running_kernel);
    ASSERT_EQ(softverbs_reset_device(1), 0);
    // The endpoint does not know of the failure yet.
    Request flush;
    ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 1, flush),
              code(0));
    EXPECT_EQ(complete(right(), flush).error, code(0)) << right().reason();
    EXPECT_EQ(pass_to_device(100, true), 2);
    EXPECT_EQ(right().state(), code(0)) << right().reason();
}

// By the address of the second device, the first one is reached.
TEST_P(VisibleByTwo, a_flush_fails_if_a_device_does_not_deliver_to_its_own_port) {
    ibv_port_attr attributes = Context::open("soft1").port(1);
    attributes.lid = Context::open("soft0").port(1).lid;
    ASSERT_EQ(softverbs_set_port_attr(1, 1, &attributes), 0);
    register_memory(Visibility::running_kernel);
    Request flush;
    ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 1, flush),
              code(0));
    EXPECT_EQ(complete(right(), flush).error, code(EHOSTUNREACH));
    EXPECT_EQ(right().state(), code(EHOSTUNREACH));
}

class VisibleWithoutLoopback : public VisibleByTwo {
  protected:
    /// Expects that requests end if the loopback queue pair of a device has failed, and that no
    /// other can be created for it.
    void expect_end(std::size_t device) {
        register_memory(Visibility::running_kernel);
        const auto& rail = *right().endpoint()->shared.rails[device];
        const Request sent = send(100);
        settle();
        const StoppedClock clock;
        for (unsigned nth = 1; nth <= 1000; ++nth) {
            ASSERT_EQ(softverbs_fail_call("ibv_create_qp", nth, ENOMEM), 0);
        }
        ibv_async_event event{};
        event.event_type = IBV_EVENT_QP_FATAL;
        event.element.qp = rail.loopback->queue_pair.native();
        ASSERT_EQ(softverbs_raise_event(event.element.qp->context, &event), 0);
        ASSERT_TRUE(progress_until([&] {
            static_cast<void>(right_end().arm());
            return !rail.loopback;
        }));
        std::array<Request, 2> requests;
        void* const data = reinterpret_cast<void*>(buffer_->address());
        ASSERT_EQ(right().iflush(*memory_, data, 1, requests[0]), code(0));
        ASSERT_EQ(right().irecv(*memory_, data, 100, 1, requests[1]), code(0));
        for (Request& request : requests) {
            EXPECT_FALSE(after_a_while(right(), request).done);
        }
        for (int steps = 0; steps < 100; ++steps) {
            StoppedClock::advance(100ms);
            progress_all();
            static_cast<void>(right_end().arm());
        }
        for (Request& request : requests) {
            EXPECT_EQ(after_a_while(right(), request).error, code(ENOMEM));
        }
        EXPECT_EQ(right().state(), code(ECONNABORTED));
        EXPECT_STREQ(right().reason(),
                     "the loopback queue pair of a device of this side cannot be created");
        softverbs_clear_faults();
        for (int steps = 0; steps < 10 && !rail.loopback; ++steps) {
            StoppedClock::advance(100ms); // The endpoint tries it again.
            static_cast<void>(right_end().arm());
        }
        EXPECT_TRUE(rail.loopback);
        static_cast<void>(sent);
    }
};

INSTANTIATE_TEST_SUITE_P(devices, VisibleWithoutLoopback, ::testing::Values(2));

TEST_P(VisibleWithoutLoopback, requests_end_if_it_cannot_be_created_for_the_first_device) {
    expect_end(0);
}

TEST_P(VisibleWithoutLoopback, requests_end_if_it_cannot_be_created_for_the_second_device) {
    expect_end(1);
}

class VisibleWithoutEvents : public VisibleByTwo {
  protected:
    VisibleWithoutEvents() { options_.read_async_events = false; }
};

INSTANTIATE_TEST_SUITE_P(devices, VisibleWithoutEvents, ::testing::Values(2));

TEST_P(VisibleWithoutEvents, data_is_flushed_although_the_port_of_the_second_device_is_down) {
    register_memory(Visibility::running_kernel);
    // Three failures in succession are tolerated, and a success between them resets their number.
    for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), 0);
        pass_to_device(100, true);
        Request flush;
        ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 1, flush),
                  code(0));
        EXPECT_EQ(complete(right(), flush).error, code(0)) << right().reason();
        ASSERT_EQ(right().state(), code(0)) << right().reason();
        ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_ACTIVE), 0);
        EXPECT_EQ(pass_to_device(100, true), 3) << "a copy, and a flush by each device";
    }
}

TEST_P(VisibleWithoutEvents, data_is_flushed_although_the_second_device_has_failed) {
    register_memory(Visibility::running_kernel);
    ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), 0);
    ASSERT_EQ(softverbs_fail_call("query_port", 1, EIO), 0);
    Request flush;
    ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 1, flush),
              code(0));
    EXPECT_EQ(complete(right(), flush).error, code(0)) << right().reason();
    EXPECT_STREQ(right().endpoint()->shared.rails[1]->failure, "ibv_query_port failed");
    EXPECT_EQ(right().state(), code(0)) << right().reason();
}

class VisibleAfterPortDown : public VisibleByTwo {
  protected:
    // The endpoint reads events only when it is armed.
    VisibleAfterPortDown() { options_.heartbeat = 60s; }
};

INSTANTIATE_TEST_SUITE_P(devices, VisibleAfterPortDown, ::testing::Values(2));

TEST_P(VisibleAfterPortDown, data_is_flushed_by_each_device_before_the_event_is_read) {
    register_memory(Visibility::running_kernel);
    ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), 0);
    ASSERT_TRUE(progress_until([&] {
        static_cast<void>(right_end().arm());
        return right().endpoint()->shared.rails[1]->port_down;
    }));
    ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_ACTIVE), 0);
    EXPECT_EQ(pass_to_device(300000, true), 2);
    EXPECT_EQ(right().working_rails(), 2);
}

TEST_P(VisibleAfterPortDown, a_flush_that_waits_queries_the_port_once) {
    register_memory(Visibility::running_kernel);
    ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), 0);
    ASSERT_TRUE(progress_until([&] {
        static_cast<void>(right_end().arm());
        return right().endpoint()->shared.rails[1]->port_down;
    }));
    transport::detail::SendQueue& queue = right().endpoint()->shared.rails[0]->loopback->queue;
    queue.suspend(); // The loopback queue pair has no room for a flush read.
    ASSERT_EQ(softverbs_fail_call("ibv_query_port", 2, ENOMEM), 0);
    Request flush;
    ASSERT_EQ(right().iflush(*memory_, reinterpret_cast<void*>(buffer_->address()), 1, flush),
              code(0));
    EXPECT_FALSE(after_a_while(right(), flush).done);
    EXPECT_EQ(softverbs_pending_faults(), 1U) << "the port was queried again";
    softverbs_clear_faults();
    queue.resume();
    EXPECT_EQ(complete(right(), flush).error, code(0)) << right().reason();
}

TEST_P(VisibleAfterPortDown, completions_of_destroyed_queue_pairs_are_ignored) {
    register_memory(Visibility::running_kernel);
    const auto& rail = *right().endpoint()->shared.rails[0];
    for (const auto work :
         {transport::detail::Work::loopback, transport::detail::Work::loopback_receive}) {
        ibv_wc completion{};
        completion.wr_id = transport::detail::WorkId{.work = work}.encode();
        completion.qp_num = rail.loopback->queue_pair.number() + 1;
        ASSERT_EQ(softverbs_complete(rail.cq.native(), &completion), 0);
    }
    EXPECT_EQ(pass_to_device(100, true), 3);
    EXPECT_TRUE(rail.loopback->idle());
}

class VisibleUntilPortDown : public VisibleByTwo {
  protected:
    VisibleUntilPortDown() { options_.heartbeat = 20ms; }
};

INSTANTIATE_TEST_SUITE_P(devices, VisibleUntilPortDown, ::testing::Values(1));

TEST_P(VisibleUntilPortDown, requests_end_with_the_channel_if_the_port_stays_down) {
    register_memory(Visibility::running_kernel);
    const Request sent = send(100);
    settle();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    // The message of the first request has arrived.
    std::array<Request, 3> requests;
    void* const data = reinterpret_cast<void*>(buffer_->address());
    ASSERT_EQ(right().irecv(*memory_, data, 100, 1, requests[0]), code(0));
    ASSERT_EQ(right().iflush(*memory_, data, 1, requests[1]), code(0));
    ASSERT_EQ(right().irecv(*memory_, data, 100, 1, requests[2]), code(0));
    for (Request& request : requests) {
        EXPECT_EQ(complete(right(), request).error, code(EHOSTUNREACH));
    }
    EXPECT_EQ(right().state(), code(EHOSTUNREACH));
    EXPECT_EQ(right().in_flight(), 0);
    static_cast<void>(sent);
}

TEST_P(Visible, memory_for_a_running_kernel_needs_remote_read) {
    const auto memory = right_end().register_memory(
        reinterpret_cast<const void*>(buffer_->address()), memory_size,
        Access::local_write | Access::remote_write, Visibility::running_kernel);
    EXPECT_EQ(memory.code(), code(EINVAL));
}

} // namespace
} // namespace rdmabuf::testing
