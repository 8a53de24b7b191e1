// SPDX-License-Identifier: BSD-3-Clause
// Every kind of request ends when EndpointOptions::timeout is over, if the peer does not respond.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "features_fixture.hpp"
#include "raw_connector.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

using Wire = transport::detail::Kind;

class Deadlines : public FeaturesTest {
  protected:
    static constexpr std::chrono::milliseconds limit = 100ms;

    Deadlines() {
        options_.timeout = limit;
        options_.linger = 1ms;
        options_.ack_timeout = 22; // Devices report a peer that does not respond after 2 minutes.
        options_.heartbeat = 10s;
        options_.notification_limit = 4096;
        options_.unexpected_limit = 4096;
    }

    /// Expects that a request ends with an error, and not before the time limit.
    /// @param start  starts the request
    /// @param test   returns the state of the request
    template <class Start, class Test>
    static void expect_end(const Start& start, const Test& test, int error = ETIMEDOUT) {
        EXPECT_TRUE(lasts_at_least(limit, [&] {
            ASSERT_EQ(start(), code(0));
            Completion completion;
            ASSERT_TRUE(eventually([&] {
                // An endpoint looks at the clock once in 256 calls.
                for (int i = 0; i < 256 && !completion.done; ++i) {
                    completion = test();
                }
                return completion.done;
            })) << "the request has not ended";
            EXPECT_EQ(completion.error, code(error)) << completion.error.message();
            EXPECT_EQ(completion.bytes, 0);
        }));
    }
    static void expect_failed(Channel& channel) {
        EXPECT_EQ(channel.state(), code(ECONNABORTED));
        EXPECT_STREQ(channel.reason(), "a request exceeded EndpointOptions::timeout");
        EXPECT_EQ(channel.in_flight(), 0);
    }
};

// The port of the device is down

/// A request of the left end, of each pool and stage: one function ends them all. The device does
/// not transfer its packets.
struct Operation {
    const char* name;
    std::error_code (*start)(Channel& channel, const TestMemory& memory, const RemoteMemory& remote,
                             Request& request);
};
void PrintTo(const Operation& operation, // NOLINT(readability-identifier-naming)
             std::ostream* out) {
    *out << operation.name;
}

const auto operations = std::to_array<Operation>({
    {"eager_message",
     [](Channel& channel, const TestMemory& memory, const RemoteMemory&, Request& request) {
         return channel.isend(memory.memory(), memory.data(), 5000, 1, request);
     }},
    {"long_message",
     [](Channel& channel, const TestMemory& memory, const RemoteMemory&, Request& request) {
         return channel.isend(memory.memory(), memory.data(), 200000, 1, request);
     }},
    {"advertised_receive",
     [](Channel& channel, const TestMemory& memory, const RemoteMemory&, Request& request) {
         return channel.irecv(memory.memory(), memory.data(), 200000, 1, request);
     }},
    {"get",
     [](Channel& channel, const TestMemory& memory, const RemoteMemory& remote, Request& request) {
         return channel.iget(memory.memory(), memory.data(), 200000, remote, 0, request);
     }},
    {"fence", [](Channel& channel, const TestMemory&, const RemoteMemory&,
                 Request& request) { return channel.ifence(request); }},
});

class DeadlinesOfOperations : public Deadlines, public ::testing::WithParamInterface<Operation> {};

INSTANTIATE_TEST_SUITE_P(of, DeadlinesOfOperations, ::testing::ValuesIn(operations),
                         [](const auto& value) { return std::string(value.param.name); });

TEST_P(DeadlinesOfOperations, end_the_request_and_the_channel) {
    connect_with_memory();
    const RemoteMemory target = remote();
    const std::vector<std::byte> before = from_->bytes(0, memory_size);
    if (std::string(GetParam().name) == "fence") {
        // A fence of a channel that has written nothing does not need the peer.
        Request put;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), 8, target, 0, put), code(0));
        EXPECT_EQ(complete(left(), put).error, code(0));
    }
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    Request request;
    expect_end([&] { return GetParam().start(left(), *from_, target, request); },
               [&] { return left().test(request); });
    expect_failed(left());
    // Nothing is written to the memory of the request after its end.
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    settle();
    EXPECT_TRUE(from_->bytes(0, memory_size) == before);
}

// The loopback queue pair belongs to the endpoint. Therefore a flush whose work request is posted
// ends when the device reports it.
TEST_F(Deadlines, of_a_flush_end_the_channel_and_the_flush_when_the_device_reports_it) {
    options_.ack_timeout = 16; // The device reports the error after 2 s.
    connect_with_memory();
    const TestMemory device = left_memory(4096, Kind::dmabuf);
    const auto memory = left_end().register_memory(device.data(), 4096, Endpoint::default_access,
                                                   transport::Visibility::running_kernel);
    ASSERT_TRUE(memory.ok()) << memory.message();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    Request request;
    expect_end([&] { return left().iflush(*memory, device.data(), 64, request); },
               [&] { return left().test(request); });
    expect_failed(left());
}

