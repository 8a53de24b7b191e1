// SPDX-License-Identifier: BSD-3-Clause
// The messages of a peer whose queue pair other than the first has failed.
#include <cstdint>
#include <utility>

#include <rdmabuf/transport.hpp>

#include "failover_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::RepeatedRails;

TEST_F(FailoverPeer, ends_the_channel_when_it_violates_the_protocol) {
    expect_violations({
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
    });
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

TEST_F(FailoverPeerWithReceive, cannot_repeat_more_than_the_receive_has_or_after_the_recovery) {
    for (const auto& [has_recovered, bytes] :
         {std::pair(false, std::uint64_t{length} + 1), std::pair(false, ~std::uint64_t{0}),
          std::pair(true, std::uint64_t{length})}) {
        SCOPED_TRACE(bytes);
        ASSERT_NO_FATAL_FAILURE(connect_peer());
        const TestMemory to = right_memory(length);
        const Request request = begin_receive(to);
        leave_out();
        if (has_recovered) {
            send(Kind::rail_recovered, 1);
        }
        end_receive(bytes);
        EXPECT_EQ(wait(*channel_, request).error, code(EPROTO));
        channel_.reset();
    }
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
