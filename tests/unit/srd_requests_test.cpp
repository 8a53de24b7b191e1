// SPDX-License-Identifier: BSD-3-Clause
// Messages and RDMA of SRD queue pairs.
#include <endian.h>

#include <algorithm>
#include <array>

#include "srd_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::caps_rdma_write;
using testing::efadv_calls;
using testing::Srd;
using testing::SrdProcess;

// Messages

TEST_F(Srd, MessageGoesToTheDestinationOfTheRequest) {
    start();
    SrdProcess c(*context_);
    c.start(options());
    testing::fill(a_->memory, 3);
    ASSERT_TRUE(b_->qp->post_recv(b_->sge(0, 8928), 1));
    ASSERT_TRUE(c.qp->post_recv(c.sge(0, 8928), 2));
    ASSERT_TRUE(a_->qp->post_send_to(a_->sge(0, 8928), b(), {.wr_id = 3}));
    EXPECT_EQ(a_->expect(3).opcode, IBV_WC_SEND);
    const WorkCompletion received = b_->expect(1);
    EXPECT_EQ(received.byte_len, 8928U);
    EXPECT_EQ(received.src_qp, a_->qp->number());
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + 8928, b_->memory.begin()));
    // The address handle is of the port, so it also leads to c, which is on the same port.
    WorkBatch batch = a_->qp->batch();
    const ibv_sge entry = a_->sge(100, 50);
    batch.send_to({&entry, 1}, to_b_->destination(c.address), {.wr_id = 4});
    ASSERT_TRUE(batch.complete());
    a_->expect(4);
    EXPECT_EQ(c.expect(2).byte_len, 50U);
    EXPECT_TRUE(std::equal(c.memory.begin(), c.memory.begin() + 50, a_->memory.begin() + 100));
}

// RDMA

TEST_F(Srd, WritesToAndReadsFromThePeer) {
    constexpr std::size_t size = 300'000;
    start();
    let_b_know_a();
    testing::fill(a_->memory, 5);
    ASSERT_TRUE(a_->qp->post_write_to(a_->sge(0, size), b(), memory_of_b(3), {.wr_id = 1}));
    EXPECT_EQ(a_->expect(1).opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(b_->memory[2], std::byte{0});
    EXPECT_TRUE(std::equal(a_->memory.begin(), a_->memory.begin() + size, b_->memory.begin() + 3));
    EXPECT_EQ(b_->memory[size + 3], std::byte{0});
    ASSERT_TRUE(a_->qp->post_read_from(a_->sge(500'000, size), b(), memory_of_b(3), {.wr_id = 2}));
    EXPECT_EQ(a_->expect(2).opcode, IBV_WC_SEND); // libefa reports reads so
    EXPECT_TRUE(
        std::equal(a_->memory.begin(), a_->memory.begin() + size, a_->memory.begin() + 500'000));
}

TEST_F(Srd, RequestsOfOneBatchGoToSeveralPeers) {
    start();
    let_b_know_a();
    SrdProcess c(*context_);
    c.start(options());
    const AddressHandle a_at_c(c.pd, a_->address, {});
    testing::fill(a_->memory, 7);
    const ibv_sge entry = a_->sge(0, 100);
    const ibv_sge result = a_->sge(1000, 100);
    b_->memory[200] = std::byte{0x5a};
    WorkBatch batch = a_->qp->batch();
    batch.write_to({&entry, 1}, to_b_->destination(c.address), c.region.remote().at(0),
                   {.wr_id = 1});
    batch.read_from({&result, 1}, b(), memory_of_b(200), {.wr_id = 2});
    ASSERT_TRUE(batch.complete());
    std::array<std::uint64_t, 2> completed{a_->next().wr_id, a_->next().wr_id};
    std::ranges::sort(completed);
    EXPECT_EQ(completed, (std::array<std::uint64_t, 2>{1, 2}));
    EXPECT_TRUE(std::equal(c.memory.begin(), c.memory.begin() + 100, a_->memory.begin()));
    EXPECT_EQ(a_->memory[1000], std::byte{0x5a});
}

TEST_F(Srd, RdmaThatTheDeviceLacksIsRefused) {
    efadv_calls.removed_caps = caps_rdma_write | EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    start();
    EXPECT_FALSE(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()));
    EXPECT_FALSE(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1));
    EXPECT_FALSE(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()));
    // libefa has no functions for operations that a queue pair was created without.
    ibv_qp_ex* const native = ibv_qp_to_qp_ex(a_->qp->native());
    native->wr_rdma_write = nullptr;
    native->wr_rdma_write_imm = nullptr;
    native->wr_rdma_read = nullptr;
    EXPECT_EQ(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    expect_usable();
}

TEST_F(Srd, RdmaNeedsTheExtendedInterface) {
    QueuePairOptions wanted = options();
    wanted.extended = ExtendedInterface::off;
    start(wanted);
    EXPECT_FALSE(a_->qp->extended());
    EXPECT_EQ(a_->qp->post_write_to(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_write_imm_to(a_->sge(0, 8), b(), memory_of_b(), 1), Status(EOPNOTSUPP));
    EXPECT_EQ(a_->qp->post_read_from(a_->sge(0, 8), b(), memory_of_b()), Status(EOPNOTSUPP));
    expect_usable(); // messages are posted with ibv_post_send
}

} // namespace
} // namespace rdmabuf
