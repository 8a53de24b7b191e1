// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ends of one process, on softverbs.
#include <array>
#include <cerrno>
#include <span>
#include <vector>

#include <rdmabuf/memory_region.hpp>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

struct Ends {
    TestMemory::Kind from;
    TestMemory::Kind to;
    std::size_t devices;
    std::uint32_t queue_pairs_per_device = 1;
};

class EveryKind : public TransportTest, public ::testing::WithParamInterface<Ends> {
  protected:
    void SetUp() override {
        use_devices(GetParam().devices);
        options_.queue_pairs_per_device = GetParam().queue_pairs_per_device;
        connect();
    }
};

/// The lengths around each limit: 0, inline data, copied and gathered eager messages, rendezvous,
/// fragments of several devices.
constexpr std::array<std::size_t, 17> sizes = {0,     1,     111,    112,    113,      1023,
                                               1024,  1025,  4096,   8191,   8192,     8193,
                                               65535, 65537, 131072, 300001, 1U << 20U};

TEST_P(EveryKind, passes_messages_of_every_size_unchanged) {
    TestMemory from = left_memory(2U << 20U, GetParam().from);
    const TestMemory to = right_memory(2U << 20U, GetParam().to);
    from.fill(pattern(2U << 20U));
    for (const std::size_t size : sizes) {
        SCOPED_TRACE(size);
        pass(from, to, size, 1, 5, 11);
    }
}

TEST_P(EveryKind, passes_messages_in_memory_that_the_program_has_registered) {
    constexpr std::size_t size = 300001;
    TestMemory from = left_memory(size, GetParam().from);
    from.fill(pattern(size));
    std::vector<std::byte> bytes(size);
    std::vector<MemoryRegion> regions;
    std::vector<LocalChunk> chunks;
    std::vector<std::span<const LocalChunk>> of_devices;
    chunks.reserve(GetParam().devices);
    for (std::size_t i = 0; i < GetParam().devices; ++i) {
        regions.emplace_back(right_end().protection_domain(i), bytes.data(), size,
                             MemoryRegionOptions{.access = Endpoint::default_access});
        chunks.push_back(as_chunk(regions.back()));
        of_devices.emplace_back(&chunks.back(), 1);
    }
    const auto use = [&](std::size_t devices) {
        return right_end().use_regions(bytes.data(), size, Endpoint::default_access, true,
                                       std::span(of_devices).first(devices));
    };
    EXPECT_EQ(use(0).error_info().error(), EINVAL) << "no device has registered it";
    const auto to = use(GetParam().devices);
    ASSERT_TRUE(to) << to.message();
    EXPECT_TRUE(to->host());
    Request send;
    Request receive;
    ASSERT_EQ(right().irecv(*to, bytes.data(), size, 7, receive), code(0));
    ASSERT_EQ(left().isend(from.memory(), from.data(), size, 7, send), code(0));
    EXPECT_EQ(finish(right(), receive).bytes, size);
    EXPECT_EQ(finish(left(), send).error, code(0));
    EXPECT_TRUE(bytes == from.bytes(0, size));
}

TEST_P(EveryKind, receives_messages_that_arrived_before_their_receives_were_posted) {
    TestMemory from = left_memory(1U << 18U, GetParam().from);
    const TestMemory to = right_memory(1U << 18U, GetParam().to);
    from.fill(pattern(1U << 18U));
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{100}, std::size_t{5000}, std::size_t{200000}}) {
        SCOPED_TRACE(size);
        Request send;
        Request receive;
        ASSERT_EQ(left().isend(from.memory(), from.data(), size, 7, send), code(0));
        for (int i = 0; i < 100; ++i) {
            right().progress();
        }
        ASSERT_EQ(right().irecv(to.memory(), to.data(), 1U << 18U, 7, receive), code(0));
        EXPECT_EQ(finish(right(), receive).bytes, size);
        EXPECT_EQ(finish(left(), send).error, code(0));
        EXPECT_TRUE(to.bytes(0, size) == from.bytes(0, size));
    }
}

