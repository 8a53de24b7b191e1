// SPDX-License-Identifier: BSD-3-Clause
// A queue pair other than the first fails: it is left out, and the channel goes on without loss.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "failover_fixture.hpp"
#include "raw_connector.hpp"

namespace rdmabuf::testing {
namespace {

using transport::TransferEntry;

class FailoverOf : public Failover, public ::testing::WithParamInterface<Failure> {
  protected:
    /// Returns true if the queue pair fails only after a timeout.
    [[nodiscard]] static bool is_slow() {
        return GetParam() == Failure::of_port || GetParam() == Failure::of_device;
    }
    /// Returns the numbers of calls of progress() after which the queue pair fails.
    [[nodiscard]] static std::vector<unsigned> delays() {
        return is_slow() ? std::vector{1U} : std::vector{0U, 2U, 8U};
    }
};
INSTANTIATE_TEST_SUITE_P(failure, FailoverOf, ::testing::ValuesIn(failures),
                         [](const auto& value) { return name_of(value.param); });

TEST_P(FailoverOf, keeps_messages) {
    for (const bool read : {false, true}) {
        options_.read_long_messages = read;
        for (const bool receives_first : {true, false}) {
            if (is_slow() && read == receives_first) {
                continue;
            }
            for (const unsigned calls : delays()) {
                SCOPED_TRACE("read " + std::to_string(read) + ", receives first " +
                             std::to_string(receives_first) + ", after " + std::to_string(calls));
                ASSERT_NO_FATAL_FAILURE(connect_devices());
                ASSERT_NO_FATAL_FAILURE(pass_messages(GetParam(), calls, receives_first));
                expect_usable(1);
            }
        }
    }
}

// The messages consist of several work requests on each queue pair, and end with a FIN.
TEST_P(FailoverOf, keeps_messages_that_end_with_a_fin) {
    max_message_ = 10000;
    for (const unsigned calls : delays()) {
        SCOPED_TRACE(calls);
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        ASSERT_NO_FATAL_FAILURE(pass_messages(GetParam(), calls, true));
        expect_usable(1);
    }
}

TEST_P(FailoverOf, keeps_writes_and_reads) {
    constexpr std::size_t length = 100000;
    constexpr std::size_t count = 4;
    for (const bool reads : {false, true}) {
        for (const unsigned calls : delays()) {
            SCOPED_TRACE((reads ? "reads after " : "writes after ") + std::to_string(calls));
            ASSERT_NO_FATAL_FAILURE(connect_devices());
            clear_received();
            if (reads) {
                to_->fill(pattern(count * length, 7));
            }
            const RemoteMemory there = remote();
            std::array<Request, count> requests;
            for (std::size_t i = 0; i < count; ++i) {
                const std::size_t offset = i * length;
                std::byte* const here = from_->data(offset);
                ASSERT_EQ(
                    reads ? left().iget(from_->memory(), here, length, there, offset, requests[i])
                          : left().iput(from_->memory(), here, length, there, offset, requests[i]),
                    code(0));
            }
            some_progress(calls);
            ASSERT_NO_FATAL_FAILURE(fail(GetParam()));
            for (Request& request : requests) {
                EXPECT_EQ(complete(left(), request).error, code(0)) << left().reason();
            }
            if (!reads) { // the end of a write does not make the data visible to the peer
                Request fence;
                ASSERT_EQ(left().ifence(fence), code(0));
                EXPECT_EQ(complete(left(), fence).error, code(0)) << left().reason();
            }
            const auto expected = reads ? pattern(count * length, 7) : pattern(memory_size);
            EXPECT_TRUE(std::ranges::equal(std::span(expected).first(count * length),
                                           to_->bytes(0, count * length)));
            EXPECT_TRUE(received(0, 0, count * length));
            expect_usable(1);
        }
    }
}

TEST_P(FailoverOf, keeps_lists_and_fences) {
    constexpr std::size_t length = 8192;
    constexpr std::size_t count = 64;
    for (const unsigned calls : delays()) {
        SCOPED_TRACE(calls);
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        clear_received();
        const RemoteMemory there = remote();
        std::vector<TransferEntry> entries;
        for (std::size_t i = 0; i < count; ++i) {
            entries.push_back({.memory = &from_->memory(),
                               .address = from_->data(i * length),
                               .length = length,
                               .remote = &there,
                               .offset = i * length});
        }
        Request list;
        Request fence;
        ASSERT_EQ(left().iput_list(entries, list), code(0));
        ASSERT_EQ(left().ifence(fence), code(0));
        some_progress(calls);
        ASSERT_NO_FATAL_FAILURE(fail(GetParam()));
        EXPECT_EQ(complete(left(), fence).error, code(0)) << left().reason();
        EXPECT_TRUE(received(0, 0, count * length));
        EXPECT_EQ(complete(left(), list).error, code(0)) << left().reason();
        expect_usable(1);
    }
}

// A notification is reported only when the writes before it are visible.
TEST_P(FailoverOf, keeps_the_order_of_writes_and_notifications) {
    constexpr std::size_t length = 30000;
    constexpr std::size_t count = 16;
    for (const unsigned calls : delays()) {
        SCOPED_TRACE(calls);
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        clear_received();
        const RemoteMemory there = remote();
        std::array<Request, count> puts;
        for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(i * length), length, there,
                                         i * length, i, puts[i]),
                      code(0));
        }
        some_progress(calls);
        ASSERT_NO_FATAL_FAILURE(fail(GetParam()));
        for (std::size_t i = 0; i < count; ++i) {
            const std::optional<std::uint64_t> value = next_notification(right());
            ASSERT_TRUE(value.has_value()) << left().reason() << right().reason();
            EXPECT_EQ(*value, i);
            EXPECT_TRUE(received(i * length, i * length, length)) << i;
        }
        for (Request& put : puts) {
            EXPECT_EQ(complete(left(), put).error, code(0)) << left().reason();
        }
        expect_usable(1);
    }
}

