// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport_fixture.hpp"

namespace rdmabuf::testing {

/// Receive buffers in one memory, with guard bytes between them. It checks that nothing is written
/// to the guard bytes, or to a buffer after its request has ended.
class GuardedBuffers {
  public:
    static constexpr std::size_t count = 8;
    static constexpr std::size_t capacity = 4096;
    static constexpr std::size_t stride = capacity + 256;
    /// The first buffer is behind guard bytes, too.
    static constexpr std::size_t memory_size = (count + 1) * stride;

    explicit GuardedBuffers(TestMemory memory) : memory_(std::move(memory)) {
        memory_.fill(expected_);
    }

    [[nodiscard]] const Memory& memory() const { return memory_.memory(); }
    [[nodiscard]] std::byte* data(std::size_t buffer) const { return memory_.data(offset(buffer)); }
    /// Returns a buffer that no request uses; std::nullopt if there is none.
    [[nodiscard]] std::optional<std::size_t> unused() const {
        const auto* const found =
            std::ranges::find_if(buffers_, [](const Buffer& b) { return !b.used; });
        return found == buffers_.end()
                   ? std::nullopt
                   : std::optional(static_cast<std::size_t>(found - buffers_.begin()));
    }
    /// A request for the first @p length bytes of a buffer begins.
    void begin(std::size_t buffer, std::size_t length) {
        expect_unchanged(buffer);
        buffers_.at(buffer) = {.used = true, .length = length};
    }
    /// The request of a buffer has ended. It may have written to the first @p written bytes.
    void end(std::size_t buffer, std::size_t written) {
        Buffer& ended = buffers_.at(buffer);
        ended.used = false;
        const std::size_t limit = ended.rdma_write ? capacity : std::min(written, ended.length);
        const auto bytes = memory_.bytes(offset(buffer), limit);
        std::ranges::copy(bytes, expected_.begin() + static_cast<std::ptrdiff_t>(offset(buffer)));
        expect_unchanged(buffer);
    }
    /// The peer writes by RDMA to the address that the channel has sent to it. While the channel
    /// works, such a write is permitted at any time: see SECURITY.md.
    void expect_rdma_write(std::uint64_t address) {
        const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
        ASSERT_GE(address, begin + stride);
        const std::size_t buffer = (address - begin) / stride - 1;
        ASSERT_LT(buffer, count);
        buffers_.at(buffer).rdma_write = true;
    }
    /// The channel has failed, and all its requests have ended: the peer cannot write any more.
    void expect_no_rdma_write() {
        for (std::size_t i = 0; i < count; ++i) {
            if (std::exchange(buffers_.at(i).rdma_write, false)) {
                end(i, capacity);
            }
        }
    }
    /// Checks all bytes of the memory, except those of requests in flight.
    void check() const {
        for (std::size_t i = 0; i < count; ++i) {
            expect_unchanged(i);
        }
        const auto first = memory_.bytes(0, stride);
        EXPECT_TRUE(std::equal(first.begin(), first.end(), expected_.begin()));
    }

  private:
    struct Buffer {
        bool used = false;
        /// True if the peer has written to this buffer by RDMA.
        bool rdma_write = false;
        std::size_t length = 0;
    };

    [[nodiscard]] static std::size_t offset(std::size_t buffer) { return (buffer + 1) * stride; }
    /// Checks the bytes of a buffer that no request may write to, and the guard bytes behind it.
    void expect_unchanged(std::size_t buffer) const {
        const Buffer& checked = buffers_.at(buffer);
        const std::size_t skipped = checked.rdma_write ? capacity
                                    : checked.used     ? checked.length
                                                       : 0;
        const auto bytes = memory_.bytes(offset(buffer) + skipped, stride - skipped);
        EXPECT_TRUE(
            std::equal(bytes.begin(), bytes.end(),
                       expected_.begin() + static_cast<std::ptrdiff_t>(offset(buffer) + skipped)))
            << "bytes outside the request of buffer " << buffer << " were written";
    }

    TestMemory memory_;
    /// The bytes of the memory, as far as no request in flight may change them.
    std::vector<std::byte> expected_ = pattern(memory_size, 55);
    std::array<Buffer, count> buffers_{};
};

} // namespace rdmabuf::testing