INSTANTIATE_TEST_SUITE_P(
    memory, EveryKind,
    ::testing::Values(Ends{TestMemory::Kind::host, TestMemory::Kind::host, 1},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::dmabuf, 1},
                      Ends{TestMemory::Kind::host, TestMemory::Kind::dmabuf, 2},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::host, 2},
                      Ends{TestMemory::Kind::host, TestMemory::Kind::dmabuf, 1, 3},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::host, 4, 4}),
    [](const auto& value) {
        const auto name = [](TestMemory::Kind kind) {
            return kind == TestMemory::Kind::host ? std::string("host") : std::string("dmabuf");
        };
        return name(value.param.from) + "_to_" + name(value.param.to) + "_over_" +
               std::to_string(value.param.devices) + "_times_" +
               std::to_string(value.param.queue_pairs_per_device);
    });

using Messages = TransportTest;

TEST_F(Messages, match_the_first_receive_of_their_tag) {
    connect();
    TestMemory from = left_memory(4096);
    const TestMemory to = right_memory(4096);
    from.fill(pattern(4096));
    std::array<Request, 4> receives;
    const std::array<Tag, 4> tags = {5, 6, 5, 7};
    for (std::size_t i = 0; i < tags.size(); ++i) {
        ASSERT_EQ(right().irecv(to.memory(), to.data(i * 16), 16, tags[i], receives[i]), code(0));
    }
    // The messages have another order than their receives.
    std::array<Request, 4> sends;
    const std::array<std::pair<Tag, std::size_t>, 4> messages = {{{7, 3}, {5, 9}, {6, 4}, {5, 2}}};
    for (std::size_t i = 0; i < messages.size(); ++i) {
        ASSERT_EQ(left().isend(from.memory(), from.data(i * 32), messages[i].second,
                               messages[i].first, sends[i]),
                  code(0));
    }
    EXPECT_EQ(finish(right(), receives[3]).bytes, 3);
    EXPECT_EQ(finish(right(), receives[2]).bytes, 2);
    EXPECT_EQ(finish(right(), receives[0]).bytes, 9);
    EXPECT_EQ(finish(right(), receives[1]).bytes, 4);
    EXPECT_TRUE(to.bytes(0, 9) == from.bytes(32, 9));
    EXPECT_TRUE(to.bytes(16, 4) == from.bytes(64, 4));
    EXPECT_TRUE(to.bytes(32, 2) == from.bytes(96, 2));
    EXPECT_TRUE(to.bytes(48, 3) == from.bytes(0, 3));
}

TEST_F(Messages, of_one_tag_keep_their_order_whatever_their_length) {
    connect();
    TestMemory from = left_memory(1U << 20U);
    const TestMemory to = right_memory(1U << 20U);
    from.fill(pattern(1U << 20U));
    constexpr std::array<std::size_t, 6> lengths = {20000, 1, 0, 70000, 8192, 3};
    std::array<Request, 6> sends;
    std::array<Request, 6> receives;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        ASSERT_EQ(left().isend(from.memory(), from.data(i << 17U), lengths[i], 1, sends[i]),
                  code(0));
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        ASSERT_EQ(right().irecv(to.memory(), to.data(i << 17U), 1U << 17U, 1, receives[i]),
                  code(0));
    }
    for (std::size_t i = lengths.size(); i-- > 0;) {
        EXPECT_EQ(finish(right(), receives[i]).bytes, lengths[i]);
        EXPECT_TRUE(to.bytes(i << 17U, lengths[i]) == from.bytes(i << 17U, lengths[i]));
        EXPECT_EQ(finish(left(), sends[i]).error, code(0));
    }
}

