// SPDX-License-Identifier: BSD-3-Clause
// What goes wrong under a channel ends in an error of the right request, on softverbs.
#include <array>
#include <string_view>

#include <rdmabuf/transport.hpp>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class Faults : public TransportTest {
  protected:
    Faults() {
        // A device that does not answer is given up after 2 retries of 17 ms.
        options_.ack_timeout = 12;
        options_.retry_count = 2;
        options_.heartbeat = 20ms;
    }

    void connect_with_memory() {
        connect();
        mine_.emplace(left_memory(size));
        theirs_.emplace(right_memory(size));
        mine_->fill(pattern(size));
    }
    [[nodiscard]] Request send(std::size_t count, Tag tag = 1) {
        Request request;
        EXPECT_EQ(left().isend(mine_->memory(), mine_->data(), count, tag, request), code(0));
        return request;
    }
    [[nodiscard]] Request receive(std::size_t count, Tag tag = 1) {
        Request request;
        EXPECT_EQ(right().irecv(theirs_->memory(), theirs_->data(), count, tag, request), code(0));
        return request;
    }
    /// Nothing works on a channel any more, it says why, and it can be closed.
    void expect_broken(Channel& channel, const TestMemory& memory, int error) {
        Request request;
        EXPECT_EQ(channel.state(), code(error)) << channel.state().message();
        EXPECT_EQ(channel.isend(memory.memory(), memory.data(), 1, 1, request), code(error));
        EXPECT_EQ(channel.irecv(memory.memory(), memory.data(), 1, 1, request), code(error));
        EXPECT_EQ(channel.in_flight(), 0);
        EXPECT_EQ(channel.close(), code(error));
        EXPECT_EQ(channel.state(), code(EBADF));
    }

    [[nodiscard]] static ibv_mr* region_of(const TestMemory& memory) {
        return memory.memory().state()->lease.registration().native();
    }

    static constexpr std::size_t size = 1U << 20U;
    std::optional<TestMemory> mine_;
    std::optional<TestMemory> theirs_;
};

TEST_F(Faults, a_peer_that_closes_ends_what_is_awaited_of_it) {
    connect_with_memory();
    Request unanswered;
    ASSERT_EQ(left().irecv(mine_->memory(), mine_->data(), 100, 9, unanswered), code(0));
    const Request announced = send(200000);
    EXPECT_EQ(right().close(), code(0));
    EXPECT_EQ(left().wait(unanswered, 20s).error, code(ECONNRESET));
    EXPECT_EQ(left().wait(announced, 20s).error, code(ECONNRESET));
    expect_broken(left(), *mine_, ECONNRESET);
}

TEST_F(Faults, closing_does_not_wait_for_a_peer_that_has_closed) {
    options_.heartbeat = 60s;
    options_.linger = 30s;
    connect_with_memory();
    // The receiver has told the sender where to write, and does not know yet that this was read.
    const Request received = receive(size);
    const Request sent = send(size);
    EXPECT_EQ(finish(right(), received).error, code(0));
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_EQ(left().close(), code(0));
    const auto begin = std::chrono::steady_clock::now();
    static_cast<void>(right().close());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST_F(Faults, what_a_peer_sent_before_it_closed_arrives) {
    connect_with_memory();
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{6000}}) {
        EXPECT_EQ(finish(left(), send(count, count)).error, code(0));
    }
    EXPECT_EQ(left().close(), code(0));
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (right().state() != code(ECONNRESET) && std::chrono::steady_clock::now() < end) {
        right().progress();
    }
    for (const std::size_t count : {std::size_t{6000}, std::size_t{0}, std::size_t{5}}) {
        const Outcome outcome = right().wait(receive(size, Tag{count}), 20s);
        EXPECT_EQ(outcome.error, code(0));
        EXPECT_EQ(outcome.bytes, count);
        EXPECT_TRUE(theirs_->bytes(0, count) == mine_->bytes(0, count));
    }
    expect_broken(right(), *theirs_, ECONNRESET);
}

