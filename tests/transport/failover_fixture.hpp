// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "features_fixture.hpp"
#include "raw_connector.hpp"
#include "recorder/verbs_recorder.hpp"

namespace rdmabuf::testing {

/// How a queue pair fails.
enum class Failure : std::uint8_t { of_right, of_both, of_port, of_device };

/// Two endpoints whose channel has several queue pairs, which can fail. They are not put on
/// probation.
class Failover : public FeaturesTest {
  protected:
    Failover() {
        options_.ack_timeout = 12; // 17 ms
        options_.retry_count = 7;
        options_.min_fragment = 4096;
        options_.probation = 0ms;
    }

    /// Connects two endpoints with one queue pair on each device.
    void connect_devices(std::size_t devices = 2) {
        disconnect_all();
        devices_ = devices;
        use_devices(devices);
        forget_calls();
        connect_with_memory();
        ASSERT_EQ(left().rails(), devices * options_.queue_pairs_per_device);
    }
    /// Returns the last queue pair of an endpoint on a device.
    /// @param memory  memory of this endpoint
    [[nodiscard]] static ibv_qp* last_queue_pair(const TestMemory& memory, std::size_t device) {
        const auto* const state =
            static_cast<const transport::detail::EndpointState*>(memory.memory().state()->endpoint);
        const ibv_cq* const cq = state->shared.rails[device]->cq.native();
        ibv_qp* pair = nullptr;
        for (std::size_t i = 0; i < record().queue_pairs.size(); ++i) {
            if (record().qps[i].send_cq == cq) {
                pair = record().queue_pairs[i];
            }
        }
        return pair;
    }
    /// Moves the last queue pair of an endpoint on a device to the error state.
    static void fail_queue_pair(const TestMemory& memory, std::size_t device) {
        ibv_qp* const pair = last_queue_pair(memory, device);
        ASSERT_NE(pair, nullptr);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_ERR;
        ASSERT_EQ(ibv_modify_qp(pair, &attributes, IBV_QP_STATE), 0);
    }
    void fail(Failure failure, std::size_t device = 1) {
        if (failure == Failure::of_both) {
            fail_queue_pair(*from_, device);
        }
        if (failure == Failure::of_right || failure == Failure::of_both) {
            fail_queue_pair(*to_, device);
        }
        if (failure == Failure::of_port) {
            ASSERT_EQ(softverbs_set_port_state(static_cast<unsigned>(device), 1, IBV_PORT_DOWN), 0);
        }
        if (failure == Failure::of_device) {
            ASSERT_EQ(softverbs_reset_device(static_cast<unsigned>(device)), 0);
        }
    }
    void some_progress(unsigned calls) {
        for (unsigned i = 0; i < calls; ++i) {
            progress_all();
        }
    }
    /// Sends long messages, during which a queue pair fails.
    void pass_messages(Failure failure) {
        constexpr std::size_t length = 60000;
        constexpr std::size_t count = 12;
        clear_received();
        std::array<Request, count> receives;
        std::array<Request, count> sends;
        for (std::size_t i = 0; i < count; ++i) {
            receives[i] = receive(length, i, i * length);
        }
        settle();
        for (std::size_t i = 0; i < count; ++i) {
            sends[i] = send(length, i, i * length);
        }
        some_progress(2);
        ASSERT_NO_FATAL_FAILURE(fail(failure));
        for (std::size_t i = 0; i < count; ++i) {
            const Completion received = complete(right(), receives[i]);
            EXPECT_EQ(received.error, code(0)) << i << ": " << right().reason();
            EXPECT_EQ(received.bytes, length);
            EXPECT_EQ(complete(left(), sends[i]).error, code(0)) << i << ": " << left().reason();
        }
        EXPECT_TRUE(this->received(0, 0, count * length));
    }
};

/// The right end has a peer that sends the messages of a failover as a test wants.
class FailoverPeer : public RawPeerTest {
  protected:
    using Kind = transport::detail::Kind;

    FailoverPeer() {
        options_.queue_pairs_per_device = 2;
        options_.read_long_messages = false;
    }
    void connect_peer() {
        ASSERT_NO_FATAL_FAILURE(connect_raw(2));
        ASSERT_EQ(channel_->rails(), 2);
        forget_calls();
    }
    void send(Kind kind, std::uint8_t rails = 1, std::uint64_t value = 0,
              std::uint32_t number = 0) {
        raw_->send({.kind = kind, .rails = rails, .number = number, .value = value});
    }
    /// The peer leaves out the second queue pair. @return the number that the channel has sent
    std::uint64_t leave_out() {
        send(Kind::rail_down);
        const auto down = raw_->receive();
        EXPECT_EQ(down.header.kind, Kind::rail_down);
        EXPECT_EQ(down.header.rails, 1);
        EXPECT_EQ(raw_->receive().header.kind, Kind::rail_recovered);
        EXPECT_EQ(channel_->working_rails(), 1);
        return down.header.value;
    }
    /// Expects that the channel fails with EPROTO after each of these, with their names.
    void expect_violations(
        const std::vector<std::pair<const char*, std::function<void()>>>& violations) {
        for (const auto& [what, violate] : violations) {
            SCOPED_TRACE(what);
            ASSERT_NO_FATAL_FAILURE(connect_peer());
            violate();
            EXPECT_EQ(failure(), code(EPROTO)) << channel_->reason();
        }
    }
};

} // namespace rdmabuf::testing
