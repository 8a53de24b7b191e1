// SPDX-License-Identifier: BSD-3-Clause
// Tests each verb with each kind of memory, which both ends have. DmaBufTestCase and
// DeviceMemoryTest of rdma-core's pyverbs test some of these verbs. The unit tier runs the suite on
// softverbs, and the rig on a real kernel.
#include <endian.h>

#include <array>
#include <cstring>

#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

constexpr std::size_t guard = 64;
constexpr std::size_t length = 100'000;
constexpr std::uint32_t immediate = 0x01020304;

class Traffic : public ::testing::TestWithParam<std::string> {
  protected:
    Traffic() { net_.connect(); }

    Loopback net_;
    std::unique_ptr<Memory> from_ = make_memory(GetParam(), net_.a.pd, guard + length + guard);
    std::unique_ptr<Memory> to_ = make_memory(GetParam(), net_.b.pd, guard + length + guard);

    /// Writes new bytes to both ends, for transfers from @p source to @p destination.
    void begin(unsigned seed, Memory& source, Memory& destination) {
        sent_ = pattern(length, seed);
        before_ = pattern(guard + length + guard, seed + 1000);
        source.put(guard, sent_);
        destination.put(0, before_);
    }
    /// Expects that the sent bytes have arrived, and that the bytes around them are unchanged.
    void expect_arrived(Memory& destination) {
        std::vector<std::byte> wanted = before_;
        std::copy(sent_.begin(), sent_.end(), wanted.begin() + guard);
        EXPECT_EQ(destination.get(0, wanted.size()), wanted);
    }
    [[nodiscard]] ibv_sge local() const { return from_->region().sge(guard, length); }
    [[nodiscard]] ibv_sge receive() const { return to_->region().sge(guard, length); }
    [[nodiscard]] RemoteRegion remote() const {
        return to_->region().remote().slice(guard, length);
    }

    // The 8 bytes of the atomic operations
    static std::uint64_t word(Memory& memory) {
        std::uint64_t value = 0;
        const auto bytes = memory.get(guard, sizeof(value));
        std::memcpy(&value, bytes.data(), sizeof(value));
        return value;
    }
    static void set_word(Memory& memory, std::uint64_t value) {
        memory.put(guard, std::as_bytes(std::span(&value, 1)));
    }

  private:
    std::vector<std::byte> sent_, before_;
};

TEST_P(Traffic, Send) {
    for (unsigned round = 0; round < 3; ++round) {
        begin(round, *from_, *to_);
        ASSERT_TRUE(net_.b.qp->post_recv(receive(), 20 + round));
        ASSERT_TRUE(net_.a.qp->post_send(local(), {.wr_id = 10 + round}));
        EXPECT_EQ(net_.a.expect(10 + round).opcode, IBV_WC_SEND);
        const WorkCompletion received = net_.b.expect(20 + round);
        EXPECT_EQ(received.opcode, IBV_WC_RECV);
        EXPECT_EQ(received.byte_len, length);
        EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0U);
        expect_arrived(*to_);
    }
}

TEST_P(Traffic, SendWithImmediate) {
    begin(1, *from_, *to_);
    ASSERT_TRUE(net_.b.qp->post_recv(receive(), 20));
    ASSERT_TRUE(net_.a.qp->post_send_imm(local(), immediate, {.wr_id = 10}));
    net_.a.expect(10);
    const WorkCompletion received = net_.b.expect(20);
    EXPECT_EQ(received.byte_len, length);
    EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
    EXPECT_EQ(be32toh(received.imm_data), immediate);
    expect_arrived(*to_);
}

TEST_P(Traffic, Write) {
    for (unsigned round = 0; round < 3; ++round) {
        begin(round, *from_, *to_);
        ASSERT_TRUE(net_.a.qp->post_write(local(), remote(), {.wr_id = 10 + round}));
        EXPECT_EQ(net_.a.expect(10 + round).opcode, IBV_WC_RDMA_WRITE);
        expect_arrived(*to_);
    }
}

TEST_P(Traffic, WriteWithImmediate) {
    begin(2, *from_, *to_);
    ASSERT_TRUE(net_.b.qp->post_recv(std::span<const ibv_sge>(), 20));
    ASSERT_TRUE(net_.a.qp->post_write_imm(local(), remote(), immediate, {.wr_id = 10}));
    net_.a.expect(10);
    const WorkCompletion received = net_.b.expect(20);
    EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(received.byte_len, length);
    EXPECT_EQ(be32toh(received.imm_data), immediate);
    expect_arrived(*to_);
}