TEST_F(Faults, a_receive_that_nobody_sends_to_ends_in_time) {
    options_.timeout = 30ms;
    connect_with_memory();
    const Request late = receive(100);
    const Outcome outcome = right().wait(late, 20s);
    EXPECT_EQ(outcome.error, code(ETIMEDOUT));
    expect_broken(right(), *theirs_, ECONNABORTED);
}

TEST_F(Faults, a_send_that_nobody_receives_ends_in_time_and_its_neighbours_with_it) {
    options_.timeout = 30ms;
    connect_with_memory();
    const Request late = send(200000);
    // So short that it is on its way, and done.
    EXPECT_EQ(left().test(send(10)).error, code(0));
    const Outcome outcome = left().wait(late, 20s);
    EXPECT_EQ(outcome.error, code(ETIMEDOUT));
    expect_broken(left(), *mine_, ECONNABORTED);
}

TEST_F(Faults, a_cable_that_is_pulled_ends_everything) {
    connect_with_memory();
    const Request first = receive(size, 1);
    const Request second = receive(size, 2);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    const Request sent = send(size);
    EXPECT_EQ(left().wait(sent, 20s).error, code(EHOSTUNREACH));
    EXPECT_EQ(right().wait(first, 20s).error, code(EHOSTUNREACH));
    EXPECT_EQ(right().wait(second, 20s).error, code(EHOSTUNREACH));
    expect_broken(left(), *mine_, EHOSTUNREACH);
    expect_broken(right(), *theirs_, EHOSTUNREACH);
}

TEST_F(Faults, every_device_carries_a_part) {
    for (const unsigned pulled : {0U, 1U}) {
        SCOPED_TRACE(pulled);
        mine_.reset();
        theirs_.reset();
        disconnect();
        use_devices(2);
        connect_with_memory();
        const auto remote = theirs_->memory().remote();
        ASSERT_EQ(softverbs_set_port_state(pulled, 1, IBV_PORT_DOWN), 0);
        Request put;
        ASSERT_EQ(left().iput(mine_->memory(), mine_->data(), size, *remote, 0, put), code(0));
        EXPECT_EQ(left().wait(put, 20s).error, code(EHOSTUNREACH));
    }
}

TEST_F(Faults, closing_waits_until_what_was_sent_is_taken_and_no_longer) {
    options_.ack_timeout = 14;
    options_.retry_count = 7;
    options_.linger = 30s;
    connect_with_memory();
    ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0), 0);
    EXPECT_EQ(left().test(send(10)).error, code(0));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(left().close(), code(0));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    EXPECT_EQ(softverbs_pending_faults(), 0);
    EXPECT_EQ(right().wait(receive(10), 20s).bytes, 10);
}

// Their bytes wait in the channel until the device has them.
TEST_F(Faults, short_messages_after_one_that_is_lost_arrive_as_they_were_sent) {
    for (const std::uint32_t inline_data : {128U, 0U}) {
        SCOPED_TRACE(inline_data);
        mine_.reset();
        theirs_.reset();
        disconnect();
        options_.inline_data = inline_data;
        options_.eager_slots = 256;
        options_.retry_count = 7;
        connect_with_memory();
        ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 1, 0), 0);
        constexpr std::size_t count = 200;
        constexpr std::size_t length = 50;
        std::array<Request, count> sends;
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(left().isend(mine_->memory(), mine_->data(i * length), length, 1, sends[i]),
                      code(0));
        }
        for (std::size_t i = 0; i < count; ++i) {
            Request received;
            ASSERT_EQ(
                right().irecv(theirs_->memory(), theirs_->data(i * length), length, 1, received),
                code(0));
            ASSERT_EQ(finish(right(), received).error, code(0));
            ASSERT_EQ(finish(left(), sends[i]).error, code(0));
        }
        EXPECT_TRUE(theirs_->bytes(0, count * length) == mine_->bytes(0, count * length));
    }
}

