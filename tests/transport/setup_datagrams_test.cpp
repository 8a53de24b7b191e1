// SPDX-License-Identifier: BSD-3-Clause
// The datagrams by which the ends of a prepared channel learn that both are connected: datagrams
// that are lost, duplicated or delayed, and datagrams of other programs.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepared_channels_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::ConnectedDatagram;

/// The time between two periodic checks is a minute, so that no end repeats a datagram in this
/// test. If the datagram of the earlier end has arrived before the later end connects, the later
/// end needs no reply: the program of the earlier end may compute.
TEST_F(PreparedChannels, connect_without_a_repetition_if_no_datagram_is_lost) {
    options_.heartbeat = 600'000ms;
    options_.handshake = 1'200'000ms;
    open();
    for (const bool right_is_later : {true, false}) {
        SCOPED_TRACE(right_is_later);
        prepare_ends();
        right_is_later ? connect_left() : connect_right();
        settle_at(right_is_later ? left_end() : right_end());
        settle_at(right_is_later ? right_end() : left_end());
        right_is_later ? connect_right() : connect_left();
        const TestMemory early = right_is_later ? right_memory(5000) : left_memory(5000);
        Request sent;
        Channel& later = right_is_later ? right() : left();
        ASSERT_EQ(later.isend(early.memory(), early.data(), 5000, 2, sent), code(0));
        const Completion completion = wait(later, sent);
        EXPECT_TRUE(completion.done && !completion.error);
        const TestMemory from = left_memory(100);
        const TestMemory to = right_memory(100);
        pass(from, to, 100);
        std::swap(left_, right_);
        pass(to, from, 100);
        std::swap(left_, right_);
        settle();
        // No end sends any packet after this: a reply needs no reply.
        ASSERT_EQ(softverbs_set_faults("packet#1=drop"), 0);
        settle();
        EXPECT_EQ(softverbs_pending_faults(), 1U);
        softverbs_clear_faults();
        close_ends();
    }
}

/// The send queue of the datagrams has 64 entries, and the receive queue as many receives.
TEST_F(PreparedChannels, connect_although_there_are_more_of_them_than_datagrams_in_flight) {
    constexpr std::size_t count = 100;
    options_.send_depth = 16;
    open();
    std::vector<PreparedChannel> prepared;
    std::vector<Channel> lefts;
    std::vector<Channel> rights;
    for (std::size_t i = 0; i < count; ++i) {
        prepared.push_back(prepare(left_end()));
        prepared.push_back(prepare(right_end()));
    }
    for (std::size_t i = 0; i < 2 * count; i += 2) {
        lefts.push_back(connect(std::move(prepared[i]), prepared[i + 1].address()));
        rights.push_back(connect(std::move(prepared[i + 1]), prepared[i].address()));
    }
    const TestMemory from = left_memory(100);
    const TestMemory to = right_memory(100);
    for (std::size_t i = 0; i < count; ++i) {
        left_.emplace(std::move(lefts[i]));
        right_.emplace(std::move(rights[i]));
        pass(from, to, 100);
    }
}

/// Each of the first packets is lost, duplicated or delayed. The packets of both ends are counted
/// together, so that each datagram of each end is lost in one of the rounds.
TEST_F(PreparedChannels, connect_although_a_packet_is_lost_duplicated_or_delayed) {
    options_.ack_timeout = 14;
    options_.retry_count = 7;
    open();
    for (const char* const fault : {"drop", "duplicate", "delay:10"}) {
        for (unsigned n = 1; n <= 8; ++n) {
            const std::string text = "packet#" + std::to_string(n) + "=" + fault;
            SCOPED_TRACE(text);
            prepare_ends();
            ASSERT_EQ(softverbs_set_faults(text.c_str()), 0);
            connect_left();
            // In every second round, the left end repeats its datagram meanwhile.
            progress_for_datagrams(n % 2 == 0 ? 0 : 2, left_end());
            connect_right();
            const TestMemory from = left_memory(20000);
            const TestMemory to = right_memory(20000);
            pass(from, to, 100);
            pass(from, to, 20000);
            softverbs_clear_faults();
            close_ends();
        }
    }
}

