// SPDX-License-Identifier: BSD-3-Clause
// How requests and channels end when something fails: what has been reported is final, and nothing
// is written afterwards.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "features_fixture.hpp"
#include "late_receives.hpp"
#include "poll_counter.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

class Ends : public FeaturesTest {
  protected:
    void SetUp() override {
        // A device that does not respond is reported after 2 retransmissions of 17 ms.
        options_.ack_timeout = 12;
        options_.retry_count = 2;
        options_.heartbeat = 20ms;
    }
    void TearDown() override {
        disconnect_all();
        EXPECT_EQ(softverbs_slow_down(0), 0);
        EXPECT_EQ(softverbs_set_disorder(""), 0);
    }

    /// Returns the descriptors of all connected stream sockets of this process.
    [[nodiscard]] static std::set<int> connected_sockets() {
        std::set<int> result;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            const int fd = std::stoi(entry.path().filename());
            sockaddr_storage peer{};
            socklen_t size = sizeof peer;
            if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
                peer.ss_family == AF_INET) {
                result.insert(fd);
            }
        }
        return result;
    }
};

TEST_F(Ends, nothing_is_written_to_a_receive_after_its_end_was_reported) {
    for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        connect_with_memory();
        const std::set<int> sockets = connected_sockets();
        // The device of the third endpoint repeats no packet within the delay.
        const auto ack_timeout = std::exchange(options_.ack_timeout, std::uint8_t{20});
        connect_third();
        options_.ack_timeout = ack_timeout;
        // The messages are on their way for 500 ms, and the end of the socket overtakes them.
        std::array<Request, 8> receives;
        constexpr std::size_t length = 100000;
        for (std::size_t i = 0; i < receives.size(); ++i) {
            receives[i] = receive(length, 1, i * length);
        }
        settle();
        ASSERT_EQ(softverbs_slow_down(500), 0);
        for (std::size_t i = 0; i < receives.size(); ++i) {
            static_cast<void>(send(length, 1));
        }
        for (int i = 0; i < round; ++i) {
            progress_all();
        }
        for (const int socket : sockets) {
            ASSERT_EQ(::shutdown(socket, SHUT_RDWR), 0);
        }
        std::size_t reset = 0;
        for (Request& request : receives) {
            const Completion completion = complete(right(), request);
            if (completion.error) {
                EXPECT_EQ(completion.error, code(ECONNRESET));
                EXPECT_EQ(completion.bytes, 0);
                ++reset;
            }
        }
        EXPECT_GT(reset, 0);
        // The program may use the memory for other data now.
        const std::vector<std::byte> guard = pattern(memory_size, 77);
        to_->fill(guard);
        // This message is sent later than the others, and is on its way for as long.
        Request last;
        ASSERT_EQ(third().isend(Memory(), nullptr, 0, 1, last), code(0));
        EXPECT_TRUE(progress_until([&] { return right_of_third().probe(1).has_value(); }));
        EXPECT_TRUE(to_->bytes(0, memory_size) == guard);
        disconnect_all();
        EXPECT_TRUE(to_ == std::nullopt);
        ASSERT_EQ(softverbs_slow_down(0), 0);
    }
}

TEST_F(Ends, a_late_completion_does_not_end_a_newer_request) {
    connect_with_memory();
    const auto& rail = *left().endpoint()->shared.rails[0];
    // The next requests of the endpoint have the index of this request.
    Request old = send(5000, 1);
    Request received_old = receive(5000, 1);
    EXPECT_EQ(complete(right(), received_old).bytes, 5000);
    EXPECT_EQ(complete(left(), old).error, code(0));
    EXPECT_EQ(left().close(), code(0));
    right_.reset();

    transport::Listener listener = listen();
    auto channels = connect_another(left_end(), listener);
    left_.emplace(std::move(channels.first));
    right_.emplace(std::move(channels.second));
    Request newer = send(200000, 1);
    // A completion of the first channel, whose queue pair no longer exists.
    using transport::detail::Work;
    using transport::detail::WorkId;
    for (std::uint32_t number = 0; number < 64; ++number) {
        ibv_wc late{};
        late.wr_id = WorkId{.work = Work::remote, .number = number, .sequence = 1}.encode();
        late.status = IBV_WC_WR_FLUSH_ERR;
        late.qp_num = 0x123456;
        ASSERT_EQ(softverbs_complete(rail.cq.native(), &late), 0);
    }
    Completion completion = after_a_while(left(), newer);
    EXPECT_FALSE(completion.done);
    EXPECT_EQ(left().state(), code(0));
    Request request = receive(200000, 1);
    EXPECT_EQ(complete(right(), request).bytes, 200000);
    EXPECT_TRUE(received(0, 0, 200000));
    EXPECT_EQ(complete(left(), newer).error, code(0));
}