TEST_F(Messages, that_exceed_the_receive_buffers_and_the_unexpected_limit_of_the_peer_all_arrive) {
    options_.receive_buffers = 16;
    options_.ack_timeout = 18; // 1 s, for a machine with a high load
    options_.send_buffers = 4;
    options_.unexpected_limit = 4096;
    options_.depth = 64;
    connect();
    TestMemory from = left_memory(1U << 20U);
    const TestMemory to = right_memory(1U << 20U);
    from.fill(pattern(1U << 20U));
    for (int round = 0; round < 4; ++round) {
        std::array<Request, 64> sends;
        std::array<Request, 64> receives;
        const auto length = [&](std::size_t i) { return i % 3 == 0 ? std::size_t{12000} : i * 30; };
        for (std::size_t i = 0; i < sends.size(); ++i) {
            ASSERT_EQ(left().isend(from.memory(), from.data(i << 14U), length(i), i, sends[i]),
                      code(0));
        }
        for (std::size_t i = 0; i < sends.size(); ++i) {
            ASSERT_EQ(right().irecv(to.memory(), to.data(i << 14U), 1U << 14U, i, receives[i]),
                      code(0));
        }
        for (std::size_t i = 0; i < sends.size(); ++i) {
            ASSERT_EQ(finish(right(), receives[i]).bytes, length(i));
            ASSERT_EQ(finish(left(), sends[i]).error, code(0));
        }
    }
    EXPECT_TRUE(to.bytes(1U << 14U, 30) == from.bytes(1U << 14U, 30));
    EXPECT_EQ(left().in_flight(), 0);
}

TEST_F(Messages, pass_in_both_directions_at_the_same_time) {
    connect();
    TestMemory a = left_memory(1U << 20U);
    TestMemory b = right_memory(1U << 20U);
    a.fill(pattern(1U << 19U, 1));
    b.fill(pattern(1U << 19U, 2));
    std::array<Request, 4> requests;
    const std::size_t half = 1U << 19U;
    ASSERT_EQ(left().isend(a.memory(), a.data(), half, 1, requests[0]), code(0));
    ASSERT_EQ(right().isend(b.memory(), b.data(), half, 1, requests[1]), code(0));
    ASSERT_EQ(left().irecv(a.memory(), a.data(half), half, 1, requests[2]), code(0));
    ASSERT_EQ(right().irecv(b.memory(), b.data(half), half, 1, requests[3]), code(0));
    EXPECT_EQ(finish(left(), requests[2]).error, code(0));
    EXPECT_EQ(finish(right(), requests[3]).error, code(0));
    EXPECT_EQ(finish(left(), requests[0]).error, code(0));
    EXPECT_EQ(finish(right(), requests[1]).error, code(0));
    EXPECT_TRUE(a.bytes(half, half) == b.bytes(0, half));
    EXPECT_TRUE(b.bytes(half, half) == a.bytes(0, half));
}

TEST_F(Messages, that_are_longer_than_their_receive_fail_and_the_channel_remains_usable) {
    connect();
    TestMemory from = left_memory(1U << 16U);
    TestMemory to = right_memory(1U << 16U);
    from.fill(pattern(1U << 16U));
    const std::vector<std::byte> before = to.bytes(0, 1U << 16U);
    for (const std::size_t size : {std::size_t{100}, std::size_t{40000}}) {
        SCOPED_TRACE(size);
        Request send;
        Request receive;
        ASSERT_EQ(right().irecv(to.memory(), to.data(), size - 1, 1, receive), code(0));
        ASSERT_EQ(left().isend(from.memory(), from.data(), size, 1, send), code(0));
        const Completion received = finish(right(), receive);
        EXPECT_EQ(received.error, code(EMSGSIZE));
        EXPECT_EQ(received.bytes, size);
        // The send of an eager message completes before the receiver knows its length.
        EXPECT_EQ(finish(left(), send).error, code(size > 8192 ? EMSGSIZE : 0));
        EXPECT_TRUE(to.bytes(0, 1U << 16U) == before);
    }
    pass(from, to, 50000);
}

} // namespace
} // namespace rdmabuf::testing
