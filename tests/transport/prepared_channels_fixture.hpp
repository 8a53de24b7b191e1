// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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
    /// Makes progress at one end until both ends together have sent @p count datagrams. An end
    /// that waits for its peer sends one in each tenth of EndpointOptions::heartbeat.
    static void progress_for_datagrams(std::size_t count, const Endpoint& endpoint) {
        const std::size_t before = record().sends.size();
        EXPECT_TRUE(eventually([&] { return record().sends.size() >= before + count; },
                               [&] {
                                   // An endpoint looks at the clock once in 256 calls.
                                   for (int i = 0; i < 256; ++i) {
                                       endpoint.progress();
                                   }
                               }));
    }
    /// Makes progress at one end until all datagrams have arrived.
    static void settle_at(const Endpoint& endpoint) {
        settle([&] { endpoint.progress(); });
    }
    /// Waits until @p channel has failed. @return its state
    static std::error_code end_of(Channel& channel) {
        static_cast<void>(
            eventually([&] { return channel.state().value() != 0; }, [&] { channel.progress(); }));
        return channel.state();
    }

    // address() remains valid after connect().
    std::optional<PreparedChannel> left_prepared_;
    std::optional<PreparedChannel> right_prepared_;
};

} // namespace rdmabuf::testing
