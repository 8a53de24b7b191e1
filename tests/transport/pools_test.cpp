// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/transport/detail/block_pool.hpp>
#include <rdmabuf/transport/detail/bounce_pool.hpp>
#include <rdmabuf/transport/detail/held_buffers.hpp>
#include <rdmabuf/transport/detail/rdma_transfer.hpp>
#include <rdmabuf/transport/detail/request_state.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport::detail {
namespace {

struct Range {
    const std::byte* begin;
    std::size_t size;
};

/// Expects that the ranges are inside the pool and do not overlap.
void expect_disjoint(const BouncePool& pool, std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    const std::byte* end = pool.data();
    for (const Range& range : ranges) {
        ASSERT_GE(range.begin, end);
        end = range.begin + range.size;
    }
    EXPECT_LE(end, pool.data() + pool.size());
}

TEST(BouncePools, give_each_buffer_its_own_memory) {
    for (const std::uint32_t eager_limit : {0U, 1U, 100U, 8192U, 1U << 20U}) {
        SCOPED_TRACE(eager_limit);
        BouncePool pool(eager_limit, 16, 4);
        std::vector<Range> ranges = {{pool.probe_line(), BouncePool::line},
                                     {pool.scratch_line(), BouncePool::line}};
        for (std::uint32_t i = 0; i < 16 + BouncePool::copy_buffers; ++i) {
            ranges.push_back({pool.receive_buffer(i), pool.receive_size()});
        }
        for (std::uint32_t i = 0; i < 4; ++i) {
            ranges.push_back({pool.send_buffer(i), BouncePool::send_size});
        }
        expect_disjoint(pool, ranges);
        EXPECT_GE(pool.receive_size(), sizeof(Header) + eager_limit);
        EXPECT_GE(pool.receive_size(), max_control_message);
        EXPECT_GE(pool.receive_size(), sizeof(Header) + max_notification);
        EXPECT_TRUE(std::all_of(pool.data(), pool.data() + pool.size(),
                                [](std::byte byte) { return byte == std::byte{}; }));
    }
}

TEST(BouncePools, have_send_buffers_for_a_channel_if_the_messages_of_others_do_not_complete) {
    BouncePool pool(8192, 16, 256);
    std::list<HeldBuffers> channels;
    // Returns the number of buffers that one more channel takes.
    const auto take = [&] {
        HeldBuffers& held = channels.emplace_back(pool);
        std::size_t count = 0;
        for (; held.may_hold(); ++count) {
            held.hold(pool.take(), 1);
        }
        return count;
    };
    EXPECT_EQ(take(), 128);
    EXPECT_FALSE(channels.front().may_hold());
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(take(), 8);
    }
    for (int i = 0; i < 64; ++i) {
        EXPECT_EQ(take(), 1);
    }
    EXPECT_EQ(take(), 0);
    channels.front().release_all();
    EXPECT_EQ(pool.unused(), 128);
    EXPECT_EQ(take(), 8);
}

TEST(BouncePools, tell_copy_buffers_from_receive_buffers) {
    BouncePool pool(8192, 16, 4);
    std::set<std::uint32_t> taken;
    for (std::uint32_t i = 0; i < BouncePool::copy_buffers; ++i) {
        const std::uint32_t buffer = pool.take_copy_buffer();
        ASSERT_GE(buffer, 16);
        ASSERT_LT(buffer, 16 + BouncePool::copy_buffers);
        ASSERT_TRUE(taken.insert(buffer).second);
    }
    EXPECT_EQ(pool.take_copy_buffer(), BouncePool::none);
    EXPECT_FALSE(pool.give_back_copy_buffer(0));
    EXPECT_FALSE(pool.give_back_copy_buffer(15));
    EXPECT_EQ(pool.take_copy_buffer(), BouncePool::none);
    EXPECT_TRUE(pool.give_back_copy_buffer(20));
    EXPECT_EQ(pool.take_copy_buffer(), 20);
}

