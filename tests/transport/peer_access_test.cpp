// SPDX-License-Identifier: BSD-3-Clause
// What a connected peer can access by RDMA with the rkeys of the Hello that it has received.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "raw_connector.hpp"

namespace rdmabuf::testing {
namespace {

using transport::detail::BouncePool;
using transport::detail::Immediate;
using Wire = transport::detail::Kind;

class PeerAccess : public RawPeerTest, public ::testing::WithParamInterface<std::uint32_t> {
  protected:
    PeerAccess() {
        options_.receive_buffers = 16;
        options_.send_buffers = 4;
        options_.linger = 1ms;
    }
    void SetUp() override {
        if (GetParam() > 1) {
            use_devices(GetParam());
        }
        open();
    }
    void TearDown() override {
        channel_.reset();
        raw_.reset();
        disconnect();
    }

    /// Connects a channel that uses all devices.
    void connect_devices() {
        ASSERT_NO_FATAL_FAILURE(connect_raw(1, 32, GetParam()));
        ASSERT_EQ(channel_->rails(), GetParam());
    }
    /// Returns all bytes of the bounce buffers behind the probe line.
    [[nodiscard]] std::vector<std::byte> bounce_buffers() const {
        const BouncePool& pool = channel_->endpoint()->shared.pool;
        const std::span all(pool.data(), pool.size());
        EXPECT_EQ(pool.probe_line(), pool.data());
        const auto buffers = all.subspan(BouncePool::line);
        return {buffers.begin(), buffers.end()};
    }
    /// Returns the memory that begins @p offset bytes behind the begin of the probe line, with the
    /// rkey of the last device.
    [[nodiscard]] RemoteAddress at(std::ptrdiff_t offset) const {
        const Hello& hello = raw_->listener_hello;
        return {.address = hello.probe_address + static_cast<std::uint64_t>(offset),
                .rkey = hello.probe_rkeys[rail()]};
    }
    [[nodiscard]] static std::size_t rail() { return GetParam() - 1; }
};

INSTANTIATE_TEST_SUITE_P(devices, PeerAccess, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(PeerAccess, by_the_rkey_of_the_hello_is_limited_to_the_probe_line) {
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    const BouncePool& pool = channel_->endpoint()->shared.pool;
    const auto offset_of = [&](const std::byte* buffer) { return buffer - pool.data(); };
    struct Range {
        const char* name;
        std::ptrdiff_t begin;
        std::size_t length;
    };
    const std::vector<Range> ranges = {
        {"the byte before the probe line", -1, 1},
        {"the begin of the probe line and the byte before it", -1, 2},
        {"the page before the probe line", -4096, 64},
        {"the end of the probe line and the byte behind it", BouncePool::line - 1, 2},
        {"the byte behind the probe line", BouncePool::line, 1},
        {"the probe line and the buffers behind it", 0, 4096},
        {"the header of the first receive buffer", offset_of(pool.receive_buffer(0)),
         sizeof(Header)},
        {"the header of the last receive buffer",
         offset_of(pool.receive_buffer(pool.receive_buffers() - 1)), sizeof(Header)},
        {"the first send buffer", offset_of(pool.send_buffer(0)), BouncePool::send_size},
        {"the last byte of the bounce buffers", static_cast<std::ptrdiff_t>(pool.size()) - 1, 1},
    };
    const std::vector<std::byte> data(4096, std::byte{0xee});
    const std::string text = "this message waits for its receive";
    enum class Access : std::uint8_t { write, write_with_immediate, read };
    for (const Range& range : ranges) {
        for (const Access access : {Access::write, Access::write_with_immediate, Access::read}) {
            SCOPED_TRACE(range.name + (", access " + std::to_string(static_cast<int>(access))));
            ASSERT_NO_FATAL_FAILURE(connect_devices());
            raw_->send({.kind = Wire::eager, .value = 1}, std::as_bytes(std::span(text)));
            ASSERT_TRUE(eventually([&] { return channel_->probe(1).has_value(); }));
            const std::vector<std::byte> before = bounce_buffers();

            const std::span written = std::span(data).first(range.length);
            const ibv_wc_status status =
                access == Access::read
                    ? raw_->read(at(range.begin), range.length, rail())
                    : raw_->write(
                          at(range.begin), written,
                          access == Access::write ? std::nullopt : std::optional(Immediate{}),
                          rail());
            EXPECT_EQ(status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(status);
            EXPECT_TRUE(bounce_buffers() == before);
        }
    }
}

TEST_P(PeerAccess, to_the_whole_probe_line_is_permitted_and_has_no_effect) {
    ASSERT_NO_FATAL_FAILURE(connect_devices());
    const std::vector<std::byte> before = bounce_buffers();
    const std::vector<std::byte> line(BouncePool::line, std::byte{0xee});
    EXPECT_EQ(raw_->write(at(0), line, std::nullopt, rail()), IBV_WC_SUCCESS);
    EXPECT_EQ(raw_->read(at(0), line.size(), rail()), IBV_WC_SUCCESS);
    EXPECT_TRUE(bounce_buffers() == before);
    const TestMemory memory = right_memory(100);
    Request request;
    raw_->send({.kind = Wire::eager, .value = 1}, std::span(line));
    ASSERT_EQ(channel_->irecv(memory.memory(), memory.data(), 100, 1, request), code(0));
    EXPECT_EQ(wait(*channel_, request).bytes, line.size());
    EXPECT_TRUE(memory.bytes(0, line.size()) == line);
    EXPECT_EQ(channel_->state(), code(0)) << channel_->reason();
}

} // namespace
} // namespace rdmabuf::testing