TEST_P(Traffic, Read) {
    begin(3, *to_, *from_);
    ASSERT_TRUE(net_.a.qp->post_read(local(), remote(), {.wr_id = 10}));
    EXPECT_EQ(net_.a.expect(10).opcode, IBV_WC_RDMA_READ);
    expect_arrived(*from_);
}

TEST_P(Traffic, CompareSwap) {
    const ibv_sge result = from_->region().sge(guard, 8);
    set_word(*to_, 100);
    set_word(*from_, 1);
    ASSERT_TRUE(net_.a.qp->post_compare_swap(result, remote(), 99, 7, {.wr_id = 10}));
    EXPECT_EQ(net_.a.expect(10).opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(word(*from_), 100U) << "what was there comes back";
    EXPECT_EQ(word(*to_), 100U) << "and stays, as it is not 99";
    ASSERT_TRUE(net_.a.qp->post_compare_swap(result, remote(), 100, 7, {.wr_id = 11}));
    net_.a.expect(11);
    EXPECT_EQ(word(*from_), 100U);
    EXPECT_EQ(word(*to_), 7U);
}

TEST_P(Traffic, FetchAdd) {
    const ibv_sge result = from_->region().sge(guard, 8);
    constexpr std::uint64_t start = 0xffffffff;
    set_word(*to_, start);
    for (std::uint64_t round = 0; round < 3; ++round) {
        ASSERT_TRUE(net_.a.qp->post_fetch_add(result, remote(), 5, {.wr_id = round}));
        EXPECT_EQ(net_.a.expect(round).opcode, IBV_WC_FETCH_ADD);
        EXPECT_EQ(word(*from_), start + 5 * round);
        EXPECT_EQ(word(*to_), start + 5 * (round + 1));
    }
}

TEST_P(Traffic, ListOfRequestsInOneCall) {
    begin(4, *from_, *to_);
    constexpr std::size_t part = length / 4;
    const std::array entries{
        from_->region().sge(guard, part), from_->region().sge(guard + part, part),
        from_->region().sge(guard + 2 * part, part), from_->region().sge(guard + 3 * part, part)};
    ASSERT_TRUE(net_.b.qp->post_recv(to_->region().sge(guard + 3 * part, part), 20));
    SendList<4> list;
    for (std::size_t i = 0; i < 3; ++i) {
        list.write({&entries[i], 1}, remote().at(i * part),
                   {.wr_id = i, .flags = i == 2 ? SendFlags::signaled : SendFlags::none});
    }
    list.send({&entries[3], 1}, {.wr_id = 3});
    ibv_send_wr* failed = nullptr;
    ASSERT_TRUE(net_.a.qp->post(list, failed));
    net_.a.expect(2);
    net_.a.expect(3);
    EXPECT_EQ(net_.b.expect(20).byte_len, part);
    expect_arrived(*to_);
}

TEST_P(Traffic, BatchOfTheExtendedInterface) {
    ASSERT_TRUE(net_.a.qp->extended());
    begin(5, *from_, *to_);
    constexpr std::uint32_t half = length / 2;
    const std::array entries{from_->region().sge(guard, half),
                             from_->region().sge(guard + half, half)};
    ASSERT_TRUE(net_.b.qp->post_recv(to_->region().sge(guard + half, half), 20));
    {
        WorkBatch dropped = net_.a.qp->batch();
        dropped.write(std::span(entries).first(1), remote().at(half), {.wr_id = 9});
    }
    WorkBatch batch = net_.a.qp->batch();
    batch.write(std::span(entries).first(1), remote(), {.wr_id = 10});
    batch.send_imm(std::span(entries).last(1), immediate, {.wr_id = 11});
    ASSERT_TRUE(batch.complete());
    net_.a.expect(10);
    net_.a.expect(11);
    EXPECT_EQ(be32toh(net_.b.expect(20).imm_data), immediate);
    expect_arrived(*to_);
}

INSTANTIATE_TEST_SUITE_P(Memory, Traffic, ::testing::ValuesIn(memory_kinds()),
                         [](const auto& kind) { return kind.param; });

} // namespace
} // namespace rdmabuf::testing
