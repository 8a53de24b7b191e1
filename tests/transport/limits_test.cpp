// SPDX-License-Identifier: BSD-3-Clause
// Devices that can do little: memory is in many regions, messages in many requests, and queues are
// full.
#include <algorithm>
#include <array>
#include <tuple>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

struct Limit {
    const char* name;
    std::uint64_t region;
    std::uint32_t message;
    int queue;
    std::uint32_t inline_data;
};
/// More than a channel needs for itself, and less than the memory of these tests.
constexpr std::uint64_t region = 524288;
constexpr std::uint64_t no_region_limit = std::uint64_t{1} << 40U;
constexpr std::uint32_t no_message_limit = std::uint32_t{1} << 30U;
constexpr std::array<Limit, 5> limits = {{{"regions", region, no_message_limit, 4096, 128},
                                          {"messages", no_region_limit, 10000, 4096, 128},
                                          {"queues", no_region_limit, no_message_limit, 64, 128},
                                          {"no_inline", no_region_limit, no_message_limit, 4096, 0},
                                          {"all", region, 10000, 64, 0}}};

class Limits : public TransportTest,
               public ::testing::WithParamInterface<std::tuple<Limit, std::size_t>> {
  protected:
    static constexpr std::size_t size = 12 * region;

    void SetUp() override {
        const Limit& limit = std::get<0>(GetParam());
        const std::size_t devices = std::get<1>(GetParam());
        use_devices(devices);
        for (unsigned device = 0; device < devices; ++device) {
            change_device(
                [&](ibv_device_attr_ex& attributes) {
                    attributes.orig_attr.max_mr_size = limit.region;
                    attributes.orig_attr.max_qp_wr = limit.queue;
                },
                device);
            ibv_port_attr port = roce_port();
            port.max_msg_sz = limit.message;
            set_port(port, 1, device);
        }
        options_.inline_data = limit.inline_data;
        options_.eager_slots = 4; // all receives have to fit into the queue, too
        connect();
        from_.emplace(left_memory(size));
        to_.emplace(right_memory(size));
        from_->fill(pattern(size));
    }
    [[nodiscard]] std::size_t regions() const { return from_->memory().state()->rail(0).size(); }

    std::optional<TestMemory> from_;
    std::optional<TestMemory> to_;
};

INSTANTIATE_TEST_SUITE_P(of, Limits,
                         ::testing::Combine(::testing::ValuesIn(limits), ::testing::Values(1, 2)),
                         [](const auto& value) {
                             return std::string(std::get<0>(value.param).name) + "_of_" +
                                    std::to_string(std::get<1>(value.param));
                         });

constexpr std::array<std::size_t, 9> sizes = {0,     1,      1000,    1500,   8192,
                                              10001, 600000, 1200000, 5000000};

TEST_P(Limits, messages_pass_whole) {
    for (const std::size_t count : sizes) {
        SCOPED_TRACE(count);
        // From the end of one region to the begin of the next.
        pass(*from_, *to_, count, 1, region - 700, 2 * region - 300);

        Request sent;
        Request received;
        ASSERT_EQ(left().isend(from_->memory(), from_->data(9), count, 2, sent), code(0));
        for (int i = 0; i < 10; ++i) {
            right().progress();
        }
        ASSERT_EQ(right().irecv(to_->memory(), to_->data(), size, 2, received), code(0));
        EXPECT_EQ(finish(right(), received).bytes, count);
        EXPECT_EQ(finish(left(), sent).error, code(0));
        EXPECT_TRUE(to_->bytes(0, count) == from_->bytes(9, count));
    }
}

TEST_P(Limits, an_offer_is_of_the_whole_receive) {
    std::size_t named = 0;
    for (const auto& chunk :
         to_->memory().state()->rail(0).first(std::min<std::size_t>(8, regions()))) {
        named += chunk.length;
    }
    Request received;
    ASSERT_EQ(right().irecv(to_->memory(), to_->data(), size, 1, received), code(0));
    settle();
    Request sent;
    ASSERT_EQ(left().isend(from_->memory(), from_->data(), named, 1, sent), code(0));
    EXPECT_EQ(finish(right(), received).bytes, named);
    EXPECT_EQ(finish(left(), sent).error, code(0));
    EXPECT_TRUE(to_->bytes(0, named) == from_->bytes(0, named));
}

TEST_P(Limits, many_messages_at_once_pass_whole) {
    constexpr std::size_t count = 50;
    constexpr std::size_t length = 20001;
    std::array<Request, count> sends;
    std::array<Request, count> receives;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = i * length;
        ASSERT_EQ(left().isend(from_->memory(), from_->data(at), length, i % 3, sends[i]), code(0));
        ASSERT_EQ(right().irecv(to_->memory(), to_->data(at), length, i % 3, receives[i]), code(0));
    }
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(finish(left(), sends[i]).error, code(0));
        EXPECT_EQ(finish(right(), receives[i]).error, code(0));
    }
    EXPECT_TRUE(to_->bytes(0, count * length) == from_->bytes(0, count * length));
}

TEST_P(Limits, memory_is_written_and_read_whole) {
    constexpr std::size_t most = 8 * region - 8192; // wherever in a page it begins
    const TestMemory theirs = right_memory(most);
    const auto remote = theirs.memory().remote();
    ASSERT_TRUE(remote.ok()) << remote.message();
    constexpr std::size_t length = most - 12345;
    Request put;
    ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(3), length, *remote, 12345, 6, put),
              code(0));
    EXPECT_EQ(finish(left(), put).error, code(0));
    EXPECT_EQ(next_notification(right()), 6);
    EXPECT_TRUE(theirs.bytes(12345, length) == from_->bytes(3, length));

    Request get;
    const TestMemory back = left_memory(most);
    ASSERT_EQ(left().iget(back.memory(), back.data(1), length, *remote, 12345, get), code(0));
    EXPECT_EQ(finish(left(), get).error, code(0));
    EXPECT_TRUE(back.bytes(1, length) == from_->bytes(3, length));
}

TEST_P(Limits, memory_of_more_than_eight_regions_is_not_offered_whole) {
    const auto remote = to_->memory().remote();
    EXPECT_EQ(remote.code(), code(regions() > 8 ? EOVERFLOW : 0)) << remote.message();
    EXPECT_EQ(regions() > 8, std::get<0>(GetParam()).region < size / 8);
}

} // namespace
} // namespace rdmabuf::testing
