// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <set>
#include <span>

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

TEST(ChunkTables, may_end_where_the_address_space_ends) {
    const KeyedChunk last = {.address = UINT64_MAX - 4095, .length = 4096, .rkeys = {}};
    RemoteTable table;
    EXPECT_TRUE(ChunkTable::decode(std::as_bytes(std::span(&last, 1)), 1, 1, 4096, table));
}

} // namespace
} // namespace rdmabuf::transport::detail
