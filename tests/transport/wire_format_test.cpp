// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/chunk_table.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {
namespace {

TEST(Immediates, survive_encoding) {
    std::set<std::uint32_t> encoded;
    for (const bool fence : {false, true}) {
        for (std::uint32_t rails = 1; rails <= max_channel_rails; ++rails) {
            for (const std::uint32_t request : {0U, 1U, 0x12345U, Immediate::max_request}) {
                const Immediate immediate = {.fence = fence, .rails = rails, .request = request};
                const Immediate decoded = Immediate::decode(immediate.encode());
                EXPECT_EQ(decoded.fence, fence);
                EXPECT_EQ(decoded.rails, rails);
                EXPECT_EQ(decoded.request, request);
                EXPECT_TRUE(encoded.insert(immediate.encode()).second);
            }
        }
    }
}

TEST(FencesOfNotifications, survive_encoding) {
    const NotificationFences fences = {.number = Immediate::max_request, .rails = 0x8001};
    const NotificationFences decoded = NotificationFences::decode(fences.encode());
    EXPECT_EQ(decoded.number, fences.number);
    EXPECT_EQ(decoded.rails, fences.rails);
    EXPECT_EQ(NotificationFences{}.encode(), 0);
}

/// The regions of a message as they are on the wire.
class Chunks {
  public:
    Chunks& add(std::uint64_t address, std::uint64_t length, std::uint32_t rkey = 7) {
        chunks_.push_back({.address = address, .length = length, .rkeys = {}});
        std::iota(chunks_.back().rkeys.begin(), chunks_.back().rkeys.end(), rkey);
        return *this;
    }
    [[nodiscard]] bool decode(std::uint64_t length, std::size_t rails = 1) {
        return decode_as(static_cast<std::uint16_t>(chunks_.size()), length, rails);
    }
    [[nodiscard]] bool decode_as(std::uint16_t count, std::uint64_t length, std::size_t rails = 1) {
        return ChunkTable::decode(std::as_bytes(std::span(chunks_)), count, rails, length, table);
    }

    RemoteTable table;

  private:
    std::vector<KeyedChunk> chunks_;
};

TEST(ChunkTables, are_decoded_for_each_device) {
    Chunks chunks;
    chunks.add(0x1000, 100, 10).add(0x1064, 50, 20);
    ASSERT_TRUE(chunks.decode(150, max_rails));
    EXPECT_EQ(chunks.table.rails, max_rails);
    const auto regions = chunks.table.used();
    ASSERT_EQ(regions.size(), 2);
    EXPECT_EQ(regions[0].address, 0x1000);
    EXPECT_EQ(regions[0].length, 100);
    EXPECT_EQ(regions[1].address, 0x1064);
    EXPECT_EQ(regions[1].length, 50);
    for (std::uint32_t rail = 0; rail < max_rails; ++rail) {
        EXPECT_EQ(regions[0].rkeys[rail], 10 + rail);
        EXPECT_EQ(regions[1].rkeys[rail], 20 + rail);
    }
}

TEST(ChunkTables, have_up_to_eight_regions) {
    Chunks chunks;
    EXPECT_TRUE(chunks.decode(0));
    EXPECT_FALSE(chunks.decode(1));
    for (std::uint64_t i = 0; i < max_chunks; ++i) {
        chunks.add(4096 * i, 4096);
        EXPECT_TRUE(chunks.decode(4096 * (i + 1)));
    }
    chunks.add(4096 * max_chunks, 4096);
    EXPECT_FALSE(chunks.decode(4096 * (max_chunks + 1)));
}

TEST(ChunkTables, have_as_many_regions_as_the_body_says) {
    Chunks chunks;
    chunks.add(0, 4096).add(4096, 4096);
    EXPECT_FALSE(chunks.decode_as(1, 4096));
    EXPECT_FALSE(chunks.decode_as(3, 8192));
    EXPECT_FALSE(chunks.decode_as(0xffff, 8192));
    EXPECT_TRUE(chunks.decode_as(2, 8192));
}

TEST(ChunkTables, have_exactly_the_length_of_the_message) {
    EXPECT_TRUE(Chunks().add(0, 4096).decode(4096));
    EXPECT_FALSE(Chunks().add(0, 4096).decode(4095));
    EXPECT_FALSE(Chunks().add(0, 4096).decode(4097));
    EXPECT_FALSE(Chunks().add(0, 4096).decode(0));
    EXPECT_FALSE(Chunks().add(0, UINT64_MAX).add(UINT64_MAX, 2).decode(1));
}

TEST(ChunkTables, have_no_empty_regions) {
    EXPECT_FALSE(Chunks().add(0, 0).decode(0));
    EXPECT_FALSE(Chunks().add(0, 4096).add(4096, 0).decode(4096));
}

TEST(ChunkTables, have_no_gaps_and_no_overlaps) {
    EXPECT_FALSE(Chunks().add(0, 4096).add(4097, 4096).decode(8192));
    EXPECT_FALSE(Chunks().add(0, 4096).add(4095, 4096).decode(8192));
    EXPECT_FALSE(Chunks().add(4096, 4096).add(0, 4096).decode(8192));
}

TEST(ChunkTables, do_not_wrap_around_the_address_space) {
    EXPECT_TRUE(Chunks().add(UINT64_MAX - 4095, 4096).decode(4096));
    EXPECT_FALSE(Chunks().add(UINT64_MAX - 4095, 4097).decode(4097));
    EXPECT_FALSE(Chunks().add(UINT64_MAX - 4095, 4096).add(0, 4096).decode(8192));
}

} // namespace
} // namespace rdmabuf::transport::detail