TEST_F(Ends, the_bytes_of_failed_requests_are_0) {
    connect_with_memory();
    // The message is longer than the receive.
    Request too_short = receive(100, 1);
    Request too_long = send(200000, 1);
    Completion completion = complete(right(), too_short);
    EXPECT_EQ(completion.error, code(EMSGSIZE));
    EXPECT_EQ(completion.bytes, 200000);
    completion = complete(left(), too_long);
    EXPECT_EQ(completion.error, code(EMSGSIZE));
    EXPECT_EQ(completion.bytes, 0);

    Request cancelled = receive(200000, 1);
    ASSERT_EQ(right().cancel(cancelled), code(0));
    EXPECT_EQ(complete(right(), cancelled).bytes, 0);
}

TEST_F(Ends, a_channel_keeps_the_first_cause_of_its_failure) {
    options_.timeout = 30ms;
    connect_with_memory();
    EXPECT_STREQ(left().reason(), "");
    Request late;
    ASSERT_EQ(left().irecv(from_->memory(), from_->data(), 10, 1, late), code(0));
    Request neighbour;
    EXPECT_EQ(complete(left(), late).error, code(ETIMEDOUT));
    EXPECT_EQ(left().state(), code(ECONNABORTED));
    EXPECT_STREQ(left().reason(), "a request exceeded EndpointOptions::timeout");
    // Later events do not change the cause.
    static_cast<void>(right().close());
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    for (int i = 0; i < 2000; ++i) {
        left_end().progress();
    }
    EXPECT_EQ(left().state(), code(ECONNABORTED));
    EXPECT_STREQ(left().reason(), "a request exceeded EndpointOptions::timeout");
    EXPECT_EQ(left().isend(from_->memory(), from_->data(), 1, 1, neighbour), code(ECONNABORTED));
    EXPECT_EQ(left().close(), code(ECONNABORTED));
    EXPECT_EQ(left().state(), code(EBADF));
    EXPECT_STREQ(left().reason(), "the channel is closed");
}

// The close message of the peer can arrive before the acknowledgement of the data.
class ClosedAfterDelivery : public Ends {
  protected:
    void expect_success(unsigned devices, const std::string& disorder) {
        use_devices(devices);
        options_.eager_limit = 0;
        options_.min_fragment = 4096;
        connect_with_memory();
        transport::Listener listener = listen();
        ASSERT_EQ(softverbs_set_disorder(disorder.c_str()), 0);
        for (int i = 0; i < 30; ++i) {
            auto channels = connect_another(left_end(), listener);
            Channel& near = channels.first;
            Channel& far = channels.second;
            Request received;
            ASSERT_EQ(far.irecv(to_->memory(), to_->data(), length, 1, received), code(0));
            ASSERT_TRUE(progress_until([&] { return near.advertised_receive(1).has_value(); }));
            Request sent;
            ASSERT_EQ(near.isend(from_->memory(), from_->data(), length, 1, sent), code(0));
            Completion completion;
            ASSERT_TRUE(eventually([&] {
                right_end().progress();
                completion = far.test(received);
                return completion.done;
            }));
            EXPECT_EQ(completion.error, code(0));
            EXPECT_EQ(far.close(), code(0));
            EXPECT_EQ(complete(near, sent).error, code(0)) << "round " << i;
        }
    }
    static constexpr std::size_t length = 60'000;
};