TEST_F(Faults, a_cable_that_comes_back_in_time_is_not_noticed) {
    options_.ack_timeout = 18; // a second, thrice
    connect_with_memory();
    const Request received = receive(size);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    const Request sent = send(size);
    EXPECT_FALSE(after_a_while(left(), sent).done);
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    EXPECT_EQ(finish(right(), received).error, code(0));
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_TRUE(theirs_->bytes(0, size) == mine_->bytes(0, size));
}

TEST_F(Faults, memory_that_is_revoked_here_is_an_error_of_its_request) {
    connect_with_memory();
    const Request bystander = receive(10, 5);
    const Request received = receive(size);
    ASSERT_EQ(softverbs_revoke_mr(region_of(*mine_)), 0);
    const Request sent = send(size);
    EXPECT_EQ(finish(left(), sent).error, code(EFAULT));
    EXPECT_EQ(right().wait(received, 20s).done, true);
    EXPECT_EQ(right().wait(bystander, 20s).done, true);
    expect_broken(left(), *mine_, ECONNABORTED);
}

TEST_F(Faults, memory_that_is_revoked_at_the_peer_is_an_error_of_the_request) {
    connect_with_memory();
    const Request bystander = send(size, 8);
    const Request received = receive(size);
    ASSERT_EQ(softverbs_revoke_mr(region_of(*theirs_)), 0);
    const Request sent = send(size);
    EXPECT_EQ(finish(left(), sent).error, code(EACCES));
    EXPECT_EQ(finish(left(), bystander).error, code(ECONNABORTED));
    EXPECT_EQ(finish(right(), received).error, code(ECONNRESET));
    expect_broken(left(), *mine_, ECONNABORTED);
    expect_broken(right(), *theirs_, ECONNRESET);
}

TEST_F(Faults, memory_that_the_peer_has_deregistered_is_an_error_of_the_request) {
    connect_with_memory();
    const auto remote = theirs_->memory().remote();
    const std::uintptr_t address = theirs_->memory().address();
    theirs_->deregister();
    right_end().cache().invalidate(address, size);
    Request put;
    ASSERT_EQ(left().iput(mine_->memory(), mine_->data(), 100, *remote, 0, put), code(0));
    EXPECT_EQ(finish(left(), put).error, code(EACCES));
}

TEST_F(Faults, a_device_that_fails_ends_everything) {
    connect_with_memory();
    const Request received = receive(size);
    ASSERT_EQ(softverbs_fail_device(right_end().protection_domain().context().native()), 0);
    const Outcome outcome = right().wait(received, 20s);
    EXPECT_TRUE(outcome.done);
    EXPECT_NE(outcome.error, code(0));
    EXPECT_NE(right().state(), code(0));
}

TEST_F(Faults, a_completion_queue_that_breaks_ends_everything) {
    connect_with_memory();
    const Request received = receive(size);
    ASSERT_EQ(softverbs_break_cq(record().qps.back().recv_cq), 0);
    EXPECT_TRUE(after_a_while(right(), received).done || after_a_while(left(), received).done);
    EXPECT_EQ(left().state() == code(0) && right().state() == code(0), false);
}

TEST_F(Faults, lost_delayed_and_doubled_packets_change_nothing) {
    options_.ack_timeout = 12;
    options_.retry_count = 7;
    connect_with_memory();
    for (const std::string_view fault :
         {"packet#2=drop", "packet#3=duplicate", "packet#1=corrupt", "packet#2=delay:5"}) {
        SCOPED_TRACE(fault);
        for (const std::size_t count : {std::size_t{7}, std::size_t{300000}}) {
            ASSERT_EQ(softverbs_set_faults(std::string(fault).c_str()), 0);
            const Request received = receive(count);
            const Request sent = send(count);
            EXPECT_EQ(finish(right(), received).error, code(0));
            EXPECT_EQ(finish(left(), sent).error, code(0));
            EXPECT_TRUE(theirs_->bytes(0, count) == mine_->bytes(0, count));
            softverbs_clear_faults();
        }
    }
}

} // namespace
} // namespace rdmabuf::testing