/// All datagrams of one end are lost for a while, or of both.
TEST_F(PreparedChannels, connect_after_many_lost_datagrams) {
    open();
    std::string text;
    for (unsigned n = 1; n <= 20; ++n) {
        text += (n == 1 ? "packet#" : ",packet#") + std::to_string(n) + "=drop";
    }
    prepare_ends();
    ASSERT_EQ(softverbs_set_faults(text.c_str()), 0);
    connect_left();
    connect_right();
    EXPECT_TRUE(eventually([] { return softverbs_pending_faults() == 0; },
                           [&] {
                               left().progress();
                               right().progress();
                           }));
    const TestMemory from = left_memory(100);
    const TestMemory to = right_memory(100);
    pass(from, to, 100);
}

// Datagrams of other programs

/// Sends datagrams to the SetupQueuePair of the right endpoint.
class UnknownSender : public PreparedChannels {
  protected:
    void SetUp() override {
        PreparedChannels::SetUp();
        open();
        prepare_ends();
        to_ = QueuePairAddress::decode(right_prepared_->address().setup_queue_pair()).value();
        auto prepared = QueuePair::prepare(
            pd_, {.send_cq = cq_, .recv_cq = cq_, .type = QueuePairType::unreliable_datagram});
        path_.emplace(pd_, to_, prepared.connection().path);
        queue_pair_.emplace(std::move(prepared).activate());
    }
    void send(std::span<const std::byte> bytes) {
        std::copy(bytes.begin(), bytes.end(), buffer_.begin());
        const ibv_sge data = region_.sge(0, static_cast<std::uint32_t>(bytes.size()));
        ASSERT_TRUE(queue_pair_->post_send_to(data, path_->destination(to_),
                                              {.flags = SendFlags::signaled}));
        WorkCompletion completion;
        while (cq_.poll({&completion, 1}) == 0) {
        }
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
    }
    void send(const ConnectedDatagram& datagram) { send(std::as_bytes(std::span(&datagram, 1))); }
    /// Returns the datagram that the left end sends.
    [[nodiscard]] ConnectedDatagram valid() const {
        return {.needs_reply = 1,
                .to = right_prepared_->address().hello().secret,
                .from = left_prepared_->address().hello().secret};
    }

  private:
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    CompletionQueue cq_{context_, {.depth = 16}};
    std::vector<std::byte> buffer_ = std::vector<std::byte>(4096);
    MemoryRegion region_{pd_, buffer_.data(), buffer_.size()};
    QueuePairAddress to_;
    std::optional<AddressHandle> path_;
    std::optional<QueuePair> queue_pair_;
};

TEST_F(UnknownSender, is_ignored) {
    connect_right();
    const TestMemory to = right_memory(100);
    Request early;
    ASSERT_EQ(right().isend(to.memory(), to.data(), 100, 9, early), code(0));
    std::vector<ConnectedDatagram> wrong(4, valid());
    ++wrong[0].magic;
    ++wrong[1].version;
    wrong[2].to[15] ^= std::byte{1};
    wrong[3].from[15] ^= std::byte{1};
    for (const ConnectedDatagram& datagram : wrong) {
        send(datagram);
    }
    const ConnectedDatagram datagram = valid();
    std::vector<std::byte> bytes(4096);
    std::memcpy(bytes.data(), &datagram, sizeof datagram);
    // More datagrams than the right endpoint has receives.
    for (int i = 0; i < 20; ++i) {
        for (const std::size_t size : {0U, 1U, 39U, 41U, 1024U}) {
            send(std::span(bytes).first(size));
            settle_at(right_end());
        }
    }
    EXPECT_EQ(right().state(), code(0)) << right().reason();
    EXPECT_FALSE(right().test(early).done);
    connect_left();
    const TestMemory from = left_memory(100);
    pass(from, to, 100);
    EXPECT_EQ(finish(right(), early).error, code(0));
}

/// A datagram arrives again after the channel was closed, and after it was connected.
TEST_F(UnknownSender, that_repeats_old_datagrams_has_no_effect) {
    send(valid());
    settle_at(right_end());
    connect_left();
    connect_right();
    const TestMemory from = left_memory(20000);
    const TestMemory to = right_memory(20000);
    for (int i = 0; i < 10; ++i) {
        send(valid());
        pass(from, to, 20000);
    }
    close_ends();
    send(valid());
    settle_at(right_end());
    connect_ends();
    pass(from, to, 20000);
}

} // namespace
} // namespace rdmabuf::testing
