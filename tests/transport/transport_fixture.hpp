// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/transport.hpp>

#include "softverbs_fixture.hpp"
#include "waiting.hpp"

namespace rdmabuf::testing {

using namespace std::chrono_literals;
using transport::Channel;
using transport::Completion;
using transport::Endpoint;
using transport::EndpointOptions;
using transport::Memory;
using transport::RemoteMemory;
using transport::Request;
using transport::Tag;

/// Returns @p error as an error code of the functions of a channel.
[[nodiscard]] inline std::error_code code(int error) {
    return {error, std::system_category()};
}

/// Registered memory for requests. Of Kind::host, host() is the memory. Keep it until the endpoint
/// is destroyed: a device may execute an RDMA write of a peer later than the peer has its
/// completion, and the cache of the endpoint keeps the memory registered.
class TestMemory {
  public:
    enum class Kind : std::uint8_t { host, dmabuf };

    TestMemory(const Endpoint& endpoint, Allocator& allocator, Kind kind, std::size_t size,
               Access access = Endpoint::default_access);

    [[nodiscard]] const Memory& memory() const { return *memory_; }
    [[nodiscard]] std::byte* data(std::size_t offset = 0) const {
        return reinterpret_cast<std::byte*>(memory_->address()) + offset;
    }
    [[nodiscard]] std::size_t size() const { return memory_->length(); }
    void fill(std::span<const std::byte> bytes, std::size_t offset = 0);
    [[nodiscard]] std::vector<std::byte> bytes(std::size_t offset, std::size_t count) const;

    /// Destroys the Memory. The bytes remain.
    void deregister() { memory_.reset(); }

    using HostMemory = std::shared_ptr<std::vector<std::byte>>;
    [[nodiscard]] const HostMemory& host() const { return host_; }

  private:
    HostMemory host_;
    std::optional<Buffer> buffer_;
    std::optional<Memory> memory_;
};

/// Two endpoints of one process, and a channel between them.
class TransportTest : public SoftverbsTest {
  protected:
    /// The options of both endpoints. Tests change them before connect().
    EndpointOptions options_ = {.handshake = 20'000ms, .linger = 100ms};
    std::size_t devices_ = 1;

    TransportTest();
    ~TransportTest() override;
    /// Uses @p count software devices.
    void use_devices(std::size_t count);
    void open();
    void connect();
    /// Destroys the channels and the endpoints, so that connect() can be called again.
    void disconnect();
    /// Returns true if no thread, also not the calling one, has locked @p mutex.
    [[nodiscard]] static bool is_free(std::mutex& mutex);
    /// Returns a listener of the right endpoint.
    [[nodiscard]] transport::Listener listen() const;
    /// Connects a channel of both endpoints.
    void connect_to(transport::Listener& listener);
    /// Advances both ends until both have a channel. @return the first error
    [[nodiscard]] std::error_code meet(transport::Connector& connector,
                                       transport::Listener& listener);

    [[nodiscard]] Endpoint& left_end() { return *left_end_; }
    [[nodiscard]] Endpoint& right_end() { return *right_end_; }
    [[nodiscard]] Channel& left() { return *left_; }
    [[nodiscard]] Channel& right() { return *right_; }

    using Kind = TestMemory::Kind;
    /// Returns memory of @p endpoint. Host memory is freed by disconnect().
    [[nodiscard]] TestMemory memory_of(const Endpoint& endpoint, std::size_t size,
                                       Kind kind = Kind::host,
                                       Access access = Endpoint::default_access);
    [[nodiscard]] TestMemory left_memory(std::size_t size, Kind kind = Kind::host,
                                         Access access = Endpoint::default_access);
    [[nodiscard]] TestMemory right_memory(std::size_t size, Kind kind = Kind::host,
                                          Access access = Endpoint::default_access);

    /// Makes progress at both ends until @p request of @p channel is done; fails the test if it is
    /// not done within the time limit.
    Completion finish(Channel& channel, Request request);
    /// Waits for a request without progress at the other end.
    static Completion wait(Channel& channel, Request request,
                           std::chrono::milliseconds timeout = time_limit) {
        return channel.wait(request, timeout);
    }
    /// Makes progress at both ends until @p channel has a notification. Returns its value, or
    /// std::nullopt if there is none within the time limit.
    [[nodiscard]] std::optional<std::uint64_t> next_notification(Channel& channel);
    /// Makes progress at both ends until all messages that they have sent have arrived.
    void settle();
    /// Calls @p step until all packets have arrived, also those that the calls send.
    static void settle(const std::function<void()>& step);
    /// Makes some hundred calls of progress at both ends. @return the state of @p request
    [[nodiscard]] Completion after_a_while(Channel& channel, Request request);
    /// Sends @p count bytes from left to right, and compares the received bytes.
    void pass(const TestMemory& from, const TestMemory& to, std::size_t count, Tag tag = 1,
              std::size_t from_offset = 0, std::size_t to_offset = 0);

    std::shared_ptr<Allocator> memfds_;
    Resolver resolver_;
    std::vector<TestMemory::HostMemory> host_memory_;
    std::optional<Endpoint> left_end_;
    std::optional<Endpoint> right_end_;
    std::optional<Channel> left_;
    std::optional<Channel> right_;
};

} // namespace rdmabuf::testing