TEST_F(ClosedAfterDelivery, a_message_succeeds_on_one_device) {
    expect_success(1, "acks:1");
}

TEST_F(ClosedAfterDelivery, a_message_succeeds_on_two_devices) {
    expect_success(2, "");
}

// The close message and the failed work request are polled on the first device, before the
// acknowledgement on the second one.
TEST_F(ClosedAfterDelivery, a_message_succeeds_although_a_later_one_fails) {
    use_devices(2);
    options_.eager_limit = 0;
    options_.min_fragment = 4096;
    connect_with_memory();
    const StoppedClock clock;
    const auto until = [](const auto& done) {
        bool is_done = done();
        for (int steps = 0; steps < 1000 && !is_done; ++steps) {
            StoppedClock::advance(1ms);
            is_done = done();
        }
        ASSERT_TRUE(is_done);
    };
    Request received = receive(length, 1);
    until([&] {
        progress_all();
        return left().advertised_receive(1).has_value();
    });
    Request sent = send(length, 1);
    until([&] { return right().test(received).done; });
    std::error_code closed = code(EAGAIN);
    until([&] {
        closed = right().try_close();
        return closed != code(EAGAIN);
    });
    EXPECT_EQ(closed, code(0));
    Request later = send(length, 2);
    StoppedClock::advance(1s);
    Completion completion;
    until([&] {
        completion = left().test(sent);
        return completion.done;
    });
    EXPECT_EQ(completion.error, code(0)) << left().reason();
    until([&] { return left().test(later).done; });
}

TEST_F(Ends, a_closed_channel_keeps_no_receive_buffer) {
    connect_with_memory();
    transport::detail::SharedState& shared = right().endpoint()->shared;
    {
        const LateReceives late(*shared.rails[0]);
        for (int i = 0; i < 10; ++i) {
            static_cast<void>(send(100));
        }
        EXPECT_EQ(right().close(), code(0));
    }
    right_end().progress();
    right_end().progress();
    EXPECT_EQ(missing_receives(*shared.rails[0]), 0U);
}

/// Replaces ibv_poll_cq() of a device, which never reports the end of a copy to device memory.
int poll_without_copies(ibv_cq* cq, int count, ibv_wc* completions) {
    using transport::detail::Work;
    using transport::detail::WorkId;
    int polled = PollCounter::poll(cq, count, completions);
    for (int i = 0; i < polled;) {
        if (WorkId::decode(completions[i].wr_id).work == Work::loopback) {
            completions[i] = completions[--polled];
        } else {
            ++i;
        }
    }
    return polled;
}

TEST_F(Ends, a_receive_whose_data_a_dead_device_never_copies_ends_with_an_error) {
    connect_with_memory();
    const TestMemory device = right_memory(memory_size, Kind::dmabuf);
    const PollCounter dead(right_end().protection_domain().context(), poll_without_copies);
    Request by_test;
    Request by_context;
    std::array<Completion, 2> completions;
    for (Request* const request : {&by_test, &by_context}) {
        ASSERT_EQ(right_end().irecv(device.memory(), device.data(), 1000, 0, 0, *request,
                                    request == &by_test ? nullptr : &completions),
                  code(0));
        static_cast<void>(send(100));
    }
    ASSERT_TRUE(progress_until([&] { return right().in_flight() == 2; }));
    {
        const StoppedClock clock;
        EXPECT_TRUE(eventually([&] {
            StoppedClock::advance(100ms);
            return right().try_close(false) != code(EAGAIN);
        }));
    }
    const Completion completion = right_end().test(by_test);
    EXPECT_TRUE(completion.done);
    EXPECT_EQ(completion.error, code(EIO));
    EXPECT_EQ(completion.bytes, 0);
    ASSERT_EQ(right_end().poll_completions(completions), 1U);
    EXPECT_EQ(completions[0].error, code(EIO));
}

