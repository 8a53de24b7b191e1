// SPDX-License-Identifier: BSD-3-Clause
// A queue pair that was left out is replaced by another one, and is used again.
#include <softverbs/softverbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/transport.hpp>

#include "failover_fixture.hpp"
#include "late_receives.hpp"
#include "stopped_clock.hpp"

namespace rdmabuf::testing {
namespace {

class Probation : public Failover {
  protected:
    Probation() {
        options_.probation = 10ms;
        options_.heartbeat = 20ms; // Probations are checked ten times in this time.
    }

    /// Waits until both ends use all queue pairs.
    void expect_all_used(std::size_t rails = 2) {
        EXPECT_TRUE(progress_until([&] {
            return (left().working_rails() == rails && right().working_rails() == rails) ||
                   left().state() || right().state();
        }));
        EXPECT_EQ(left().state(), code(0)) << left().reason();
        EXPECT_EQ(right().state(), code(0)) << right().reason();
        for (std::size_t i = 0; i < rails; ++i) {
            EXPECT_STREQ(left().rail_reason(i), "");
            EXPECT_STREQ(right().rail_reason(i), "");
        }
    }
    /// Sends messages until both ends have left out a queue pair, which is not replaced soon.
    void expect_left_out() {
        EXPECT_TRUE(progress_until([&] {
            pass(*from_, *to_, 300000);
            return left().working_rails() == 1 && right().working_rails() == 1;
        }));
    }
    /// Makes progress until the right end has sent ten keepalive writes, at intervals of
    /// EndpointOptions::heartbeat. A probation would end in this time.
    void wait_for_keepalives() {
        Request unmatched = receive(100, Tag{0x7777}); // Keepalive writes need a request.
        const std::size_t before = record().sends.size();
        EXPECT_TRUE(progress_until([&] { return record().sends.size() >= before + 10; }));
        EXPECT_EQ(right().cancel(unmatched), code(0));
        EXPECT_EQ(complete(right(), unmatched).error, code(ECANCELED));
    }
    /// Returns the number of bytes that the newest queue pair of a device has written or read for
    /// this function, which transfers @p length bytes.
    std::size_t transferred_by(std::size_t device, std::size_t length) {
        const std::size_t before = record().sends.size();
        pass(*from_, *to_, length);
        std::size_t bytes = 0;
        const auto count = [&](const TestMemory& memory) {
            const std::uint32_t number = last_queue_pair(memory, device)->qp_num;
            for (std::size_t i = before; i < record().sends.size(); ++i) {
                for (const ibv_sge& entry : record().sends[i].entries) {
                    bytes += record().sends[i].queue_pair == number ? entry.length : 0;
                }
            }
        };
        count(*from_);
        count(*to_);
        return bytes;
    }
    static void set_port_state(unsigned device, ibv_port_state state) {
        ASSERT_EQ(softverbs_set_port_state(device, 1, state), 0);
    }
};

TEST_F(Probation, begins_when_the_port_is_active) {
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    ASSERT_NO_FATAL_FAILURE(pass_messages(Failure::of_port));
    expect_left_out();
    const std::size_t before = record().queue_pairs.size();
    wait_for_keepalives();
    EXPECT_EQ(record().queue_pairs.size(), before);
    set_port_state(1, IBV_PORT_ACTIVE);
    expect_all_used();
    EXPECT_GE(record().queue_pairs.size(), before + 2);
}

// Without the events, both ends find out by failed probations that the port is down.
TEST_F(Probation, is_repeated_until_the_queue_pair_works) {
    options_.read_async_events = false;
    options_.ack_timeout = 8; // 1 ms
    options_.retry_count = 1;
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    ASSERT_NO_FATAL_FAILURE(pass_messages(Failure::of_port));
    expect_left_out();
    const std::size_t before = record().queue_pairs.size();
    EXPECT_TRUE(progress_until([&] { return record().queue_pairs.size() >= before + 6; }));
    EXPECT_EQ(left().working_rails(), 1);
    EXPECT_THAT(std::string_view(left().rail_reason(1)),
                ::testing::AnyOf("the peer's device does not respond",
                                 "the peer has left out the queue pair"));
    pass(*from_, *to_, 300000);
    set_port_state(1, IBV_PORT_ACTIVE);
    expect_all_used();
    EXPECT_GT(transferred_by(1, 500000), 200000);
}

TEST_F(Probation, is_not_made_of_a_failed_device_or_if_its_time_is_0) {
    for (const auto& [failure, time] :
         {std::pair(Failure::of_device, 10ms), std::pair(Failure::of_both, 0ms)}) {
        SCOPED_TRACE(time.count());
        options_.probation = time;
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        ASSERT_NO_FATAL_FAILURE(pass_messages(failure));
        expect_left_out();
        const std::size_t before = record().queue_pairs.size();
        wait_for_keepalives();
        EXPECT_EQ(record().queue_pairs.size(), before);
        EXPECT_EQ(left().working_rails(), 1);
        pass(*from_, *to_, 300000);
    }
}

// Every verbs call of a probation fails once, at either end.
TEST_F(Probation, is_repeated_after_a_verbs_call_has_failed) {
    // Each end moves its queue pair to the states INIT, RTR and RTS.
    constexpr std::array verbs = {std::pair("ibv_create_qp", 2), std::pair("ibv_modify_qp", 6)};
    for (const auto& [verb, calls] : verbs) {
        for (int call = 1; call <= calls; ++call) {
            SCOPED_TRACE(std::string(verb) + " number " + std::to_string(call));
            ASSERT_NO_FATAL_FAILURE(connect_devices());
            ASSERT_NO_FATAL_FAILURE(pass_messages(Failure::of_port));
            expect_left_out();
            int created = 0;
            before_each_call(
                [&](const char* name) { created += std::strcmp(name, "ibv_create_qp") == 0; });
            ASSERT_EQ(softverbs_fail_call(verb, static_cast<unsigned>(call), ENOMEM), 0);
            set_port_state(1, IBV_PORT_ACTIVE);
            expect_all_used();
            EXPECT_GT(created, 2); // One of them was for nothing.
            before_each_call([](const char*) {});
            EXPECT_GT(transferred_by(1, 500000), 200000);
        }
    }
}

// The failed queue pair may still take receives. The data that has arrived would be posted again,
// and ibv_destroy_qp(3) would remove their completions.
TEST_F(Probation, begins_after_the_last_receive_of_the_failed_queue_pair) {
    options_.read_async_events = false;
    options_.read_long_messages = false;
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    settle();
    const StoppedClock clock;
    bool reads_events = false;
    const auto pass_time = [&](std::chrono::milliseconds time) {
        const Context& device = right_end().protection_domain(1).context();
        for (; time > 0ms; time -= 1ms) {
            StoppedClock::advance(1ms);
            some_progress(256); // An endpoint looks at the clock once in 256 calls.
            while (const auto event = reads_events ? device.wait_async_event(0ms) : std::nullopt) {
                left_end().async_event(device, *event);
                right_end().async_event(device, *event);
            }
        }
    };
    transport::detail::SharedRail& rail = *right().endpoint()->shared.rails[1];
    {
        const LateReceives late(rail);
        Request receives = receive(300000);
        Request sends = send(300000);
        pass_time(10ms);
        ASSERT_GT(LateReceives::count(), 0);
        const std::size_t before = record().queue_pairs.size();
        ASSERT_NO_FATAL_FAILURE(fail(Failure::of_right));
        pass_time(90ms);
        EXPECT_FALSE(right().test(receives).done);
        EXPECT_EQ(record().queue_pairs.size(), before);
        reads_events = true;
        pass_time(50ms);
        EXPECT_EQ(complete(right(), receives).error, code(0)) << right().reason();
        EXPECT_EQ(complete(left(), sends).error, code(0)) << left().reason();
        EXPECT_EQ(record().queue_pairs.size(), before + 2);
        expect_all_used();
    }
    EXPECT_EQ(missing_receives(rail), 0);
}

/// The right end has a peer that sends the messages of a probation as a test wants.
class ProbationPeer : public FailoverPeer {
  protected:
    ProbationPeer() {
        options_.probation = 10ms;
        options_.heartbeat = 20ms;
    }
    /// The peer leaves out the second queue pair, and has recovered from this.
    void leave_out() {
        FailoverPeer::leave_out();
        send(Kind::rail_recovered);
    }
    void send_address(std::uint8_t rail = 1) {
        const auto address = raw_->hello.addresses[1];
        raw_->send({.kind = Kind::rail_replaced, .rails = rail}, address);
    }
};

TEST_F(ProbationPeer, ends_the_channel_when_it_violates_the_protocol) {
    expect_violations({
        {"a replacement without failure", [&] { send_address(); }},
        {"a replacement before the end of the recovery",
         [&] {
             send(Kind::rail_down);
             send_address();
         }},
        {"a replacement of the first queue pair", [&] { send_address(0); }},
        {"a replacement of a queue pair that does not exist", [&] { send_address(2); }},
        {"a replacement of queue pair 255", [&] { send_address(255); }},
        {"two replacements",
         [&] {
             leave_out();
             send_address();
             send_address();
         }},
        {"a replacement without an address",
         [&] {
             leave_out();
             send(Kind::rail_replaced);
         }},
        {"connected without a replacement", [&] { send(Kind::rail_connected); }},
        {"connected before this end",
         [&] {
             leave_out();
             send(Kind::rail_connected);
         }},
        {"connected by the first queue pair", [&] { send(Kind::rail_connected, 0); }},
        {"connected by queue pair 255", [&] { send(Kind::rail_connected, 255); }},
        {"connected twice",
         [&] {
             leave_out();
             EXPECT_EQ(raw_->receive().header.kind, Kind::rail_replaced);
             send_address();
             EXPECT_EQ(raw_->receive().header.kind, Kind::rail_connected);
             send(Kind::rail_connected);
             send(Kind::rail_connected);
         }},
    });
}

// The peer repeats failure and replacement as fast as it can.
TEST_F(ProbationPeer, cannot_shorten_the_time_between_probations) {
    options_.probation = 50ms;
    ASSERT_NO_FATAL_FAILURE(connect_peer());
    constexpr std::size_t rounds = 3;
    EXPECT_TRUE(lasts_at_least(rounds * options_.probation, [&] {
        for (std::size_t i = 0; i < rounds; ++i) {
            leave_out();
            send_address();
            EXPECT_EQ(raw_->receive().header.kind, Kind::rail_replaced);
            EXPECT_EQ(raw_->receive().header.kind, Kind::rail_connected);
        }
    }));
    EXPECT_EQ(record().queue_pairs.size(), rounds);
    EXPECT_EQ(channel_->state(), code(0)) << channel_->reason();
}

} // namespace
} // namespace rdmabuf::testing
