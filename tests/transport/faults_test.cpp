// SPDX-License-Identifier: BSD-3-Clause
// Failures of devices, memory and peers end the requests with the documented errors.
#include <array>
#include <cstdlib>
#include <functional>

#include <rdmabuf/transport.hpp>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class Faults : public FeaturesTest {
  protected:
    Faults() {
        // A device that does not respond is reported after 2 retries of 17 ms.
        options_.ack_timeout = 12;
        options_.retry_count = 2;
        options_.heartbeat = 20ms;
    }

    /// Expects that the channel reports @p error for new requests, has no requests, and can be
    /// closed.
    void expect_broken(Channel& channel, const TestMemory& memory, int error) {
        Request request;
        EXPECT_EQ(channel.state(), code(error)) << channel.state().message();
        EXPECT_EQ(channel.isend(memory.memory(), memory.data(), 1, 1, request), code(error));
        EXPECT_EQ(channel.irecv(memory.memory(), memory.data(), 1, 1, request), code(error));
        EXPECT_EQ(channel.send_copy({}, 1), code(error));
        EXPECT_EQ(channel.in_flight(), 0);
        // If the close message of the peer has arrived, close() returns no error. On a busy
        // machine, the peer may close its socket before it has sent this message.
        const std::error_code closed = channel.close();
        EXPECT_TRUE(closed == code(error) || (error == ECONNRESET && !closed)) << closed.message();
        EXPECT_EQ(channel.state(), code(EBADF));
    }

    [[nodiscard]] static ibv_mr* region_of(const TestMemory& memory) {
        return memory.memory().state()->lease.registration().native();
    }

    /// The device of the peer refuses the access to memory that was revoked, and reports this to
    /// the peer, which ends the channel. SOFTVERBS_DISORDER can delay the NAK so much that this end
    /// arrives first.
    /// @param own_memory  the revoked memory is not that of the peer
    [[nodiscard]] static bool end_of_the_peer_can_overtake(bool own_memory) {
        return !own_memory && std::getenv("SOFTVERBS_DISORDER") != nullptr;
    }

    static constexpr std::size_t size = memory_size;
};

// Every message has the number of received messages, also the close message.
TEST_F(Faults, requests_end_with_econnreset_when_the_peer_closes_after_many_messages) {
    connect_with_memory();
    for (int i = 0; i < 100; ++i) {
        pass(*from_, *to_, 100);
    }
    settle(); // The credits of the messages arrive.
    Request unanswered;
    ASSERT_EQ(left().irecv(from_->memory(), from_->data(), 100, 9, unanswered), code(0));
    const Request unmatched = send(200000);
    EXPECT_EQ(right().close(), code(0));
    EXPECT_EQ(wait(left(), unanswered).error, code(ECONNRESET));
    EXPECT_EQ(wait(left(), unmatched).error, code(ECONNRESET));
    expect_broken(left(), *from_, ECONNRESET);
}

TEST_F(Faults, closing_after_the_peer_has_closed_is_no_error) {
    options_.linger = 30s;
    connect_with_memory();
    Request received = receive(10);
    EXPECT_EQ(finish(left(), send(10)).error, code(0));
    EXPECT_EQ(left().close(), code(0));
    EXPECT_EQ(wait(right(), received).error, code(0));
    EXPECT_TRUE(eventually([&] { return right().state() == code(ECONNRESET); },
                           [&] { right().progress(); }));
    EXPECT_EQ(right().close(), code(0));
}

// The peer learns by the socket that all messages of the other end have arrived.
TEST_F(Faults, closing_is_no_error_if_the_close_message_of_the_peer_was_lost) {
    options_.receive_buffers = 16;
    connect_with_memory();
    for (std::uint32_t i = 0; i < options_.receive_buffers; ++i) {
        ASSERT_EQ(wait(left(), send(10)).error, code(0));
    }
    EXPECT_EQ(left().close(), code(0)); // No receive buffer is left for the close message.
    EXPECT_TRUE(eventually([&] { return right().state() == code(ECONNRESET); },
                           [&] { right().progress(); }));
    EXPECT_EQ(wait(right(), receive(10)).error, code(0));
    EXPECT_EQ(right().close(), code(0));
}