// All that this end has sent is acknowledged, although the device cannot copy what it has received.
TEST_F(Ends, closing_reports_no_loss_while_messages_wait_to_be_copied_to_device_memory) {
    for (const bool copied : {false, true}) {
        SCOPED_TRACE(copied);
        connect_with_memory();
        const TestMemory device = right_memory(memory_size, Kind::dmabuf);
        transport::detail::SendQueue& queue = right().endpoint()->shared.rails[0]->loopback->queue;
        queue.suspend(); // The loopback queue pair has no room for a copy.
        constexpr std::size_t length = 100;
        std::array<Request, 40> receives; // more than there are copy buffers
        for (std::size_t i = 0; i < receives.size(); ++i) {
            static_cast<void>(send(length, 1, i));
        }
        settle();
        for (std::size_t i = 0; i < receives.size(); ++i) {
            ASSERT_EQ(right().irecv(device.memory(), device.data(i * length), length, 1,
                                    receives.at(i), &receives.at(i)),
                      code(0));
        }
        settle();
        {
            const StoppedClock clock;
            std::error_code closed = code(EAGAIN);
            for (int steps = 0; steps < 1000 && closed == code(EAGAIN); ++steps) {
                closed = right().try_close();
                left_end().progress();
                StoppedClock::advance(10ms);
                if (copied && left().state()) {
                    queue.resume();
                }
            }
            EXPECT_EQ(closed, code(0));
            EXPECT_STREQ(left().reason(), "the peer has closed the channel");
        }
        std::array<Completion, 41> completions;
        ASSERT_EQ(right_end().poll_completions(completions), receives.size());
        for (std::size_t i = 0; i < receives.size(); ++i) {
            EXPECT_EQ(completions.at(i).error, code(copied ? 0 : EIO));
        }
        disconnect_all();
    }
}

// A message behind the close message would be lost, although its send completes at once.
TEST_F(Ends, no_send_starts_after_the_close_message) {
    connect_with_memory();
    std::size_t sent = 0;
    std::size_t refused = 0;
    std::error_code closed;
    EXPECT_TRUE(eventually([&] {
        closed = left().try_close();
        Request request;
        const std::error_code error = left().isend(from_->memory(), from_->data(), 8, 1, request);
        sent += !error ? 1 : 0;
        refused += error == code(EBADF) ? 1 : 0;
        return closed != code(EAGAIN) || sent == 64;
    }));
    EXPECT_EQ(closed, code(0));
    EXPECT_GE(refused, 2U); // Also before the last call of try_close().
    EXPECT_EQ(left().send_copy({}, 1), code(EBADF));
    for (std::size_t i = 0; i < sent; ++i) {
        Request request = receive(8, 1);
        EXPECT_EQ(complete(right(), request).error, code(0)) << right().reason();
    }
}

TEST_F(Ends, a_channel_that_is_moved_to_itself_stays_open) {
    connect_with_memory();
    Channel& same = left();
    left() = std::move(same);
    Request received = receive(100, 1);
    Request sent = send(100, 1);
    EXPECT_EQ(complete(right(), received).bytes, 100);
    EXPECT_EQ(complete(left(), sent).error, code(0));
}

TEST_F(Ends, test_does_not_wait_while_a_channel_fails) {
    connect_with_memory();
    Request sent = send(200000, 1);
    Request received = receive(200000, 1);
    settle();
    Request another = send(memory_size, 2);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    // A call that waits for completions polls until they arrive.
    PollCounter counter(left_end().protection_domain().context());
    unsigned most_polls = 0;
    Completion completion;
    EXPECT_TRUE(progress_until([&] {
        counter.polls = 0;
        completion = left().test(another);
        most_polls = std::max(most_polls, counter.polls);
        return completion.done;
    }));
    EXPECT_TRUE(completion.error);
    EXPECT_LT(most_polls, 100U);
    static_cast<void>(complete(left(), sent));
    static_cast<void>(complete(right(), received));
}

/// A channel whose short messages are copied to the memory of a device, while the port is down. The
/// parameter is true if the device has reported that before the channel is closed, so that the
/// copies wait for the port. Otherwise it retransmits for longer than close() waits.
class EndsOfCopies : public Ends, public ::testing::WithParamInterface<bool> {
  protected:
    static constexpr std::size_t count = 20;
    static constexpr std::size_t length = 1000;

