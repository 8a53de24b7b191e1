// SPDX-License-Identifier: BSD-3-Clause
// Many messages of random lengths and tags, in both directions of several channels of the same two
// endpoints. No message is lost, changed or received twice, and no byte behind a message is
// written.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

struct StressCase {
    const char* name;
    std::size_t devices;
    TestMemory::Kind left;
    TestMemory::Kind right;
    bool read_long_messages;
    /// Small buffers and limits, so that senders have to wait for credits.
    bool small;
    std::uint32_t queue_pairs_per_device = 1;
};

/// The messages of one direction of a channel. Message i is the i-th one of the sender. The
/// receiver posts the receives of different tags in another order.
class Lane {
  public:
    static constexpr std::size_t count = 120;
    static constexpr std::size_t slots = 8;
    static constexpr std::size_t slot_size = 80000;
    static constexpr std::size_t size = slots * slot_size;

    Lane(Channel& sender, Channel& receiver, TestMemory from, TestMemory to, unsigned seed)
        : sender_(sender),
          receiver_(receiver),
          from_(std::move(from)),
          to_(std::move(to)),
          random_(seed),
          source_(pattern(2 * slot_size, seed)) {
        constexpr std::array<std::size_t, 9> lengths = {0,    1,    112,   1024, 1025,
                                                        8192, 8193, 40000, 70000};
        for (std::size_t i = 0; i < count; ++i) {
            const bool special = below(2) == 0;
            messages_.push_back(
                {.length = special ? lengths.at(below(lengths.size())) : below(slot_size),
                 .begin = below(slot_size),
                 .tag = below(3)});
            order_.push_back(i);
        }
        // A group of receives must fit into the slots together with the receives that are posted
        // already. Receives of the same tag keep their order.
        for (std::size_t group = 0; group < count; group += slots / 2) {
            const auto first = order_.begin() + static_cast<std::ptrdiff_t>(group);
            std::stable_sort(first, first + slots / 2,
                             [this, odd = below(2)](std::size_t a, std::size_t b) {
                                 return (messages_[a].tag ^ odd) < (messages_[b].tag ^ odd);
                             });
        }
    }

    /// Starts or tests a request. @return true if the lane has made a step
    bool step() {
        switch (below(4)) {
            case 0:
                return send();
            case 1:
                return receive();
            case 2:
                return test_send();
            default:
                return test_receive();
        }
    }
    [[nodiscard]] bool done() const { return sent_ == count && received_ == count; }

  private:
    struct Message {
        std::size_t length;
        /// The offset of the data in the source pattern.
        std::size_t begin;
        Tag tag;
    };
    struct Slot {
        Request request = {};
        std::size_t message = 0;
        bool used = false;
    };

    [[nodiscard]] std::size_t below(std::size_t n) { return random_() % n; }
    [[nodiscard]] std::span<const std::byte> data(const Message& message) const {
        return std::span(source_).subspan(message.begin, message.length);
    }
    [[nodiscard]] static std::size_t unused(const std::array<Slot, slots>& all) {
        return static_cast<std::size_t>(
            std::find_if(all.begin(), all.end(), [](const Slot& slot) { return !slot.used; }) -
            all.begin());
    }

    bool send() {
        const std::size_t at = unused(sends_);
        if (next_send_ == count || at == slots) {
            return false;
        }
        const Message& message = messages_[next_send_];
        from_.fill(data(message), at * slot_size);
        Slot& slot = sends_.at(at);
        const std::error_code error = sender_.isend(from_.memory(), from_.data(at * slot_size),
                                                    message.length, message.tag, slot.request);
        EXPECT_EQ(error, code(0)) << error.message();
        slot.message = next_send_++;
        slot.used = true;
        return true;
    }
    bool receive() {
        const std::size_t at = unused(receives_);
        if (next_receive_ == count || at == slots) {
            return false;
        }
        to_.fill(std::vector<std::byte>(slot_size, guard), at * slot_size);
        Slot& slot = receives_.at(at);
        slot.message = order_[next_receive_++];
        const Message& message = messages_[slot.message];
        const std::size_t room = below(2) == 0 ? message.length : slot_size;
        const std::error_code error = receiver_.irecv(to_.memory(), to_.data(at * slot_size), room,
                                                      message.tag, slot.request);
        EXPECT_EQ(error, code(0)) << error.message();
        slot.used = true;
        return true;
    }
    bool test_send() {
        Slot& slot = sends_.at(below(slots));
        if (!slot.used) {
            return false;
        }
        const Completion completion = sender_.test(slot.request);
        if (completion.done) {
            EXPECT_EQ(completion.error, code(0)) << completion.error.message();
            EXPECT_EQ(completion.bytes, messages_[slot.message].length);
            slot.used = false;
            ++sent_;
        }
        return completion.done;
    }
    bool test_receive() {
        const std::size_t at = below(slots);
        Slot& slot = receives_.at(at);
        if (!slot.used) {
            return false;
        }
        const Completion completion = receiver_.test(slot.request);
        if (completion.done) {
            const Message& message = messages_[slot.message];
            EXPECT_EQ(completion.error, code(0)) << completion.error.message();
            EXPECT_EQ(completion.bytes, message.length);
            EXPECT_EQ(completion.tag, message.tag);
            const std::vector<std::byte> bytes = to_.bytes(at * slot_size, slot_size);
            const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(message.length);
            EXPECT_TRUE(std::ranges::equal(std::span(bytes).first(message.length), data(message)))
                << "message " << slot.message << " of " << message.length << " bytes";
            EXPECT_TRUE(std::all_of(end, bytes.end(), [](std::byte b) { return b == guard; }));
            slot.used = false;
            ++received_;
        }
        return completion.done;
    }

