// SPDX-License-Identifier: BSD-3-Clause
// Channels with several queue pairs on each device.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <string_view>
#include <vector>

#include "raw_connector.hpp"
#include "recorder/verbs_recorder.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::Immediate;

class QueuePairs : public RawPeerTest {
  protected:
    /// Connects two endpoints with these numbers of queue pairs on each device.
    void connect_with(std::uint32_t of_left, std::uint32_t of_right) {
        EndpointOptions options = options_;
        // The sender writes the data, also if a message is sent before the advertisement of its
        // receive has arrived.
        options.read_long_messages = false;
        options.queue_pairs_per_device = of_right;
        open();
        auto right = Endpoint::open(left_end().protection_domain().context(), resolver_, options);
        ASSERT_TRUE(right.ok()) << right.message();
        options.queue_pairs_per_device = of_left;
        auto left = Endpoint::open(left_end().protection_domain().context(), resolver_, options);
        ASSERT_TRUE(left.ok()) << left.message();
        left_end_.emplace(*std::move(left));
        right_end_.emplace(*std::move(right));
        transport::Listener listener = listen();
        ASSERT_NO_FATAL_FAILURE(connect_to(listener));
    }
    /// Returns the number of posted RDMA writes with immediate data.
    [[nodiscard]] static std::size_t immediate_writes() {
        return static_cast<std::size_t>(std::ranges::count_if(record().sends, [](const Send& send) {
            return send.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        }));
    }
    /// Returns the flow labels with which queue pairs were connected.
    [[nodiscard]] static std::multiset<std::uint32_t> flow_labels() {
        std::multiset<std::uint32_t> labels;
        for (const QpModification& modification : record().modifications) {
            if ((modification.mask & IBV_QP_AV) != 0) {
                labels.insert(modification.attributes.ah_attr.grh.flow_label);
            }
        }
        return labels;
    }
};

TEST_F(QueuePairs, are_as_many_as_both_ends_permit) {
    for (const auto& [of_left, of_right, expected] :
         {std::array{1U, 1U, 1U}, {3U, 2U, 2U}, {2U, 3U, 2U}, {4U, 4U, 4U}, {1U, 4U, 1U}}) {
        SCOPED_TRACE(std::to_string(of_left) + " and " + std::to_string(of_right));
        disconnect();
        connect_with(of_left, of_right);
        EXPECT_EQ(left().rails(), expected);
        EXPECT_EQ(right().rails(), expected);
        EXPECT_EQ(softverbs_live(SOFTVERBS_QP), 2 * expected) << "those not used are destroyed";
        TestMemory from = left_memory(1U << 20U);
        const TestMemory to = right_memory(1U << 20U);
        from.fill(pattern(1U << 20U));
        for (int i = 0; i < 3; ++i) {
            forget_calls();
            Request receive;
            Request send;
            ASSERT_EQ(right().irecv(to.memory(), to.data(), to.size(), 1, receive), code(0));
            settle();
            ASSERT_EQ(left().isend(from.memory(), from.data(), from.size(), 1, send), code(0));
            EXPECT_EQ(finish(right(), receive).bytes, to.size());
            EXPECT_EQ(finish(left(), send).error, code(0));
            EXPECT_TRUE(to.bytes(0, to.size()) == from.bytes(0, to.size()));
            EXPECT_EQ(immediate_writes(), expected);
        }
    }
}

TEST_F(QueuePairs, are_one_to_four) {
    open();
    for (const std::uint32_t count : {0U, 5U, UINT32_MAX}) {
        const auto refused = Endpoint::open(left_end().protection_domain().context(), resolver_,
                                            {.queue_pairs_per_device = count});
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error(), EINVAL);
        EXPECT_THAT(refused.message(),
                    ::testing::HasSubstr("queue_pairs_per_device is from 1 to 4"));
    }
}

TEST_F(QueuePairs, are_up_to_sixteen_on_up_to_eight_devices) {
    const Context device = Context::open_first();
    const auto open_with = [&](std::size_t devices, std::uint32_t queue_pairs) {
        return Endpoint::open(std::vector(devices, device), resolver_,
                              {.queue_pairs_per_device = queue_pairs});
    };
    EXPECT_TRUE(open_with(8, 2).ok());
    EXPECT_TRUE(open_with(4, 4).ok());
    const auto devices = open_with(9, 1);
    EXPECT_EQ(devices.error(), EINVAL);
    EXPECT_THAT(devices.message(), ::testing::HasSubstr("an endpoint has 1 to 8 devices"));
    const auto queue_pairs = open_with(8, 3);
    EXPECT_EQ(queue_pairs.error(), EINVAL);
    EXPECT_THAT(queue_pairs.message(), ::testing::HasSubstr("a channel has up to 16 queue pairs"));
}

TEST_F(QueuePairs, are_not_created_on_a_device_whose_port_goes_down_meanwhile) {
    use_devices(2);
    open();
    transport::Listener listener = listen();
    before_each_call([](std::string_view verb) {
        if (verb.starts_with("ibv_create_qp")) { // the first one is on the first device
            EXPECT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_DOWN), 0);
        }
    });
    ASSERT_NO_FATAL_FAILURE(connect_to(listener));
    EXPECT_EQ(left_->rails(), 1);
    EXPECT_EQ(right_->rails(), 1);
    ASSERT_EQ(softverbs_set_port_state(1, 1, IBV_PORT_ACTIVE), 0);
}