    void SetUp() override {
        options_ = {.receive_buffers = 32, .linger = 100ms};
        options_.ack_timeout = GetParam() ? 14 : 18;
        connect_with_memory();
        device_.emplace(right_memory(memory_size, Kind::dmabuf));
    }
    void TearDown() override {
        device_.reset();
        clock_.reset();
        Ends::TearDown();
    }
    void begin() {
        std::array<Request, count> sent;
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(right().irecv(device_->memory(), device_->data(i * length), length, 1,
                                    received_.at(i), &received_.at(i)),
                      code(0));
            sent.at(i) = send(length);
        }
        for (Request& each : sent) { // They have arrived at the right end, which polls nothing.
            EXPECT_EQ(wait(left(), each).error, code(0));
        }
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
        notice_the_port();
    }
    /// Lets the right end post its copies, and learn that the port is down if the device reports
    /// it.
    void notice_the_port() {
        clock_.emplace();
        for (int i = 0; i < 4; ++i) {
            right_end().progress();
        }
        for (int i = 0; i < 40 && GetParam(); ++i) {
            StoppedClock::advance(100ms);
            right_end().progress();
            static_cast<void>(right_end().arm());
        }
    }
    void close_right() {
        std::error_code error = right().try_close();
        for (int i = 0; i < 100 && error == code(EAGAIN); ++i) {
            StoppedClock::advance(100ms);
            error = right().try_close();
        }
        EXPECT_NE(error, code(EAGAIN));
    }
    void bring_the_port_up() {
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
        for (int i = 0; i < 300; ++i) {
            StoppedClock::advance(100ms);
            right_end().progress();
            left_end().progress();
        }
    }

    std::optional<TestMemory> device_;
    std::array<Request, count> received_;
    std::optional<StoppedClock> clock_;
};

// All of them were acknowledged: the completion queue has more completions than one poll takes.
TEST_F(Ends, sends_succeed_although_the_program_computes_after_the_peer_has_closed) {
    options_ = {.linger = 100ms};
    connect_with_memory();
    const StoppedClock clock;
    ASSERT_EQ(softverbs_set_disorder("acks:1"), 0);
    std::array<Request, 60> sent;
    std::array<Request, 60> received;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        received.at(i) = receive(4000);
        sent.at(i) = send(4000);
    }
    std::size_t done = 0;
    for (int i = 0; i < 5000 && done < received.size(); ++i) {
        static_cast<void>(softverbs_step());
        done += right().test(received.at(done)).done ? 1 : 0;
    }
    ASSERT_EQ(done, received.size());
    std::error_code closed = code(EAGAIN);
    const auto close_a_bit = [&] {
        if (closed == code(EAGAIN)) {
            closed = right().try_close();
        }
    };
    for (int i = 0; i < 20000 && left().state() == code(0); ++i) {
        close_a_bit();
        static_cast<void>(softverbs_step());
        StoppedClock::advance(1us);
        if (i % 8 == 0) {
            left_end().progress();
        }
    }
    EXPECT_EQ(left().state(), code(ECONNRESET));
    for (int i = 0; i < 150; ++i) {
        StoppedClock::advance(10ms);
        close_a_bit();
    }
    for (Request& each : sent) {
        Completion completion;
        for (int i = 0; i < 100 && !completion.done; ++i) {
            completion = left().test(each);
        }
        EXPECT_TRUE(completion.done);
        EXPECT_EQ(completion.error, code(0));
    }
}

INSTANTIATE_TEST_SUITE_P(reported, EndsOfCopies, ::testing::Bool());

TEST_P(EndsOfCopies, closing_ends_them_before_the_memory_is_used_again_and_returns_their_buffers) {
    for (int round = 0; round < 3; ++round) {
        SCOPED_TRACE(round);
        begin();
        close_right();
        std::array<Completion, count + 1> completions;
        ASSERT_EQ(right_end().poll_completions(completions), count);
        for (std::size_t i = 0; i < count; ++i) {
            EXPECT_TRUE(completions.at(i).error);
        }
        const std::vector<std::byte> mine(count * length, std::byte{0x77});
        device_->fill(mine);
        bring_the_port_up();
        EXPECT_TRUE(device_->bytes(0, mine.size()) == mine);
        clock_.reset();
        transport::Listener listener = listen();
        std::tie(left(), right()) = connect_another(left_end(), listener);
        for (std::size_t i = 0; i < std::size_t{3} * options_.receive_buffers; ++i) {
            Request request = receive(100, 1);
            Request sent = send(100, 1);
            ASSERT_EQ(complete(right(), request).error, code(0));
            EXPECT_EQ(complete(left(), sent).error, code(0));
        }
    }
}

