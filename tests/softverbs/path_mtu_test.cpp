// SPDX-License-Identifier: BSD-3-Clause
// Two queue pairs with different path MTUs. A message that both ends divide into the same packets
// arrives. Any other message has packets of an invalid length (InfiniBand specification, C9-92).
#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

constexpr std::uint32_t shorter = 1024;

struct Mtus {
    ibv_mtu from;
    ibv_mtu to;
};

class PathMtu : public PairTest, public ::testing::WithParamInterface<Mtus> {
  protected:
    void start(ibv_qp_type type = IBV_QPT_RC) {
        make(type);
        join(
            a, b, [](ibv_qp_attr& attr) { attr.path_mtu = GetParam().from; },
            [](ibv_qp_attr& attr) { attr.path_mtu = GetParam().to; });
        a.fill(std::byte{1});
        b.fill(std::byte{2});
    }
    /// Sends a request that the responder must reject.
    void expect_invalid(ibv_wr_opcode opcode, std::uint32_t length) {
        start();
        receive(b, 1, length);
        ASSERT_EQ(post(a, Request(a, b, opcode, 2, length)), 0);
        expect(a, 2, IBV_WC_REM_INV_REQ_ERR);
        expect(b, 1, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(a.state(), IBV_QPS_ERR);
        EXPECT_EQ(b.state(), IBV_QPS_ERR);
        const auto event = next_event();
        ASSERT_TRUE(event.has_value());
        EXPECT_EQ(event->event_type, IBV_EVENT_QP_REQ_ERR);
        EXPECT_EQ(b.memory.front(), std::byte{2});
    }
};

INSTANTIATE_TEST_SUITE_P(From, PathMtu,
                         ::testing::Values(Mtus{IBV_MTU_4096, IBV_MTU_1024},
                                           Mtus{IBV_MTU_1024, IBV_MTU_4096}),
                         [](const auto& value) {
                             return value.param.from == IBV_MTU_4096 ? "Longer" : "Shorter";
                         });

TEST_P(PathMtu, CarriesMessagesOfOnePacket) {
    start();
    for (const std::uint32_t length : {0U, 1U, shorter}) {
        receive(b, 1, length);
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_SEND, 2, length)), 0);
        expect(a, 2, IBV_WC_SUCCESS);
        EXPECT_EQ(expect(b, 1, IBV_WC_SUCCESS).byte_len, length);
    }
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 3, shorter, 5000)), 0);
    expect(a, 3, IBV_WC_SUCCESS);
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_READ, 4, shorter, 10000)), 0);
    expect(a, 4, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory[shorter - 1], std::byte{1});
    EXPECT_EQ(b.memory[5000 + shorter - 1], std::byte{1});
    EXPECT_EQ(a.memory[10000 + shorter - 1], std::byte{2});
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 8)), 0);
    expect(a, 5, IBV_WC_SUCCESS);
}

TEST_P(PathMtu, RejectsLongerMessages) {
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE}) {
        for (const std::uint32_t length : {shorter + 1, 100'000U}) {
            SCOPED_TRACE(length);
            expect_invalid(opcode, length);
        }
    }
}

TEST_P(PathMtu, EndsLongerReadsAtTheRequester) {
    for (const std::uint32_t length : {shorter + 1, 100'000U}) {
        SCOPED_TRACE(length);
        start();
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_READ, 2, length)), 0);
        expect(a, 2, IBV_WC_LOC_LEN_ERR);
        EXPECT_EQ(a.state(), IBV_QPS_ERR);
        EXPECT_EQ(a.memory.front(), std::byte{1});
    }
}

TEST_P(PathMtu, LosesLongerMessagesOfUnreliableConnections) {
    start(IBV_QPT_UC);
    for (const std::uint32_t length : {shorter + 1, 100'000U}) {
        ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 1, length)), 0);
        expect(a, 1, IBV_WC_SUCCESS);
        EXPECT_EQ(b.memory.front(), std::byte{2});
    }
    ASSERT_EQ(post(a, Request(a, b, IBV_WR_RDMA_WRITE, 2, shorter)), 0);
    expect(a, 2, IBV_WC_SUCCESS);
    EXPECT_EQ(b.memory.front(), std::byte{1});
}

} // namespace