// A send of a short message completes when the message is copied. The receive buffers of a peer
// that computes are full, so its device does not acknowledge all of these messages.
TEST_F(Faults, closing_reports_that_completed_sends_may_be_lost) {
    options_.receive_buffers = 16;
    const auto close_in_steps = [this] {
        std::error_code closed;
        EXPECT_TRUE(eventually([&] { return (closed = left().try_close()) != code(EAGAIN); }));
        return closed;
    };
    const auto close_all = [this] { return Channel::close_all({&left(), 1}); };
    const auto close = [this] { return left().close(); };
    for (const auto& way :
         {std::function<std::error_code()>(close), {close_in_steps}, {close_all}}) {
        disconnect_all();
        connect_with_memory();
        for (std::uint32_t i = 0; i < 2 * options_.receive_buffers; ++i) {
            ASSERT_EQ(wait(left(), send(10)).error, code(0));
        }
        EXPECT_EQ(way(), code(ETIMEDOUT));
        EXPECT_EQ(left().state(), code(EBADF));
    }
}

TEST_F(Faults, a_channel_can_be_closed_without_waiting) {
    // A call that waits for an acknowledgement waits longer than the time limit of this program.
    options_.linger = 1h;
    options_.ack_timeout = 22; // 17 s for each attempt
    for (const bool reachable : {true, false}) {
        SCOPED_TRACE(reachable);
        disconnect_all();
        connect_with_memory();
        ASSERT_EQ(softverbs_set_port_state(0, 1, reachable ? IBV_PORT_ACTIVE : IBV_PORT_DOWN), 0);
        EXPECT_EQ(wait(left(), send(10)).error, code(0));
        std::error_code closed;
        for (int i = 0; i < 100 && !reachable; ++i) {
            ASSERT_EQ(closed = left().try_close(), code(EAGAIN));
        }
        EXPECT_TRUE(eventually([&] {
            closed = left().try_close(reachable);
            return closed != code(EAGAIN);
        }));
        EXPECT_EQ(closed, code(0));
        EXPECT_EQ(left().state(), code(EBADF));
        EXPECT_EQ(left().try_close(), code(0));
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    }
}

TEST_F(Faults, closing_does_not_wait_for_a_peer_that_has_closed) {
    // An end that waits for the other one waits longer than the time limit of this program.
    options_.heartbeat = 1h;
    options_.linger = 1h;
    connect_with_memory();
    const Request received = receive(size);
    const Request sent = send(size);
    EXPECT_EQ(finish(right(), received).error, code(0));
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_EQ(left().close(), code(0));
    static_cast<void>(right().close());
}

// A receiver may flush data after the sender has closed the channel, or after a failure.
TEST_F(Faults, received_data_can_be_flushed_after_the_channel_has_ended) {
    for (const auto& [kind, error] : {std::pair(Kind::host, ECONNRESET),
                                      {Kind::dmabuf, ECONNRESET},
                                      {Kind::dmabuf, EHOSTUNREACH}}) {
        SCOPED_TRACE(error);
        disconnect_all();
        connect_with_memory();
        const TestMemory memory = right_memory(size, kind);
        pass(*from_, memory, size);
        if (error == ECONNRESET) {
            EXPECT_EQ(left().close(), code(0));
        } else {
            ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
            Request unreachable;
            ASSERT_EQ(right().isend(to_->memory(), to_->data(), 10, 1, unreachable), code(0));
        }
        ASSERT_TRUE(eventually([&, wanted = error] { return right().state() == code(wanted); },
                               [&] { right().progress(); }));
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
        for (int i = 0; i < 3; ++i) {
            Request request;
            ASSERT_EQ(right().iflush(memory.memory(), memory.data(), size, request), code(0));
            EXPECT_EQ(wait(right(), request).error, code(0));
        }
        EXPECT_EQ(right().in_flight(), 0);
    }
}