TEST_P(EndsOfCopies, closing_ends_a_flush_too) {
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    Request flush;
    ASSERT_EQ(right().iflush(device_->memory(), device_->data(), 1, flush, &flush), code(0));
    notice_the_port();
    close_right();
    std::array<Completion, 2> completions;
    ASSERT_EQ(right_end().poll_completions(completions), 1U);
    EXPECT_TRUE(completions[0].error);
}

// As mlx5 does after a fatal error.
TEST_P(EndsOfCopies, end_with_a_device_that_reports_no_more_completions) {
    begin();
    const Context& device = right_end().protection_domain().context();
    const PollCounter dead(device, [](ibv_cq*, int, ibv_wc*) { return 0; });
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    EXPECT_EQ(softverbs_raise_event(device.native(), &event), 0);
    for (int i = 0; i < 100; ++i) {
        StoppedClock::advance(100ms);
        right_end().progress();
        static_cast<void>(right_end().arm());
    }
    for (Request& each : received_) {
        EXPECT_EQ(right().test(each).error, code(EIO));
    }
}

TEST_F(Ends, closing_many_channels_of_a_failed_device_does_not_wait_for_each_of_them) {
    // A channel that waits for this time waits longer than the time limit of this program.
    options_.linger = 1h;
    use_devices(1);
    open();
    transport::Listener listener = listen();
    from_.emplace(left_memory(memory_size));
    constexpr std::size_t count = 40;
    std::vector<std::pair<Channel, Channel>> channels;
    channels.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        channels.push_back(connect_another(left_end(), listener));
    }
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    for (auto& [near, far] : channels) {
        Request request;
        ASSERT_EQ(near.isend(from_->memory(), from_->data(), 10, 1, request), code(0));
    }
    for (auto& [near, far] : channels) {
        EXPECT_EQ(near.close(), code(EHOSTUNREACH));
    }
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    channels.clear();
}

TEST_F(Ends, closing_many_channels_at_once_sends_all_close_messages_before_it_waits) {
    options_.linger = time_limit;
    options_.send_depth = 32;
    options_.ack_timeout = 17; // 0.5 s for each attempt
    options_.retry_count = 7;
    open();
    transport::Listener listener = listen();
    constexpr std::size_t count = 64;
    std::vector<Channel> near;
    std::vector<Channel> far;
    for (std::size_t i = 0; i < count; ++i) {
        auto [first, second] = connect_another(left_end(), listener);
        near.push_back(std::move(first));
        far.push_back(std::move(second));
    }
    // No packet arrives before all messages are sent. Closed one after the other, the first channel
    // would fail.
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    const std::size_t before = record().sends.size();
    PollCounter counter(left_end().protection_domain().context());
    counter.before_each_poll([&] {
        if (record().sends.size() >= before + count) {
            EXPECT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
            counter.before_each_poll(nullptr);
        }
    });
    EXPECT_EQ(Channel::close_all(near), code(0));
    for (const Channel& channel : near) {
        EXPECT_EQ(channel.state(), code(EBADF));
    }
    EXPECT_TRUE(progress_until([&] {
        return std::ranges::all_of(
            far, [](const Channel& channel) { return channel.state() == code(ECONNRESET); });
    }));
    // A peer whose linger time was over has sent no close message.
    const std::error_code closed = Channel::close_all(far);
    EXPECT_TRUE(!closed || closed == code(ECONNRESET)) << closed.message();
}