    static constexpr std::byte guard{0xee};

    Channel& sender_;
    Channel& receiver_;
    TestMemory from_;
    TestMemory to_;
    std::mt19937 random_;
    std::vector<std::byte> source_;
    std::vector<Message> messages_;
    /// The messages in the order in which their receives are posted.
    std::vector<std::size_t> order_;
    std::array<Slot, slots> sends_{};
    std::array<Slot, slots> receives_{};
    std::size_t next_send_ = 0;
    std::size_t next_receive_ = 0;
    std::size_t sent_ = 0;
    std::size_t received_ = 0;
};

class Stress : public TransportTest, public ::testing::WithParamInterface<StressCase> {};

TEST_P(Stress, of_several_channels_loses_and_changes_no_message) {
    constexpr std::size_t channels = 3;
    const StressCase& parameters = GetParam();
    use_devices(parameters.devices);
    options_.read_long_messages = parameters.read_long_messages;
    options_.queue_pairs_per_device = parameters.queue_pairs_per_device;
    if (parameters.queue_pairs_per_device > 1) {
        options_.min_fragment = 4096;
    }
    if (parameters.small) {
        options_.receive_buffers = 16;
        options_.ack_timeout = 18; // 1 s, for a machine with a high load
        options_.send_buffers = 4;
        options_.unexpected_limit = 16384;
        options_.send_depth = 16;
    }
    open();
    auto listener = right_end().listen("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.message();
    std::vector<Channel> lefts;
    std::vector<Channel> rights;
    for (std::size_t i = 0; i < channels; ++i) {
        auto connector = left_end().start_connect(listener->handle());
        ASSERT_TRUE(connector.ok()) << connector.message();
        ASSERT_EQ(meet(*connector, *listener), code(0));
        lefts.push_back(*std::move(left_));
        rights.push_back(*std::move(right_));
        left_.reset();
        right_.reset();
    }
    std::vector<Lane> lanes;
    for (unsigned i = 0; i < channels; ++i) {
        lanes.emplace_back(lefts[i], rights[i], left_memory(Lane::size, parameters.left),
                           right_memory(Lane::size, parameters.right), 2 * i + 1);
        lanes.emplace_back(rights[i], lefts[i], right_memory(Lane::size, parameters.right),
                           left_memory(Lane::size, parameters.left), 2 * i + 2);
    }
    std::mt19937 random(7); // NOLINT(cert-msc51-cpp): the same numbers in each run
    const auto request_ends = [&] { return lanes[random() % lanes.size()].step() || HasFailure(); };
    while (!std::ranges::all_of(lanes, &Lane::done)) {
        if (!eventually(request_ends) || HasFailure()) {
            ADD_FAILURE() << "a request has failed, or has not ended";
            break;
        }
    }
    for (const auto* ends : {&lefts, &rights}) {
        for (const Channel& channel : *ends) {
            EXPECT_EQ(channel.in_flight(), 0);
            EXPECT_EQ(channel.state(), code(0)) << channel.reason();
        }
    }
    // After a failure, requests may be in flight whose memory is freed next.
    for (std::size_t i = 0; i < channels; ++i) {
        static_cast<void>(lefts[i].close());
        EXPECT_TRUE(eventually([&] { return rights[i].state() == code(ECONNRESET); },
                               [&] { right_end().progress(); }))
            << rights[i].reason();
        static_cast<void>(rights[i].close());
    }
}

constexpr auto host = TestMemory::Kind::host;
constexpr auto dmabuf = TestMemory::Kind::dmabuf;
INSTANTIATE_TEST_SUITE_P(
    of, Stress,
    ::testing::Values(
        StressCase{"host", 1, host, host, true, false},
        StressCase{"dmabuf", 1, dmabuf, dmabuf, true, false},
        StressCase{"host_without_reads", 1, host, host, false, false},
        StressCase{"two_devices", 2, host, dmabuf, true, false},
        StressCase{"two_devices_without_reads", 2, dmabuf, host, false, false},
        StressCase{"small_buffers", 1, host, dmabuf, true, true},
        StressCase{"two_devices_with_small_buffers", 2, dmabuf, host, false, true},
        StressCase{"two_queue_pairs", 1, host, dmabuf, true, false, 2},
        StressCase{"four_queue_pairs_on_two_devices", 2, dmabuf, host, false, false, 4},
        StressCase{"small_buffers_and_three_queue_pairs", 1, host, dmabuf, true, true, 3}),
    [](const auto& value) { return std::string(value.param.name); });

} // namespace
} // namespace rdmabuf::testing
