// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport.hpp>

#include "raw_connector.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {

/// Tests of a channel whose peer sends any messages that a test wants.
class Protocol : public RawPeerTest {
  protected:
    using Kind = transport::detail::Kind;
    static constexpr std::uint32_t length = 20000;
    static constexpr Tag tag = 5;

    /// Connects the channel, and allocates memory for its requests.
    void connect_raw() {
        ASSERT_NO_FATAL_FAILURE(RawPeerTest::connect_raw());
        if (!memory_) {
            memory_.emplace(right_memory(1U << 16U));
        }
    }
    /// Makes progress until the messages of the RawConnector, which have arrived, are processed.
    void make_progress() {
        settle([&] { channel_->progress(); });
    }
    /// Expects that the channel fails with EPROTO when @p violate is called.
    template <class Violate>
    void expect_violation(const std::string& what, const Violate& violate) {
        SCOPED_TRACE(what);
        ASSERT_NO_FATAL_FAILURE(connect_raw());
        violate();
        EXPECT_EQ(failure(), code(EPROTO)) << channel_->reason();
        EXPECT_EQ(channel_->close(), code(EPROTO));
    }

    /// Posts a send that needs an RTS.
    [[nodiscard]] Request send() {
        Request request;
        EXPECT_EQ(channel_->isend(memory_->memory(), memory_->data(), length, tag, request),
                  code(0));
        return request;
    }
    /// Posts a receive, which is advertised unless an RTS has arrived.
    [[nodiscard]] Request receive() {
        Request request;
        EXPECT_EQ(channel_->irecv(memory_->memory(), memory_->data(), length, tag, request),
                  code(0));
        make_progress();
        return request;
    }
    /// Posts a send. @return its number in the RTS
    [[nodiscard]] std::uint32_t sent() {
        static_cast<void>(send());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::rts);
        return message.as<RtsBody>().request;
    }
    /// Posts a receive. @return its number in the advertisement
    [[nodiscard]] std::uint32_t advertised() {
        static_cast<void>(receive());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::advertisement);
        return message.as<CtsBody>().request;
    }
    /// Sends an RTS without regions and posts a receive. @return the number of the receive in the
    /// CTS
    [[nodiscard]] std::uint32_t cleared() {
        raw_->send({.kind = Kind::rts, .value = tag}, RtsBody{.length = length, .request = 1}, {});
        make_progress();
        static_cast<void>(receive());
        const auto message = raw_->receive();
        EXPECT_EQ(message.header.kind, Kind::cts);
        EXPECT_EQ(message.header.number, 1);
        return message.as<CtsBody>().request;
    }
    void send_cts(std::uint32_t number, std::uint64_t bytes) {
        raw_->send({.kind = Kind::cts, .number = number},
                   CtsBody{.length = bytes, .request = 7, .chunks = 1, .rails = 1},
                   {raw_->chunk(bytes)});
    }
    void send_advertisement(std::uint32_t request) {
        raw_->send({.kind = Kind::advertisement, .value = tag},
                   CtsBody{.length = length, .request = request, .chunks = 1, .rails = 1},
                   {raw_->chunk(length)});
    }
    void send_eager(std::size_t bytes, Tag message_tag = tag) {
        raw_->send({.kind = Kind::eager, .value = message_tag}, std::vector<std::byte>(bytes));
    }

    std::optional<TestMemory> memory_;
};

} // namespace rdmabuf::testing