// Programs close many channels one after another, and all of them can lead to an unreachable peer.
TEST_F(Ends, only_the_first_idle_channel_waits_for_an_unreachable_peer) {
    // With 12, the queue pair fails before the linger time ends.
    for (const std::uint8_t ack_timeout : {std::uint8_t{12}, std::uint8_t{20}}) {
        for (const bool sockets : {true, false}) {
            SCOPED_TRACE(::testing::Message() << int{ack_timeout} << " " << sockets);
            options_.ack_timeout = ack_timeout;
            options_.keep_sockets = sockets;
            open();
            transport::Listener listener = listen();
            std::vector<std::pair<Channel, Channel>> channels;
            // Returns true if a channel is closed only after some time.
            const auto waits = [&](Channel& channel) {
                const StoppedClock clock;
                std::error_code closed = code(EAGAIN);
                int steps = 0;
                for (; steps < 100 && closed == code(EAGAIN); ++steps) {
                    for (int i = 0; i < 10 && closed == code(EAGAIN); ++i) {
                        closed = channel.try_close();
                        StoppedClock::settle();
                    }
                    StoppedClock::advance(10ms);
                }
                EXPECT_EQ(closed, code(0));
                return steps > 1;
            };
            for (int i = 0; i < 3; ++i) {
                channels.push_back(connect_another(left_end(), listener));
            }
            ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
            EXPECT_TRUE(waits(channels[0].first));
            EXPECT_EQ(waits(channels[1].first), !sockets);
            EXPECT_EQ(waits(channels[2].first), !sockets);
            ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
            for (std::size_t i = 0; i < channels.size() && sockets; ++i) {
                const Channel& far = channels[i].second;
                ASSERT_TRUE(progress_until([&] { return far.state() == code(ECONNRESET); }));
                if (i > 0) {
                    EXPECT_STREQ(far.reason(), "the peer has closed the channel");
                }
            }
            // A peer can be reached again.
            channels.push_back(connect_another(left_end(), listener));
            ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
            EXPECT_TRUE(waits(channels.back().first));
            ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
            channels.clear();
            disconnect_all();
        }
    }
}

TEST_F(Ends, closing_channels_of_several_endpoints_at_once_closes_all) {
    connect_with_memory();
    std::vector<Channel> channels;
    channels.push_back(std::move(left()));
    channels.push_back(std::move(right()));
    left_.reset();
    right_.reset();
    static_cast<void>(Channel::close_all(channels));
    for (const Channel& channel : channels) {
        EXPECT_EQ(channel.state(), code(EBADF));
    }
}

