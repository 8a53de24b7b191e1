// SPDX-License-Identifier: BSD-3-Clause
#include "pair_test.hpp"

namespace {

using namespace softverbs_test;

class AtomicWrite : public PairTest {
  protected:
    void begin() {
        make(IBV_QPT_RC, [](ibv_qp_init_attr_ex& init) {
            init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE;
            init.cap.max_inline_data = 0;
        });
        join();
    }
    void write(std::uint64_t id, std::uint64_t address, std::uint64_t value) const {
        ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a.qp.get());
        ibv_wr_start(qp);
        qp->wr_id = id;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_atomic_write(qp, b.mr->rkey, address, &value);
        value = 0; // it was copied
        ASSERT_EQ(ibv_wr_complete(qp), 0);
    }
};

TEST_F(AtomicWrite, writesEightBytes) {
    begin();
    write(1, b.address(16), 0x1122334455667788);
    EXPECT_EQ(expect(a, 1, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
    EXPECT_EQ(b.number(16), 0x1122334455667788U);
    EXPECT_EQ(b.number(8), 0U);
    EXPECT_EQ(b.number(24), 0U);
}

TEST_F(AtomicWrite, needsAnAlignedAddress) {
    begin();
    write(1, b.address(4), 1);
    expect(a, 1, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(b.number(4), 0U);
    expect_event(b, IBV_EVENT_QP_REQ_ERR);
}

TEST_F(AtomicWrite, needsAccessToWrite) {
    make();
    b.mr.reset();
    b.mr = make_mr(b.memory.data(), memory_size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    begin();
    write(1, b.address(), 1);
    expect(a, 1, IBV_WC_REM_ACCESS_ERR);
    expect_event(b, IBV_EVENT_QP_ACCESS_ERR);
}

} // namespace
