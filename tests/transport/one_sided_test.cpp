// SPDX-License-Identifier: BSD-3-Clause
// iput, iget, iflush and notifications between two ends of one process, on softverbs.
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class OneSided : public TransportTest, public ::testing::WithParamInterface<TestMemory::Kind> {
  protected:
    static constexpr std::size_t size = 1U << 19U;
};

TEST_P(OneSided, writes_and_reads_memory_of_the_peer) {
    connect();
    TestMemory mine = left_memory(size, GetParam());
    const TestMemory theirs = right_memory(size, GetParam());
    mine.fill(pattern(size));
    const auto remote = theirs.memory().remote();
    ASSERT_TRUE(remote.ok());
    const auto decoded = RemoteMemory::decode(remote->bytes());
    ASSERT_TRUE(decoded) << decoded.reason();

    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100000}}) {
        SCOPED_TRACE(count);
        Request request;
        ASSERT_EQ(left().iput(mine.memory(), mine.data(), count, *decoded, 77, request), code(0));
        Completion completion = finish(left(), request);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.bytes, count);

        // The completion of the write does not make the data visible to the CPU of the target. The
        // read does.
        ASSERT_EQ(left().iget(mine.memory(), mine.data(size / 2), count, *decoded, 77, request),
                  code(0));
        completion = finish(left(), request);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_TRUE(mine.bytes(size / 2, count) == mine.bytes(0, count));
        EXPECT_TRUE(theirs.bytes(77, count) == mine.bytes(0, count));
    }
}

TEST_P(OneSided, notifies_the_peer_after_the_data_has_arrived) {
    connect();
    TestMemory mine = left_memory(size, GetParam());
    const TestMemory theirs = right_memory(size, GetParam());
    mine.fill(pattern(size));
    const auto remote = theirs.memory().remote();
    EXPECT_EQ(right().notification(), std::nullopt);
    std::array<Request, 3> requests;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        ASSERT_EQ(left().iput_notify(mine.memory(), mine.data(i * 1000), i * 1000, *remote,
                                     i * 1000, 0x123456789abcdef0 + i, requests[i]),
                  code(0));
    }
    for (const Request& request : requests) {
        EXPECT_EQ(finish(left(), request).error, code(0));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(next_notification(right()), 0x123456789abcdef0 + i);
    }
    EXPECT_EQ(right().notification(), std::nullopt);
    EXPECT_TRUE(theirs.bytes(2000, 2000) == mine.bytes(2000, 2000));
}

// The transfer consists of many work requests. One packet is lost and sent again.
TEST_P(OneSided, completes_after_all_data_has_arrived) {
    for (const std::size_t devices : {std::size_t{1}, std::size_t{2}}) {
        disconnect();
        use_devices(devices);
        for (unsigned device = 0; device < devices; ++device) {
            ibv_port_attr port = roce_port();
            port.max_msg_sz = 40000;
            set_port(port, 1, device);
        }
        options_.ack_timeout = 12;
        connect();
        TestMemory mine = left_memory(size, GetParam());
        TestMemory theirs = right_memory(size, GetParam());
        const auto remote = theirs.memory().remote();
        for (unsigned lost = 1; lost < 14; ++lost) {
            SCOPED_TRACE(std::to_string(devices) + " devices, lost: " + std::to_string(lost));
            mine.fill(pattern(size, lost));
            ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, lost, 0), 0);
            Request request;
            ASSERT_EQ(left().iput(mine.memory(), mine.data(), size, *remote, 0, request), code(0));
            EXPECT_EQ(wait(left(), request).error, code(0));
            // This read makes the data visible to the CPU of the target.
            ASSERT_EQ(left().iget(mine.memory(), mine.data(), size, *remote, 0, request), code(0));
            EXPECT_EQ(finish(left(), request).error, code(0));
            EXPECT_TRUE(mine.bytes(0, size) == pattern(size, lost));
            EXPECT_TRUE(theirs.bytes(0, size) == pattern(size, lost));

            mine.fill(pattern(size, lost + 100));
            softverbs_clear_faults();
            ASSERT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, lost, 0), 0);
            ASSERT_EQ(left().iput_notify(mine.memory(), mine.data(), size, *remote, 0, 1, request),
                      code(0));
            EXPECT_EQ(next_notification(right()), 1);
            EXPECT_TRUE(theirs.bytes(0, size) == mine.bytes(0, size));
            EXPECT_EQ(finish(left(), request).error, code(0));
            softverbs_clear_faults();
        }
    }
}

// A receiver may flush data after the sender has closed the channel.
TEST_P(OneSided, flushes_received_data_after_the_peer_has_closed_the_channel) {
    connect();
    TestMemory mine = left_memory(size, GetParam());
    TestMemory theirs = right_memory(size, GetParam());
    pass(mine, theirs, size);
    left().close();
    ASSERT_TRUE(eventually([&] { return right().state() == code(ECONNRESET); },
                           [&] { right().progress(); }));
    for (int i = 0; i < 3; ++i) {
        Request request;
        ASSERT_EQ(right().iflush(theirs.memory(), theirs.data(), size, request), code(0));
        EXPECT_EQ(wait(right(), request).error, code(0));
    }
    EXPECT_EQ(right().in_flight(), 0U);
}

TEST_P(OneSided, flushes_received_data) {
    connect();
    TestMemory mine = left_memory(size, GetParam());
    Request request;
    ASSERT_EQ(left().iflush(mine.memory(), mine.data(9), 100, request), code(0));
    EXPECT_EQ(finish(left(), request).error, code(0));
    ASSERT_EQ(left().iflush(mine.memory(), mine.data(), 0, request), code(0));
    EXPECT_EQ(finish(left(), request).error, code(0));
}

INSTANTIATE_TEST_SUITE_P(memory, OneSided,
                         ::testing::Values(TestMemory::Kind::host, TestMemory::Kind::dmabuf),
                         [](const auto& value) {
                             return value.param == TestMemory::Kind::host ? "host" : "dmabuf";
                         });

} // namespace
} // namespace rdmabuf::testing