// The close message is sent by the first device. Completions of the second device may be polled
// after it.
TEST_F(Faults, messages_over_two_devices_that_the_peer_sent_before_it_closed_arrive) {
    use_devices(2);
    connect_with_memory();
    constexpr std::size_t length = 150000;
    std::array<Request, 20> receives;
    std::array<Request, 20> sends;
    for (Request& request : receives) {
        request = receive(length);
    }
    settle();
    for (Request& request : sends) {
        request = send(length);
    }
    for (const Request& request : sends) {
        EXPECT_EQ(wait(left(), request).error, code(0));
    }
    EXPECT_EQ(left().close(), code(0));
    for (const Request& request : receives) {
        const Completion completion = wait(right(), request);
        EXPECT_EQ(completion.error, code(0)) << completion.error.message();
        EXPECT_EQ(completion.bytes, length);
    }
    EXPECT_TRUE(to_->bytes(0, length) == from_->bytes(0, length));
    expect_broken(right(), *to_, ECONNRESET);
}

TEST_F(Faults, a_link_that_is_down_ends_all_requests_with_ehostunreach) {
    connect_with_memory();
    const Request first = receive(size, 1);
    const Request second = receive(size, 2);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    const Request sent = send(size);
    Request put;
    ASSERT_EQ(left().iput(from_->memory(), from_->data(), 100000, remote(), 0, put), code(0));
    for (const auto& [channel, request] :
         {std::pair(&left(), sent), std::pair(&left(), put), std::pair(&right(), first),
          std::pair(&right(), second)}) {
        const Completion completion = wait(*channel, request);
        EXPECT_EQ(completion.error, code(EHOSTUNREACH));
        EXPECT_EQ(completion.bytes, 0);
    }
    expect_broken(left(), *from_, EHOSTUNREACH);
    expect_broken(right(), *to_, EHOSTUNREACH);
}

TEST_F(Faults, closing_waits_until_messages_are_acknowledged_and_not_longer) {
    options_.ack_timeout = 14;
    options_.retry_count = 7;
    // If close() waited longer, it would wait longer than the time limit of this program.
    options_.linger = 1h;
    connect_with_memory();
    ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0), 0);
    EXPECT_EQ(finish(left(), send(10)).error, code(0));
    EXPECT_EQ(left().close(), code(0));
    EXPECT_EQ(softverbs_pending_faults(), 0);
    EXPECT_EQ(wait(right(), receive(10)).bytes, 10);
}

// The receiver reads the data of a message that has arrived before its receive, if the options
// permit it. Otherwise the sender writes it.
TEST_F(Faults, revoked_memory_ends_the_request_that_accesses_it_with_efault_or_eacces) {
    options_.heartbeat = 1000ms;
    for (const auto& [reads, of_sender] :
         {std::pair(false, true), {false, false}, {true, true}, {true, false}}) {
        SCOPED_TRACE(reads ? "the receiver reads" : "the sender writes");
        SCOPED_TRACE(of_sender ? "memory of the sender" : "memory of the receiver");
        disconnect_all();
        options_.read_long_messages = reads;
        connect_with_memory();
        const bool own = of_sender != reads;
        const Request unmatched = send(size, 8);
        const Request waiting = receive(10, 5);
        const Request earlier = reads ? send(size) : receive(size);
        settle();
        ASSERT_EQ(softverbs_revoke_mr(region_of(of_sender ? *from_ : *to_)), 0);
        const std::error_code error =
            reads ? finish(right(), receive(size)).error : finish(left(), send(size)).error;
        const bool reset = error == code(ECONNRESET) && end_of_the_peer_can_overtake(own);
        const int end = reset ? ECONNRESET : ECONNABORTED;
        if (!reset) {
            EXPECT_EQ(error, code(own ? EFAULT : EACCES));
        }
        EXPECT_EQ(finish(reads ? left() : right(), earlier).error, code(ECONNRESET));
        const int of_left = reads ? ECONNRESET : end;
        const int of_right = reads ? end : ECONNRESET;
        EXPECT_EQ(finish(left(), unmatched).error, code(of_left));
        EXPECT_EQ(finish(right(), waiting).error, code(of_right));
        expect_broken(left(), *from_, of_left);
        expect_broken(right(), *to_, of_right);
    }
}

} // namespace
} // namespace rdmabuf::testing