TEST_P(FailoverOf, goes_on_until_one_queue_pair_is_left) {
    ASSERT_NO_FATAL_FAILURE(connect_devices(3));
    for (const std::size_t rail : {std::size_t{1}, std::size_t{2}}) {
        ASSERT_NO_FATAL_FAILURE(pass_messages(GetParam(), 2, true, rail));
        // A queue pair that fails without a work request is noticed when it is used.
        EXPECT_TRUE(progress_until([&] {
            pass(*from_, *to_, 300000);
            return left().working_rails() == 3 - rail && right().working_rails() == 3 - rail;
        }));
    }
    expect_usable(1);
    EXPECT_EQ(left().close(), code(0));
}

// The data has arrived, but its acknowledgement is lost with the queue pair.
TEST_F(Failover, does_not_repeat_data_that_has_arrived) {
    for (int i = 0; i < 10; ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(connect_devices());
        Request received = receive(60000);
        settle();
        ASSERT_EQ(softverbs_set_disorder("acks"), 0);
        Request sent = send(60000);
        EXPECT_EQ(wait(right(), received).error, code(0));
        ASSERT_NO_FATAL_FAILURE(fail_queue_pair(*from_, 1));
        EXPECT_EQ(complete(left(), sent).error, code(0)) << left().reason();
        ASSERT_EQ(softverbs_set_disorder(nullptr), 0);
        pass(*from_, *to_, 300000);
        EXPECT_EQ(right().state(), code(0)) << right().reason();
    }
}

/// The right end has a peer that sends the messages of a failover as a test wants.
class FailoverPeer : public RawPeerTest {
  protected:
    using Kind = transport::detail::Kind;
    using RepeatedRails = transport::detail::RepeatedRails;

    FailoverPeer() {
        options_.queue_pairs_per_device = 2;
        options_.read_long_messages = false;
    }
    void connect_peer() {
        ASSERT_NO_FATAL_FAILURE(connect_raw(2));
        ASSERT_EQ(channel_->rails(), 2);
    }
    void send(Kind kind, std::uint8_t rails, std::uint64_t value = 0, std::uint32_t number = 0) {
        raw_->send({.kind = kind, .rails = rails, .number = number, .value = value});
    }
    /// The peer leaves out the second queue pair. @return the number that the channel has sent
    std::uint64_t leave_out() {
        send(Kind::rail_down, 1);
        const auto down = raw_->receive();
        EXPECT_EQ(down.header.kind, Kind::rail_down);
        EXPECT_EQ(down.header.rails, 1);
        EXPECT_EQ(raw_->receive().header.kind, Kind::rail_recovered);
        EXPECT_EQ(channel_->working_rails(), 1);
        return down.header.value;
    }
    /// Makes progress until the channel has failed. @return the error
    [[nodiscard]] std::error_code failure() {
        static_cast<void>(eventually([&] { return channel_->state().value() != 0; },
                                     [&] { channel_->progress(); }));
        return channel_->state();
    }
};

