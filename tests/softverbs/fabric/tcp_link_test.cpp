// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/tcp_link.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/output_buffer.hpp"
#include "fabric/tcp_frame.hpp"
#include "support.hpp"

namespace softverbs::fabric::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t record_bytes = 60'000;

/// Returns the resident memory of this process in bytes.
std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t total = 0;
    std::size_t resident = 0;
    file >> total >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A link whose peer is the test, which reads and writes raw frames.
class TcpLinkTest : public ::testing::Test {
  protected:
    TcpLinkTest() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
                  0);
        peer.reset(ends[1]);
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = ends[0];
        EXPECT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, ends[0], &event), 0);
        link =
            std::make_unique<TcpLink>(context, epoll.get(), UniqueFd(ends[0]), Route{}, 1, nullptr);
    }

    /// Sends a frame with a record of zeros to the link. Waits until the socket accepts all of it.
    void send_frame(const FrameHeader& header) const {
        std::vector<std::byte> frame(frame_bytes(header.length));
        std::ranges::copy(std::as_bytes(std::span(&header, 1)), frame.begin());
        for (std::size_t sent = 0; sent < frame.size();) {
            const ssize_t now =
                ::send(peer.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
            ASSERT_GT(now, 0);
            sent += static_cast<std::size_t>(now);
        }
    }

    UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    UniqueFd peer;
    NodeState context;
    Recorder seen;
    std::unique_ptr<TcpLink> link;
};

TEST_F(TcpLinkTest, UsesNoMoreMemoryThanTheWindowWhileItsPeerIsSlow) {
    constexpr std::size_t total_frames = 1200; // 72 MB
    const std::vector<std::byte> record(record_bytes);
    const std::span<const std::byte> part(record);
    const std::uint32_t size = frame_bytes(record.size());
    std::vector<std::byte> received(size);
    std::size_t sent_frames = 0;
    FrameHeader credit;
    const std::size_t before = resident_bytes();
    while (sent_frames < total_frames) {
        // Fill the window, so that the link always has unsent bytes.
        while (link->send(Lane::requests, {&part, 1}) == Sent::sent) {
            ++sent_frames;
        }
        // Receive one frame and return its credit.
        for (std::size_t got = 0; got < size;) {
            const ssize_t now = ::recv(peer.get(), received.data(), size - got, MSG_DONTWAIT);
            if (now <= 0) {
                link->service();
                continue;
            }
            got += static_cast<std::size_t>(now);
        }
        ++credit.requests_consumed;
        credit.bytes_consumed[0] += size;
        send_frame(credit);
        static_cast<void>(link->progress(seen, 64));
        link->service();
        ASSERT_FALSE(link->over()) << link->failure();
    }
    EXPECT_LT(resident_bytes() - before, std::size_t{24} << 20U);
}

TEST_F(TcpLinkTest, FailsIfItsPeerIgnoresTheWindow) {
    seen.refusals = 1'000'000;
    FrameHeader header;
    header.kind = FrameKind::request;
    header.length = record_bytes;
    const std::uint32_t fitting = window_bytes / frame_bytes(record_bytes);
    for (std::uint32_t count = 0; count < fitting; ++count) {
        send_frame(header);
        static_cast<void>(link->progress(seen, 64));
        ASSERT_FALSE(link->over()) << link->failure();
    }
    send_frame(header);
    static_cast<void>(link->progress(seen, 64));
    EXPECT_TRUE(link->over());
    EXPECT_THAT(link->failure(), HasSubstr("violated the network protocol"));
    EXPECT_TRUE(seen.requests.empty());
}

TEST_F(TcpLinkTest, AcceptsAWindowAgainAfterItWasConsumed) {
    FrameHeader header;
    header.kind = FrameKind::request;
    header.length = record_bytes;
    const std::uint32_t frames = 3 * window_bytes / frame_bytes(record_bytes);
    for (std::uint32_t count = 0; count < frames; ++count) {
        send_frame(header);
        static_cast<void>(link->progress(seen, 64));
        ASSERT_FALSE(link->over()) << link->failure();
    }
    EXPECT_EQ(seen.requests.size(), frames);
}

TEST_F(TcpLinkTest, OneCallOfProgressReceivesNoMoreFramesThanItsBudget) {
    constexpr unsigned frames = 100;
    for (unsigned count = 0; count < frames; ++count) {
        send_frame(FrameHeader{});
    }
    FrameHeader last;
    last.kind = FrameKind::request;
    send_frame(last);
    for (unsigned call = 0; call < frames / 4; ++call) {
        ASSERT_EQ(link->progress(seen, 4), 0U);
    }
    EXPECT_TRUE(link->pending());
    EXPECT_EQ(link->progress(seen, 4), 1U);
    EXPECT_EQ(seen.requests.size(), 1U);
}

TEST_F(TcpLinkTest, ShutsDownWhileItsPeerContinuesToSend) {
    std::atomic<bool> stop = false;
    std::atomic<bool> sending = false;
    std::thread writer([&] {
        const std::vector<std::byte> bytes(std::size_t{1} << 16U);
        for (; !stop; sending = true) {
            static_cast<void>(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
        }
    });
    EXPECT_TRUE(eventually([&] { return sending.load(); }));
    // Without a limit, shut_down() returns only when the writer is slower than the reader.
    link->shut_down();
    stop = true;
    writer.join();
}

TEST(OutputBuffer, ReturnsTheBytesInOrder) {
    OutputBuffer buffer;
    std::uint8_t in = 0;
    std::uint8_t out = 0;
    for (unsigned round = 0; round < 1000; ++round) {
        std::array<std::byte, 37> bytes{};
        for (std::byte& byte : bytes) {
            byte = static_cast<std::byte>(in++);
        }
        buffer.append(bytes);
        const std::size_t removed = std::min<std::size_t>(round % 73, buffer.size());
        for (const std::byte byte : buffer.bytes().first(removed)) {
            ASSERT_EQ(byte, static_cast<std::byte>(out++));
        }
        buffer.remove(removed);
    }
    EXPECT_EQ(static_cast<std::uint8_t>(in - out), static_cast<std::uint8_t>(buffer.size()));
}

TEST(OutputBuffer, ThatIsNeverEmptyDoesNotGrow) {
    OutputBuffer buffer;
    const std::vector<std::byte> bytes(1000);
    buffer.append(bytes);
    for (unsigned round = 0; round < 10'000; ++round) {
        buffer.append(bytes);
        buffer.remove(bytes.size());
        ASSERT_EQ(buffer.size(), bytes.size());
    }
    EXPECT_LE(buffer.capacity(), 8 * bytes.size());
    buffer.remove(buffer.size());
    EXPECT_TRUE(buffer.empty());
}

} // namespace
} // namespace softverbs::fabric::testing
