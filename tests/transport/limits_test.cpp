// SPDX-License-Identifier: BSD-3-Clause
// Devices with small limits: memory needs many regions, messages need many work requests, and send
// queues are full.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "features_fixture.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {
namespace {

struct Limit {
    const char* name;
    std::uint64_t region;
    std::uint32_t message;
    int queue;
    std::uint32_t inline_data;
};
/// Longer than the bounce buffers of the endpoint, and shorter than the memory of these tests.
constexpr std::uint64_t region = 524288;
constexpr std::uint64_t no_region_limit = std::uint64_t{1} << 40U;
constexpr std::uint32_t no_message_limit = std::uint32_t{1} << 30U;
constexpr std::array<Limit, 5> limits = {{{"regions", region, no_message_limit, 4096, 128},
                                          {"messages", no_region_limit, 10000, 4096, 128},
                                          {"queues", no_region_limit, no_message_limit, 64, 128},
                                          {"no_inline", no_region_limit, no_message_limit, 4096, 0},
                                          {"all", region, 10000, 64, 0}}};

class Limits : public FeaturesTest,
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
        options_.receive_buffers = 16;
        options_.send_buffers = 64;
        connect_with_memory(size);
    }
    [[nodiscard]] std::size_t regions() const { return from_->memory().state()->rail(0).size(); }
};

INSTANTIATE_TEST_SUITE_P(of, Limits,
                         ::testing::Combine(::testing::ValuesIn(limits), ::testing::Values(1, 2)),
                         [](const auto& value) {
                             return std::string(std::get<0>(value.param).name) + "_of_" +
                                    std::to_string(std::get<1>(value.param));
                         });

constexpr std::array<std::size_t, 9> sizes = {0,     1,      1000,    1500,   8192,
                                              10001, 600000, 1200000, 5000000};

TEST_P(Limits, messages_arrive_unchanged) {
    for (const std::size_t count : sizes) {
        SCOPED_TRACE(count);
        // From the end of one region to the beginning of the next.
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

TEST_P(Limits, a_message_uses_all_regions_of_an_advertisement) {
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

TEST_P(Limits, memory_of_the_peer_is_written_and_read_unchanged) {
    constexpr std::size_t most = 8 * region - 8192; // for any offset of the memory in a page
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

    // A short write over the end of a region of the peer, from within one region of this side.
    const std::size_t at =
        std::min<std::size_t>(theirs.memory().state()->rail(0).front().length - 500, most - 1000);
    ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(), 1000, *remote, at, 7, put),
              code(0));
    ASSERT_EQ(finish(left(), put).error, code(0)) << left().reason();
    EXPECT_EQ(next_notification(right()), 7);
    EXPECT_TRUE(theirs.bytes(at, 1000) == from_->bytes(0, 1000));
}

TEST_P(Limits, memory_of_more_than_eight_regions_has_no_descriptor) {
    const auto remote = to_->memory().remote();
    EXPECT_EQ(remote.code(), code(regions() > 8 ? EOVERFLOW : 0)) << remote.message();
    EXPECT_EQ(regions() > 8, std::get<0>(GetParam()).region < size / 8);
}

using PortLimits = TransportTest;

TEST_F(PortLimits, also_limit_the_length_of_eager_messages) {
    ibv_port_attr port = roce_port();
    port.max_msg_sz = 10000;
    set_port(port);
    options_.eager_limit = 20000;
    connect();
    TestMemory from = left_memory(30000);
    const TestMemory to = right_memory(30000);
    from.fill(pattern(30000));
    for (const std::size_t count : {std::size_t{9984}, std::size_t{9985}, std::size_t{20000}}) {
        SCOPED_TRACE(count);
        pass(from, to, count);
    }
}

TEST_F(PortLimits, also_limit_the_length_of_work_requests_of_a_list) {
    ibv_port_attr port = roce_port();
    port.max_msg_sz = 10000;
    set_port(port);
    connect();
    TestMemory from = left_memory(30000);
    const TestMemory to = right_memory(30000);
    from.fill(pattern(30000));
    const auto remote = to.memory().remote();
    ASSERT_TRUE(remote.ok()) << remote.message();
    std::array<transport::TransferEntry, 2> entries;
    entries.fill(
        {.memory = &from.memory(), .address = from.data(), .length = 10001, .remote = &*remote});
    entries[0].length = 10;
    forget_calls();
    Request list;
    ASSERT_EQ(left().iput_list(entries, list, pattern(8)), code(0));
    ASSERT_EQ(finish(left(), list).error, code(0)) << left().reason();
    EXPECT_TRUE(next_notification(right()));
    EXPECT_TRUE(to.bytes(0, 10001) == from.bytes(0, 10001));
    std::vector<std::uint32_t> lengths;
    for (const Send& send : record().sends) {
        if (send.request.opcode == IBV_WR_RDMA_WRITE && !send.entries.empty()) { // no keepalive
            lengths.push_back(send.entries.front().length);
        }
    }
    EXPECT_THAT(lengths, ::testing::ElementsAre(10, 10000, 1));
}

using SharedReceiveQueues = TransportTest;

TEST_F(SharedReceiveQueues, are_named_in_the_error_if_a_device_has_none) {
    for (const char* const profile : {"irdma", "efa"}) {
        SCOPED_TRACE(profile);
        ASSERT_EQ(softverbs_reset(profile, 1), 0);
        const auto opened = Endpoint::open(Context::open_first(), resolver_, options_);
        EXPECT_EQ(opened.code(), code(EOPNOTSUPP));
        EXPECT_EQ(opened.reason(), "soft0 has no shared receive queues, which the transport needs");
    }
}

using CompletionQueues = FeaturesTest;

// The providers hns, qedr, erdma, siw and others have no ibv_resize_cq(3).
TEST_F(CompletionQueues, that_cannot_be_resized_have_room_for_many_channels) {
    constexpr std::size_t channels = 8;
    options_.receive_buffers = 16;
    options_.send_depth = 32;
    change_device([&](ibv_device_attr_ex& attributes) {
        attributes.orig_attr.max_cqe =
            static_cast<int>(options_.receive_buffers + transport::loopback_completions +
                             channels * options_.send_depth);
    });
    for (const unsigned endpoint : {1U, 2U}) {
        ASSERT_EQ(softverbs_fail_call("ibv_resize_cq", endpoint, EOPNOTSUPP), 0);
    }
    open();
    ASSERT_EQ(softverbs_pending_faults(), 0);
    ASSERT_EQ(softverbs_fail_call("ibv_resize_cq", 1, EOPNOTSUPP), 0);
    transport::Listener listener = listen();
    std::vector<std::pair<Channel, Channel>> connected;
    for (std::size_t i = 0; i < channels; ++i) {
        connected.push_back(connect_another(left_end(), listener));
    }
    auto connector = left_end().start_connect(listener.handle());
    ASSERT_TRUE(connector.ok()) << connector.message();
    EXPECT_EQ(meet(*connector, listener), code(ENOSPC));
    EXPECT_EQ(softverbs_pending_faults(), 1); // ibv_resize_cq() was not called.
    softverbs_clear_faults();
}

} // namespace
} // namespace rdmabuf::testing