TEST_F(FailoverPeer, ends_the_channel_when_it_violates_the_protocol) {
    const std::vector<std::pair<const char*, std::function<void()>>> violations = {
        {"the first queue pair", [&] { send(Kind::rail_down, 0); }},
        {"a queue pair that does not exist", [&] { send(Kind::rail_down, 2); }},
        {"more data than was sent", [&] { send(Kind::rail_down, 1, 1); }},
        {"a number of 64 bits", [&] { send(Kind::rail_down, 1, std::uint64_t{1} << 32U); }},
        {"twice",
         [&] {
             leave_out();
             send(Kind::rail_down, 1);
         }},
        {"recovered without failure", [&] { send(Kind::rail_recovered, 1); }},
        {"recovered by the first queue pair", [&] { send(Kind::rail_recovered, 0); }},
        {"recovered by a queue pair that does not exist", [&] { send(Kind::rail_recovered, 255); }},
        {"recovered twice",
         [&] {
             leave_out();
             send(Kind::rail_recovered, 1);
             send(Kind::rail_recovered, 1);
         }},
        {"a range without failure",
         [&] { send(Kind::range_repeated, RepeatedRails{.rail = 1, .rails = 2}.encode(), 10); }},
        {"a range of a receive that does not exist",
         [&] {
             leave_out();
             send(Kind::range_repeated, RepeatedRails{.rail = 1, .rails = 2}.encode(), 10, 99);
         }},
    };
    for (const auto& [what, violate] : violations) {
        SCOPED_TRACE(what);
        ASSERT_NO_FATAL_FAILURE(connect_peer());
        violate();
        EXPECT_EQ(failure(), code(EPROTO)) << channel_->reason();
    }
}

class FailoverPeerWithReceive : public FailoverPeer {
  protected:
    static constexpr std::uint32_t length = 20000;

    /// Posts a receive, and writes the first 10,000 bytes of its message by the first queue pair.
    [[nodiscard]] Request begin_receive(const TestMemory& to) {
        Request request;
        EXPECT_EQ(channel_->irecv(to.memory(), to.data(), length, 1, request), code(0));
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::advertisement);
        number_ = message.as<CtsBody>().request;
        raw_->write_immediate({.rails = 2, .request = number_});
        return request;
    }
    void end_receive(std::uint64_t bytes) {
        send(Kind::range_repeated, RepeatedRails{.rail = 1, .rails = 2}.encode(), bytes, number_);
    }
    std::uint32_t number_ = 0;
};

TEST_F(FailoverPeerWithReceive, ends_a_receive_by_the_repeated_range) {
    ASSERT_NO_FATAL_FAILURE(connect_peer());
    const TestMemory to = right_memory(length);
    Request request = begin_receive(to);
    EXPECT_EQ(leave_out(), 0);
    EXPECT_FALSE(channel_->test(request).done);
    end_receive(length);
    const Completion completion = wait(*channel_, request);
    EXPECT_EQ(completion.error, code(0)) << channel_->reason();
    EXPECT_EQ(completion.bytes, length);
}

TEST_F(FailoverPeerWithReceive, cannot_repeat_more_bytes_than_the_receive_has) {
    for (const std::uint64_t bytes : {std::uint64_t{length} + 1, ~std::uint64_t{0}}) {
        SCOPED_TRACE(bytes);
        ASSERT_NO_FATAL_FAILURE(connect_peer());
        const TestMemory to = right_memory(length);
        const Request request = begin_receive(to);
        leave_out();
        end_receive(bytes);
        EXPECT_EQ(wait(*channel_, request).error, code(EPROTO));
        channel_.reset();
    }
}

TEST_F(FailoverPeerWithReceive, cannot_repeat_a_range_after_it_has_recovered) {
    ASSERT_NO_FATAL_FAILURE(connect_peer());
    const TestMemory to = right_memory(length);
    const Request request = begin_receive(to);
    leave_out();
    send(Kind::rail_recovered, 1);
    end_receive(length);
    EXPECT_EQ(wait(*channel_, request).error, code(EPROTO));
    channel_.reset();
}

// The peer counts data as lost that its device has acknowledged.
TEST_F(FailoverPeer, that_loses_acknowledged_data_ends_the_channel) {
    ASSERT_NO_FATAL_FAILURE(connect_peer());
    const TestMemory from = right_memory(200000);
    Request request;
    ASSERT_EQ(channel_->isend(from.memory(), from.data(), 200000, 1, request), code(0));
    const auto rts = raw_->receive();
    ASSERT_EQ(rts.header.kind, Kind::rts);
    raw_->send({.kind = Kind::cts, .number = rts.as<RtsBody>().request},
               CtsBody{.length = 200000, .request = 7, .chunks = 1, .rails = 1},
               {raw_->chunk(200000)});
    EXPECT_EQ(wait(*channel_, request).error, code(0)) << channel_->reason();
    send(Kind::rail_down, 1, 0);
    EXPECT_EQ(failure(), code(EIO)) << channel_->reason();
}

} // namespace
} // namespace rdmabuf::testing