TEST_F(Deadlines, of_a_copy_to_device_memory_end_the_channel_and_the_receive) {
    connect_with_memory();
    const TestMemory device = left_memory(4096, Kind::dmabuf);
    Request sent;
    ASSERT_EQ(right().isend(to_->memory(), to_->data(), 100, 1, sent), code(0));
    settle();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    Request request;
    expect_end([&] { return left().irecv(device.memory(), device.data(), 4096, 1, request); },
               [&] { return left().test(request); });
    expect_failed(left());
}

TEST_F(Deadlines, of_a_copy_to_device_memory_do_not_end_copies_of_other_failed_channels) {
    options_.heartbeat = 10ms;
    connect_with_memory();
    connect_third();
    const TestMemory device = right_memory(4096, Kind::dmabuf);
    const TestMemory source = memory_of(*third_end_, 4096);
    const Request first_sent = send(100);
    Request sent;
    ASSERT_EQ(third().isend(source.memory(), source.data(), 100, 1, sent), code(0));
    settle();
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    const StoppedClock clock;
    Request late;
    Request missing;
    Request later;
    ASSERT_EQ(right().irecv(device.memory(), device.data(), 100, 1, late), code(0));
    ASSERT_EQ(right_of_third().irecv(to_->memory(), to_->data(), 100, 2, missing), code(0));
    StoppedClock::advance(limit / 2);
    ASSERT_EQ(right_of_third().irecv(device.memory(), device.data(200), 100, 1, later), code(0));
    StoppedClock::advance(limit / 2);
    EXPECT_EQ(finish(right(), late).error, code(ETIMEDOUT));
    EXPECT_EQ(finish(right_of_third(), missing).error, code(ETIMEDOUT));
    expect_failed(right());
    EXPECT_FALSE(after_a_while(right_of_third(), later).done);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    StoppedClock::advance(options_.heartbeat / 10); // The endpoint looks for the port.
    EXPECT_EQ(finish(right_of_third(), later).error, code(0));
    expect_failed(right_of_third());
    static_cast<void>(first_sent);
}

TEST_F(Deadlines, of_a_receive_from_any_channel_do_not_end_the_channels) {
    connect_with_memory();
    Request request;
    expect_end(
        [&] { return right_end().irecv(to_->memory(), to_->data(), 100, 1, full_mask, request); },
        [&] { return right_end().test(request); });
    EXPECT_EQ(right().state(), code(0));
    EXPECT_EQ(left().state(), code(0));
}

TEST_F(Deadlines, of_a_receive_from_any_channel_begin_with_its_message) {
    options_.read_long_messages = false;
    connect_with_memory();
    std::optional<StoppedClock> clock(std::in_place);
    Request any;
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(), 200000, 1, full_mask, any), code(0));
    Completion completion;
    const auto test_right = [&] {
        StoppedClock::settle();
        for (int i = 0; i < 256 && !completion.done; ++i) {
            completion = right_end().test(any);
        }
        return completion.done;
    };
    StoppedClock::advance(limit - 30ms);
    Request sent = send(200000, 1);
    for (int i = 0; i < 10; ++i) {
        StoppedClock::advance(1ms); // SOFTVERBS_DISORDER delays each packet by up to 1 ms.
        EXPECT_FALSE(test_right()); // The receive matches the message, whose data is not written.
    }
    StoppedClock::advance(limit - 40ms);
    EXPECT_FALSE(test_right()) << completion.error.message();
    EXPECT_TRUE(eventually(test_right, [&] {
        StoppedClock::advance(100us);
        left_end().progress();
    }));
    EXPECT_EQ(completion.error, code(0)) << right().reason();
    clock.reset();
    EXPECT_EQ(finish(left(), sent).error, code(0));
}

TEST_F(Deadlines, that_are_as_long_as_a_duration_can_be_are_not_over_at_once) {
    constexpr auto forever = std::chrono::milliseconds::max();
    options_ = {.timeout = forever, .heartbeat = forever, .handshake = forever, .linger = forever};
    connect_with_memory();
    Request received = receive(200000, 1);
    Request sent = send(200000, 1);
    EXPECT_TRUE(progress_until([&] { return right().test(received).done; }));
    EXPECT_EQ(left().wait(sent, forever).error, code(0));
    // More messages than the peer accepts before it makes progress.
    std::array<Request, 200> messages;
    for (Request& each : messages) {
        each = receive(8, 2);
        static_cast<void>(send(8, 2));
    }
    EXPECT_TRUE(progress_until([&] { return left().try_close() != code(EAGAIN); }));
    for (Request& each : messages) {
        EXPECT_EQ(right().wait(each, forever).error, code(0));
    }
}

