// SPDX-License-Identifier: BSD-3-Clause
#include "transport_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

namespace rdmabuf::testing {

TestMemory::TestMemory(const Endpoint& endpoint, Allocator& allocator, Kind kind, std::size_t size,
                       Access access) {
    std::uintptr_t address = 0;
    if (kind == Kind::host) {
        host_ = std::make_shared<std::vector<std::byte>>(size);
        address = reinterpret_cast<std::uintptr_t>(host_->data());
    } else {
        buffer_.emplace(allocator.allocate(size));
        address = buffer_->address();
    }
    auto memory = endpoint.register_memory(reinterpret_cast<const void*>(address), size, access);
    EXPECT_TRUE(memory.ok()) << memory.message();
    memory_.emplace(*std::move(memory));
    EXPECT_EQ(memory_->host(), kind == Kind::host);
}

void TestMemory::fill(std::span<const std::byte> bytes, std::size_t offset) {
    buffer_ ? buffer_->copy_in(offset, bytes)
            : static_cast<void>(std::copy(bytes.begin(), bytes.end(),
                                          host_->begin() + static_cast<std::ptrdiff_t>(offset)));
}

std::vector<std::byte> TestMemory::bytes(std::size_t offset, std::size_t count) const {
    std::vector<std::byte> result(count);
    if (buffer_) {
        buffer_->copy_out(offset, result);
    } else {
        std::copy_n(host_->begin() + static_cast<std::ptrdiff_t>(offset), count, result.begin());
    }
    return result;
}

TransportTest::TransportTest() : memfds_(make_memfd_exporter()) {
    resolver_.add(memfds_);
}

TransportTest::~TransportTest() {
    disconnect();
}

void TransportTest::use_devices(std::size_t count) {
    devices_ = count;
    ASSERT_EQ(softverbs_reset("default", static_cast<unsigned>(count)), 0);
}

void TransportTest::open() {
    std::vector<Context> contexts;
    for (const Device& device : DeviceList()) {
        if (contexts.size() < devices_) {
            contexts.emplace_back(device);
        }
    }
    auto left = Endpoint::open(contexts, resolver_, options_);
    ASSERT_TRUE(left.ok()) << left.message();
    left_end_.emplace(*std::move(left));
    auto right = Endpoint::open(contexts, resolver_, options_);
    ASSERT_TRUE(right.ok()) << right.message();
    right_end_.emplace(*std::move(right));
}

void TransportTest::connect() {
    ASSERT_NO_FATAL_FAILURE(open());
    transport::Listener listener = listen();
    ASSERT_NO_FATAL_FAILURE(connect_to(listener));
    ASSERT_EQ(left_->rails(), devices_ * options_.queue_pairs_per_device);
}

transport::Listener TransportTest::listen() const {
    auto listener = right_end_->listen("127.0.0.1");
    EXPECT_TRUE(listener.ok()) << listener.message();
    return *std::move(listener);
}

void TransportTest::connect_to(transport::Listener& listener) {
    auto connector = left_end_->start_connect(listener.handle());
    ASSERT_TRUE(connector.ok()) << connector.message();
    ASSERT_EQ(meet(*connector, listener), code(0))
        << connector->error_info().message() << listener.error_info().message();
}

void TransportTest::disconnect() {
    left_.reset();
    right_.reset();
    left_end_.reset();
    right_end_.reset();
    host_memory_.clear();
}

bool TransportTest::is_free(std::mutex& mutex) {
    bool free = false;
    std::thread([&] {
        const std::unique_lock lock(mutex, std::try_to_lock);
        free = lock.owns_lock();
    }).join();
    return free;
}

std::error_code TransportTest::meet(transport::Connector& connector,
                                    transport::Listener& listener) {
    std::error_code error;
    const auto ended = [&] {
        error = left_ ? code(0) : connector.try_connect(left_);
        if (!right_ && (!error || error == code(EAGAIN))) {
            error = listener.try_accept(right_);
        }
        return (left_ && right_) || (error && error != code(EAGAIN));
    };
    return eventually(ended) ? error : code(ETIMEDOUT);
}

TestMemory TransportTest::memory_of(const Endpoint& endpoint, std::size_t size, Kind kind,
                                    Access access) {
    TestMemory memory(endpoint, *memfds_, kind, size, access);
    host_memory_.push_back(memory.host());
    return memory;
}
TestMemory TransportTest::left_memory(std::size_t size, Kind kind, Access access) {
    return memory_of(*left_end_, size, kind, access);
}
TestMemory TransportTest::right_memory(std::size_t size, Kind kind, Access access) {
    return memory_of(*right_end_, size, kind, access);
}

Completion TransportTest::finish(Channel& channel, Request request) {
    Completion completion;
    const auto done = [&] {
        completion = channel.test(request);
        return completion.done;
    };
    EXPECT_TRUE(eventually(done, [&] { (&channel == &*left_ ? right_ : left_)->progress(); }))
        << "the request has not ended";
    return completion;
}

std::optional<std::uint64_t> TransportTest::next_notification(Channel& channel) {
    std::optional<std::uint64_t> value;
    static_cast<void>(eventually([&] {
        left_->progress();
        right_->progress();
        value = channel.notification();
        return value.has_value();
    }));
    return value;
}

void TransportTest::settle() {
    settle([&] {
        left_->progress();
        right_->progress();
    });
}

void TransportTest::settle(const std::function<void()>& step) {
    // SOFTVERBS_DISORDER delays each packet by less than a millisecond. So a packet that was sent
    // before a round has arrived at the end of the round, also if this thread does not run for some
    // time. Packets that are sent in a round arrive in the next one.
    const auto delay = std::getenv("SOFTVERBS_DISORDER") != nullptr ? 1ms : 0ms;
    for (int round = 0; round < 10; ++round) {
        const auto end = std::chrono::steady_clock::now() + delay;
        bool arrived = false;
        for (int i = 0; i < 10 || !arrived; ++i) {
            arrived = std::chrono::steady_clock::now() >= end;
            step();
        }
    }
}

Completion TransportTest::after_a_while(Channel& channel, Request request) {
    Completion completion;
    for (int i = 0; i < 1000 && !completion.done; ++i) {
        completion = channel.test(request);
        left_->progress();
        right_->progress();
    }
    return completion;
}

void TransportTest::pass(const TestMemory& from, const TestMemory& to, std::size_t count, Tag tag,
                         std::size_t from_offset, std::size_t to_offset) {
    Request send;
    Request receive;
    ASSERT_EQ(right_->irecv(to.memory(), to.data(to_offset), count, tag, receive), code(0));
    ASSERT_EQ(left_->isend(from.memory(), from.data(from_offset), count, tag, send), code(0));
    const Completion received = finish(*right_, receive);
    EXPECT_EQ(received.error, code(0)) << received.error.message();
    EXPECT_EQ(received.bytes, count);
    const Completion sent = finish(*left_, send);
    EXPECT_EQ(sent.error, code(0)) << sent.error.message();
    EXPECT_EQ(sent.bytes, count);
    EXPECT_TRUE(to.bytes(to_offset, count) == from.bytes(from_offset, count));
}

} // namespace rdmabuf::testing
