// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {

using transport::full_mask;
using transport::MatchedMessage;
using transport::MessageInfo;

/// Two endpoints with a channel, memory at both ends, and a third endpoint for tests of receives
/// from any channel.
class FeaturesTest : public TransportTest {
  protected:
    void TearDown() override { disconnect_all(); }

    static constexpr std::size_t memory_size = std::size_t{1} << 20U;

    /// Connects the left and the right endpoint, and registers memory at both ends.
    void connect_with_memory(std::size_t size = memory_size,
                             Access access = Endpoint::default_access) {
        ASSERT_NO_FATAL_FAILURE(connect());
        from_.emplace(left_memory(size, Kind::host, access));
        to_.emplace(right_memory(size, Kind::host, access));
        from_->fill(pattern(size));
    }
    /// Destroys what connect_with_memory() has created.
    void disconnect_all() {
        from_.reset();
        to_.reset();
        third_.reset();
        third_end_.reset();
        disconnect();
    }
    /// Makes progress at all endpoints until @p done returns true. Fails the test if it does not
    /// within the time limit.
    template <class Done>
    [[nodiscard]] bool progress_until(const Done& done) {
        const bool became_true = eventually(done, [&] { progress_all(); });
        EXPECT_TRUE(became_true) << "the condition has not become true";
        return became_true;
    }
    void progress_all() {
        left_end().progress();
        right_end().progress();
        if (third_end_) {
            third_end_->progress();
        }
    }
    /// Makes progress at all endpoints until a request has ended.
    /// @param end  the channel of the request, or the endpoint of a receive from any channel
    template <class End>
    Completion complete(End& end, Request& request) {
        Completion completion;
        static_cast<void>(progress_until([&] {
            completion = end.test(request);
            return completion.done;
        }));
        return completion;
    }
    /// Makes progress until the right end has a notification. Returns its bytes.
    [[nodiscard]] std::vector<std::byte> next() {
        std::vector<std::byte> bytes(transport::max_notification);
        static_cast<void>(progress_until([&] {
            const auto size = right().notification(bytes);
            if (size) {
                bytes.resize(*size);
            } else {
                EXPECT_EQ(size.code(), code(EAGAIN));
            }
            return size.ok();
        }));
        return bytes;
    }
    /// Connects one more channel. The first channel of the result belongs to @p from.
    std::pair<Channel, Channel> connect_another(const Endpoint& from,
                                                transport::Listener& listener) {
        auto connector = from.start_connect(listener.handle());
        EXPECT_TRUE(connector.ok()) << connector.message();
        std::optional<Channel> connected;
        std::optional<Channel> accepted;
        const bool ready = progress_until([&] {
            const std::error_code near = connected ? code(0) : connector->try_connect(connected);
            const std::error_code far = accepted ? code(0) : listener.try_accept(accepted);
            if ((near && near != code(EAGAIN)) || (far && far != code(EAGAIN))) {
                ADD_FAILURE() << connector->error_info().message()
                              << listener.error_info().message();
                return true;
            }
            return connected && accepted;
        });
        if (!ready || !connected || !accepted) {
            throw std::runtime_error("the endpoints cannot be connected");
        }
        return {*std::move(connected), *std::move(accepted)};
    }
    /// Opens the third endpoint and connects it to the right one.
    void connect_third() {
        auto opened = Endpoint::open(Context::open_first(), resolver_, options_);
        ASSERT_TRUE(opened.ok()) << opened.message();
        third_end_.emplace(*std::move(opened));
        transport::Listener listener = listen();
        third_.emplace(connect_another(*third_end_, listener));
    }
    /// The channel of the third endpoint, and its counterpart at the right endpoint.
    [[nodiscard]] Channel& third() { return third_->first; }
    [[nodiscard]] Channel& right_of_third() { return third_->second; }

    // Requests on the memory of connect_with_memory()

    [[nodiscard]] Request send(std::size_t length, Tag tag = 1, std::size_t offset = 0,
                               void* context = nullptr) {
        Request request;
        EXPECT_EQ(left().isend(from_->memory(), from_->data(offset), length, tag, request, context),
                  code(0));
        return request;
    }
    [[nodiscard]] Request receive(std::size_t length, Tag tag = 1, std::size_t offset = 0,
                                  void* context = nullptr) {
        Request request;
        EXPECT_EQ(right().irecv(to_->memory(), to_->data(offset), length, tag, request, context),
                  code(0));
        return request;
    }
    /// Returns true if the receiver has @p length bytes at @p offset that are equal to those of the
    /// sender at @p sent.
    [[nodiscard]] bool received(std::size_t offset, std::size_t sent, std::size_t length) const {
        return to_->bytes(offset, length) == from_->bytes(sent, length);
    }
    void clear_received() { to_->fill(std::vector<std::byte>(to_->size())); }

    /// Returns the descriptor of the memory of the right end.
    [[nodiscard]] RemoteMemory remote() const {
        const auto descriptor = to_->memory().remote();
        EXPECT_TRUE(descriptor.ok()) << descriptor.message();
        return *descriptor;
    }

    std::optional<TestMemory> from_;
    std::optional<TestMemory> to_;
    std::optional<Endpoint> third_end_;
    std::optional<std::pair<Channel, Channel>> third_;
};

} // namespace rdmabuf::testing