TEST_F(Deadlines, pass_at_their_time_of_a_stopped_clock) {
    connect_with_memory();
    const StoppedClock clock;
    Request request;
    ASSERT_EQ(right().irecv(to_->memory(), to_->data(), 100, 1, request), code(0));
    StoppedClock::advance(limit - 1ns);
    EXPECT_FALSE(after_a_while(right(), request).done);
    StoppedClock::advance(1ns);
    EXPECT_EQ(after_a_while(right(), request).error, code(ETIMEDOUT));
}

TEST_F(Deadlines, do_not_end_requests_whose_completions_were_not_polled_in_time) {
    constexpr std::size_t messages = 40; // more than one call of progress() polls
    connect_with_memory();
    const StoppedClock clock;
    std::vector<Request> requests;
    for (std::size_t i = 0; i < messages; ++i) {
        requests.push_back(receive(8, i, 8 * i));
        static_cast<void>(send(8, i, 8 * i));
    }
    while (left().in_flight() != 0) {
        left_end().progress();
        StoppedClock::settle();
    }
    StoppedClock::advance(limit); // The right program computes.
    static_cast<void>(right_end().arm());
    for (Request& request : requests) {
        EXPECT_EQ(finish(right(), request).error, code(0)) << right().reason();
    }
}

// A program that waits for Endpoint::descriptor() needs only few calls of progress().
TEST_F(Deadlines, pass_in_a_program_that_makes_progress_ten_times_per_heartbeat) {
    options_.heartbeat = 50ms;
    connect_with_memory();
    const StoppedClock clock;
    Request request;
    ASSERT_EQ(right().irecv(to_->memory(), to_->data(), 100, 1, request), code(0));
    Completion completion;
    for (auto time = 0ms; time < limit; time += options_.heartbeat / 10) {
        EXPECT_FALSE(completion.done);
        StoppedClock::advance(options_.heartbeat / 10);
        static_cast<void>(right_end().arm());
        completion = right().test(request);
    }
    EXPECT_EQ(completion.error, code(ETIMEDOUT));
    // The request of the other channel has ended in arm(), which completes nothing else.
    ASSERT_EQ(right_end().irecv(to_->memory(), to_->data(), 100, 1, full_mask, request), code(0));
    StoppedClock::advance(limit);
    EXPECT_FALSE(right_end().arm());
    EXPECT_EQ(right_end().test(request).error, code(ETIMEDOUT));
}

// The device of the peer responds, but the peer sends no message

class DeadlinesOfSilentPeers : public Deadlines {
  protected:
    void TearDown() override {
        to_.reset();
        channel_.reset();
        raw_.reset();
        disconnect_all();
    }
    void connect_raw(std::uint32_t slots = 256, std::uint32_t unexpected_limit = 4096) {
        open();
        transport::Listener listener = listen();
        raw_.emplace(1, 1, slots);
        raw_->hello.unexpected_limit = unexpected_limit;
        ASSERT_EQ(raw_->connect(listener, channel_), code(0));
        to_.emplace(right_memory(memory_size));
    }
    /// Starts @p count requests, which complete; then one that does not complete.
    template <class Start>
    void expect_timeout_after(std::size_t count, const Start& start) {
        Request request;
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(start(request), code(0));
            ASSERT_EQ(wait(*channel_, request).error, code(0)) << i;
        }
        expect_end([&] { return start(request); }, [&] { return channel_->test(request); });
        expect_failed(*channel_);
    }

    std::optional<RawConnector> raw_;
    std::optional<Channel> channel_;
};

TEST_F(DeadlinesOfSilentPeers, end_a_message_for_which_the_peer_gives_no_credit) {
    connect_raw();
    expect_timeout_after(RawConnector::credits, [&](Request& request) {
        return channel_->isend(to_->memory(), to_->data(), 0, 1, request);
    });
    for (std::uint32_t i = 0; i < RawConnector::credits; ++i) {
        EXPECT_EQ(raw_->receive().header.kind, Wire::eager);
    }
    EXPECT_EQ(raw_->receive().header.kind, Wire::rts);
}

TEST_F(DeadlinesOfSilentPeers, end_a_message_for_which_the_peer_has_no_receive_buffer) {
    connect_raw(2, 1U << 20U);
    expect_timeout_after(1, [&](Request& request) {
        return channel_->isend(to_->memory(), to_->data(), 5000, 1, request);
    });
}

TEST_F(DeadlinesOfSilentPeers, end_a_notification_for_which_the_peer_has_no_room) {
    connect_raw();
    const KeyedChunk chunk = raw_->chunk(4096);
    transport::detail::RemoteTable table = {.chunks = 1, .rails = 1};
    table.regions[0] = chunk;
    const RemoteMemory target(table, chunk.address, chunk.length, Access::remote_write);
    constexpr std::size_t room = 4096 / (8 + 64);
    expect_timeout_after(room, [&](Request& request) {
        return channel_->iput_notify(to_->memory(), to_->data(), 8, target, 0, 1, request);
    });
}

} // namespace
} // namespace rdmabuf::testing