TEST_F(Ends, requests_of_a_forked_child_are_refused_and_its_close_does_not_close_the_channel) {
    connect_with_memory();
    const RemoteMemory target = remote();
    const pid_t child = ::fork();
    if (child == 0) {
        Request request;
        const auto refused = [](std::error_code error) { return error == code(EBADF); };
        const Memory& memory = from_->memory();
        const bool good =
            refused(left().isend(memory, from_->data(), 10, 1, request)) &&
            refused(left().irecv(memory, from_->data(), 10, 1, request)) &&
            refused(left().iput(memory, from_->data(), 10, target, 0, request)) &&
            refused(left().iget(memory, from_->data(), 10, target, 0, request)) &&
            refused(left_end().irecv(memory, from_->data(), 10, 1, full_mask, request));
        static_cast<void>(left().close());
        static_cast<void>(right().close());
        ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    pass(*from_, *to_, 200000);
    pass(*from_, *to_, 100);
}

// The child may already have destroyed the channels of the completions.
TEST_F(Ends, a_forked_child_polls_no_completions) {
    connect_with_memory();
    Request completed;
    Request waiting;
    completed = receive(100, 1, 0, &completed);
    waiting = receive(100, 2, 0, &waiting);
    static_cast<void>(send(100, 1));
    ASSERT_TRUE(progress_until([&] { return right_end().state()->has_completions(); }));
    static_cast<void>(send(100, 2));
    settle([&] { left_end().progress(); });
    std::array<Completion, 3> completions;
    const pid_t child = ::fork();
    if (child == 0) {
        const std::size_t before = right_end().poll_completions(completions);
        static_cast<void>(right().close());
        static_cast<void>(left().close());
        const std::size_t after = right_end().poll_completions(completions);
        right_end().progress();
        right_end().wait(0ms);
        const bool armed = right_end().arm();
        ::_exit(before == 0 && after == 0 && !armed ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(right_end().poll_completions(completions), 2U);
    pass(*from_, *to_, 200000);
}

TEST_F(Ends, memory_may_be_destroyed_before_its_channel) {
    for (const TestMemory::Kind kind : {TestMemory::Kind::host, TestMemory::Kind::dmabuf}) {
        connect();
        {
            TestMemory from = left_memory(memory_size, kind);
            const TestMemory to = right_memory(memory_size, kind);
            from.fill(pattern(memory_size));
            for (const std::size_t length : {std::size_t{10}, std::size_t{5000}, memory_size}) {
                pass(from, to, length);
            }
            Request request;
            ASSERT_EQ(right().irecv(to.memory(), to.data(), memory_size, 2, request), code(0));
            settle();
            ASSERT_EQ(right().cancel(request), code(0));
            EXPECT_EQ(complete(right(), request).error, code(ECANCELED));
        }
        // Messages that need no memory still pass.
        Request sent;
        Request request;
        ASSERT_EQ(left().isend(Memory(), nullptr, 0, 1, sent), code(0));
        ASSERT_EQ(right().irecv(Memory(), nullptr, 0, 1, request), code(0));
        EXPECT_EQ(complete(right(), request).error, code(0));
        EXPECT_EQ(complete(left(), sent).error, code(0));
        EXPECT_EQ(left().close(), code(0));
        static_cast<void>(right().close());
        disconnect();
    }
}

TEST_F(Ends, memory_may_be_destroyed_after_its_channel_and_endpoint) {
    for (const TestMemory::Kind kind : {TestMemory::Kind::host, TestMemory::Kind::dmabuf}) {
        connect();
        TestMemory from = left_memory(memory_size, kind);
        const TestMemory to = right_memory(memory_size, kind);
        from.fill(pattern(memory_size));
        pass(from, to, memory_size);
        disconnect();
        EXPECT_TRUE(to.bytes(0, memory_size) == from.bytes(0, memory_size));
    }
}

TEST_F(Ends, another_endpoint_refuses_the_memory_of_a_destroyed_one) {
    std::vector<std::byte> bytes(4096);
    const auto open_another = [&] {
        auto opened = Endpoint::open(Context::open_first(), resolver_, options_);
        EXPECT_TRUE(opened.ok()) << opened.message();
        return *std::move(opened);
    };
    // The allocator often returns the address of the destroyed endpoint for the next one.
    for (int i = 0; i < 20; ++i) {
        auto memory = open_another().register_memory(bytes.data(), bytes.size());
        ASSERT_TRUE(memory.ok()) << memory.message();
        const Endpoint other = open_another();
        Request request;
        ASSERT_EQ(other.irecv(*memory, bytes.data(), 100, 1, full_mask, request), code(EINVAL));
    }
}

#ifndef NDEBUG
/// Called by another thread while a thread polls in progress().
std::function<void()> in_another_thread;
/// Replaces ibv_poll_cq() of a context.
int poll_beside_another_thread(ibv_cq*, int, ibv_wc*) {
    std::thread(in_another_thread).join();
    return 0;
}

TEST_F(Ends, two_threads_on_one_endpoint_end_a_debug_build) {
    // The child is a new process. A child by fork(2) could not use the channel.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    connect();
    Request request;
    const std::array<std::function<void()>, 4> calls = {
        [&] { left_end().progress(); },
        [&] { static_cast<void>(left().isend(Memory(), nullptr, 0, 1, request)); },
        [&] { static_cast<void>(left().ifence(request)); },
        [&] { left().close(); },
    };
    ibv_context* const context = left_end().protection_domain().context().native();
    for (std::size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(i);
        in_another_thread = calls.at(i);
        EXPECT_DEATH(
            {
                context->ops.poll_cq = poll_beside_another_thread;
                left_end().progress();
            },
            "two threads use the same Endpoint");
    }
    in_another_thread = nullptr;
}
#endif

} // namespace
} // namespace rdmabuf::testing