TEST_F(QueuePairs, of_a_device_have_consecutive_flow_labels) {
    options_.queue_pairs_per_device = 3;
    options_.flow_label = 0xffffe;
    use_devices(2);
    forget_calls();
    connect();
    // Two devices at each of the two ends.
    const std::multiset<std::uint32_t> expected = {
        0, 0, 0, 0, 0xffffe, 0xffffe, 0xffffe, 0xffffe, 0xfffff, 0xfffff, 0xfffff, 0xfffff};
    EXPECT_EQ(flow_labels(), expected);
    disconnect();
    options_.flow_label = 0;
    forget_calls();
    connect();
    EXPECT_EQ(flow_labels().count(0), 12);
}

TEST_F(QueuePairs, use_the_gid_index_and_the_pkey_index_of_the_options) {
    for (const auto& [gid_index, pkey_index] : {std::pair(0, 0), std::pair(1, 3), {0, 7}}) {
        SCOPED_TRACE(gid_index);
        disconnect();
        options_.gid_index = static_cast<std::uint8_t>(gid_index);
        options_.pkey_index = static_cast<std::uint16_t>(pkey_index);
        open();
        forget_calls();
        connect();
        const TestMemory device = left_memory(4096, Kind::dmabuf); // creates a loopback queue pair
        const auto prepared = left_end().prepare_channel();        // creates a UD queue pair
        ASSERT_TRUE(prepared.ok()) << prepared.message();
        std::size_t gids = 0;
        std::size_t pkeys = 0;
        for (const QpModification& modification : record().modifications) {
            if ((modification.mask & IBV_QP_AV) != 0) {
                EXPECT_EQ(modification.attributes.ah_attr.grh.sgid_index, gid_index);
                ++gids;
            }
            if ((modification.mask & IBV_QP_PKEY_INDEX) != 0) {
                EXPECT_EQ(modification.attributes.pkey_index, pkey_index);
                ++pkeys;
            }
        }
        EXPECT_EQ(gids, 3U);  // two of the channel, one loopback queue pair
        EXPECT_EQ(pkeys, 5U); // also a UD queue pair, and a queue pair that is not connected
    }
}

TEST_F(QueuePairs, share_the_completion_queue_of_their_device) {
    // The reserved completions exceed the first completion queue, so that it must grow.
    options_.queue_pairs_per_device = 4;
    options_.send_depth = 64;
    use_devices(2);
    const std::size_t before = softverbs_live(SOFTVERBS_CQ);
    connect();
    EXPECT_EQ(softverbs_live(SOFTVERBS_CQ), before + 4);
    transport::detail::SharedState& shared = left_->endpoint()->shared;
    const auto& rail = *shared.rails[1];
    const std::uint32_t first = rail.cq_reserved;
    ASSERT_EQ(softverbs_fail_call("ibv_resize_cq", 2, ENOMEM), 0);
    EXPECT_THROW(shared.reserve_completions(2, 8), Error);
    EXPECT_EQ(shared.rails[0]->cq_reserved, first) << "the second device has failed";
    transport::Listener listener = listen();
    std::vector<Channel> channels;
    for (int i = 0; i < 4; ++i) {
        channels.push_back(*std::move(left_));
        channels.push_back(*std::move(right_));
        left_.reset();
        right_.reset();
        ASSERT_NO_FATAL_FAILURE(connect_to(listener));
    }
    EXPECT_GE(rail.cq_depth, rail.cq_reserved);
    EXPECT_EQ(rail.cq_reserved, first + 16 * rail.send_depth);
    left_.reset();
    right_.reset();
    channels.erase(channels.begin() + 2, channels.end());
    EXPECT_EQ(rail.cq_reserved, first);
}

TEST_F(QueuePairs, except_the_first_one_carry_no_messages) {
    options_.queue_pairs_per_device = 2;
    ASSERT_NO_FATAL_FAILURE(connect_raw(2));
    EXPECT_EQ(channel_->rails(), 2);
    // A fence on the second queue pair is valid, a fence on the first one is not.
    raw_->write_immediate({.fence = true, .request = Immediate::max_request}, 1);
    for (int i = 0; i < 100; ++i) {
        right_end().progress();
    }
    EXPECT_EQ(channel_->state(), code(0));
    raw_->write_immediate({.fence = true, .request = 1}, 0);
    for (int i = 0; i < 1000 && channel_->state() == code(0); ++i) {
        right_end().progress();
    }
    EXPECT_EQ(channel_->state(), code(EPROTO));
    EXPECT_THAT(channel_->reason(), ::testing::HasSubstr("fence"));
}

TEST_F(QueuePairs, each_end_one_fragment_of_a_message) {
    options_.queue_pairs_per_device = 2;
    ASSERT_NO_FATAL_FAILURE(connect_raw(2));
    const TestMemory to = right_memory(100000);
    Request receive;
    ASSERT_EQ(channel_->irecv(to.memory(), to.data(), to.size(), 1, receive), code(0));
    const auto number = raw_->receive().as<transport::detail::CtsBody>().request;
    // The second queue pair ends its fragment twice, and the first one never does.
    raw_->write_immediate({.rails = 2, .request = number}, 1);
    raw_->write_immediate({.rails = 2, .request = number}, 1);
    EXPECT_EQ(wait(*channel_, receive).error, code(EPROTO));
    EXPECT_EQ(channel_->state(), code(EPROTO));
}

} // namespace
} // namespace rdmabuf::testing
