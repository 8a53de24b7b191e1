// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {

using transport::ChannelAddress;
using transport::PreparedChannel;
using transport::detail::Hello;

/// Returns @p address after it was transferred as bytes.
inline ChannelAddress transferred(const ChannelAddress& address) {
    const std::vector<std::byte> bytes(address.bytes().begin(), address.bytes().end());
    auto decoded = ChannelAddress::decode(bytes);
    EXPECT_TRUE(decoded.ok()) << decoded.message();
    return *decoded;
}

class PreparedChannels : public TransportTest {
  protected:
    PreparedChannels() {
        // A device reports a peer that does not respond after 3 retransmissions of 34 ms.
        options_.ack_timeout = 13;
        options_.retry_count = 3;
        options_.heartbeat = 20ms;
    }
    PreparedChannel prepare(const Endpoint& endpoint) {
        auto prepared = endpoint.prepare_channel();
        EXPECT_TRUE(prepared.ok()) << prepared.message();
        return *std::move(prepared);
    }
    static Channel connect(PreparedChannel&& prepared, const ChannelAddress& peer) {
        auto channel = std::move(prepared).connect(transferred(peer));
        EXPECT_TRUE(channel.ok()) << channel.message();
        return *std::move(channel);
    }
    /// Prepares both ends.
    void prepare_ends() {
        left_prepared_.emplace(prepare(left_end()));
        right_prepared_.emplace(prepare(right_end()));
    }
    void connect_left() {
        left_.emplace(connect(std::move(*left_prepared_), right_prepared_->address()));
    }
    void connect_right() {
        right_.emplace(connect(std::move(*right_prepared_), left_prepared_->address()));
    }
    void connect_ends() {
        prepare_ends();
        connect_left();
        connect_right();
    }
    void close_ends() {
        left_.reset();
        right_.reset();
    }
    static void progress_for(std::chrono::milliseconds time, const Endpoint& endpoint) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
            endpoint.progress();
        }
    }
    /// Waits until @p channel has failed. @return its state
    static std::error_code end_of(Channel& channel) {
        const auto end = std::chrono::steady_clock::now() + 30s;
        while (!channel.state() && std::chrono::steady_clock::now() < end) {
            channel.progress();
        }
        return channel.state();
    }

    // address() remains valid after connect().
    std::optional<PreparedChannel> left_prepared_;
    std::optional<PreparedChannel> right_prepared_;
};

} // namespace rdmabuf::testing