using Pool = RequestPool<SendRequest, RequestType::send>;

TEST(RequestPools, have_a_number_for_the_peer_that_changes_with_each_use) {
    Pool pool;
    std::set<std::uint32_t> numbers;
    // The number contains 7 bits of the generation.
    for (int i = 0; i < 128; ++i) {
        SendRequest* const request = pool.take();
        const std::uint32_t number = SharedState::wire_number(*request);
        ASSERT_LE(number, Immediate::max_request);
        ASSERT_TRUE(numbers.insert(number).second);
        pool.give_back(request);
    }
}

TEST(TransferPools, initialize_a_reused_transfer) {
    const MemoryState memory = {.address = 4096, .length = 4096, .iova = 65536};
    OneSidedRequest request;
    request.buffer = {.memory = &memory, .address = 4196, .length = 1000};
    TransferPool pool;
    RdmaTransfer* const used = pool.take(request, 0);
    used->is_read = used->has_immediate = used->has_fin = used->keeps_order = true;
    used->immediate = {.rails = 3, .request = 5};
    pool.give_back(used);
    RdmaTransfer* const transfer = pool.take(request, 10);
    ASSERT_EQ(transfer, used);
    EXPECT_FALSE(transfer->is_read || transfer->has_immediate || transfer->has_fin ||
                 transfer->keeps_order);
    EXPECT_EQ(transfer->immediate.encode(), Immediate{}.encode());
    EXPECT_EQ(transfer->request, &request);
    EXPECT_EQ(transfer->memory, &memory);
    EXPECT_EQ(transfer->local_address, 65536 + 100 + 10);
}

TEST(Transfers, have_no_piece_behind_the_regions_of_the_peer) {
    RemoteTable remote = {.chunks = 1, .rails = 1};
    remote.regions[0] = {.address = 4096, .length = 300, .rkeys = {}};
    MemoryState local;
    local.chunks[0].push_back({.address = 65536, .length = 1000, .lkey = 5});
    TransferPiece piece;
    const rdmabuf::Transfer inside = {.local_address = 65536, .remote_address = 4395, .length = 1};
    EXPECT_TRUE(first_piece(local, remote, 0, inside, 4096, piece));
    const rdmabuf::Transfer behind = {.local_address = 65536, .remote_address = 4396, .length = 1};
    EXPECT_FALSE(first_piece(local, remote, 0, behind, 4096, piece));
}

TEST(BlockPools, reuse_blocks_of_the_same_size_up_to_their_limit) {
    BlockPool pool(3000);
    void* const first = pool.take(100);
    void* const second = pool.take(1500);
    ASSERT_NE(first, nullptr);
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(pool.kept(), 0);
    pool.give_back(first, 100);
    EXPECT_EQ(pool.kept(), 128);
    pool.give_back(second, 1500);
    EXPECT_EQ(pool.kept(), 128 + 2048);
    void* const third = pool.take(2048);
    EXPECT_EQ(third, second);
    void* const fourth = pool.take(1025);
    EXPECT_NE(fourth, second);
    EXPECT_EQ(pool.take(1), first);
    EXPECT_EQ(pool.kept(), 0);
    pool.give_back(third, 2048);
    pool.give_back(fourth, 1025); // The limit is exceeded: the block is freed.
    EXPECT_EQ(pool.kept(), 2048);
    pool.give_back(first, 1);
}

TEST(BlockPools, free_blocks_that_are_longer_than_all_of_their_sizes) {
    BlockPool pool(std::size_t{1} << 30U);
    constexpr std::size_t size = (std::size_t{1} << 21U) + 1;
    void* const block = pool.take(size);
    ASSERT_NE(block, nullptr);
    pool.give_back(block, size);
    EXPECT_EQ(pool.kept(), 0);
}

} // namespace
} // namespace rdmabuf::transport::detail
