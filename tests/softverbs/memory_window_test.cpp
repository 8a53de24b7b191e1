// SPDX-License-Identifier: BSD-3-Clause
// Memory windows. The tests use two connected queue pairs of this process: the responder binds
// windows, and the requester uses their rkeys.
#include <cstring>

#include "memory_fixture.hpp"

namespace softverbs_test {
namespace {

using UniqueMw = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;
constexpr unsigned remote_all =
    static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE) | IBV_ACCESS_REMOTE_READ;

class MemoryWindowTest : public ConnectedPairTest {
  protected:
    void SetUp() override {
        ConnectedPairTest::SetUp();
        mr_ = region(full_access | IBV_ACCESS_MW_BIND);
    }

    UniqueMr region(unsigned access) {
        UniqueMr mr(ibv_reg_mr_iova2(pd.get(), memory_.data(), memory_.length(), memory_.address(),
                                     access));
        EXPECT_NE(mr, nullptr);
        return mr;
    }
    UniqueMw window(ibv_mw_type type) {
        UniqueMw mw(ibv_alloc_mw(pd.get(), type));
        EXPECT_NE(mw, nullptr);
        return mw;
    }

    [[nodiscard]] ibv_mw_bind_info part(std::size_t offset, std::size_t length,
                                        unsigned access = remote_all) const {
        return {mr_.get(), memory_.address() + offset, length, access};
    }
    ibv_wc_status bind_1(ibv_mw* mw, const ibv_mw_bind_info& info) {
        ibv_mw_bind bind{1, IBV_SEND_SIGNALED, info};
        EXPECT_EQ(ibv_bind_mw(responder_.get(), mw, &bind), 0);
        return completion();
    }
    /// Binds a type 2 window. On success, sets mw->rkey, which no provider does.
    ibv_wc_status bind_2(ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info) {
        ibv_send_wr request{};
        request.opcode = IBV_WR_BIND_MW;
        request.bind_mw = {mw, rkey, info};
        const ibv_wc_status status = run(responder_.get(), request);
        if (status == IBV_WC_SUCCESS) {
            mw->rkey = (mw->rkey & ~0xffU) | (rkey & 0xffU);
        }
        return status;
    }
    ibv_wc_status invalidate(std::uint32_t rkey) {
        ibv_send_wr request{};
        request.opcode = IBV_WR_LOCAL_INV;
        request.invalidate_rkey = rkey;
        return run(responder_.get(), request);
    }
    ibv_wc_status access(ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address,
                         std::uint32_t length = 16) {
        return rdma(opcode, local(length), rkey, address);
    }
    ibv_wc_status write(std::uint32_t rkey, std::size_t offset, std::uint32_t length = 16) {
        return access(IBV_WR_RDMA_WRITE, rkey, memory_.address() + offset, length);
    }
    void expect_denied(ibv_wc_status got) { expect_failure(got); }
    void expect_unbound(ibv_wc_status got) { expect_failure(got, IBV_WC_MW_BIND_ERR); }

    Pages memory_{1};
    UniqueMr mr_;
};

TEST_F(MemoryWindowTest, OfType1OpensAPartOfARegion) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    const std::uint32_t before = mw->rkey;
    ASSERT_EQ(bind_1(mw.get(), part(100, 32)), IBV_WC_SUCCESS);
    EXPECT_NE(mw->rkey, before);
    ASSERT_EQ(write(mw->rkey, 116), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + 116, local_.data(), 16), 0);
    EXPECT_EQ(memory_.data()[115], std::byte{0});
    expect_denied(write(mw->rkey, 117));
    expect_denied(write(mw->rkey, 99));
    expect_denied(write(before, 100));
}

TEST_F(MemoryWindowTest, OfType1GetsAnotherKeyEachTime) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(mw.get(), part(0, 32)), IBV_WC_SUCCESS);
    const std::uint32_t first = mw->rkey;
    ASSERT_EQ(bind_1(mw.get(), part(32, 32)), IBV_WC_SUCCESS);
    EXPECT_NE(mw->rkey, first);
    EXPECT_EQ(write(mw->rkey, 32), IBV_WC_SUCCESS);
    expect_denied(write(first, 0));
    // Binding to no memory unbinds the window: its key gives no access, and the region can be
    // deregistered.
    const std::uint32_t second = mw->rkey;
    ASSERT_EQ(bind_1(mw.get(), {nullptr, 0, 0, 0}), IBV_WC_SUCCESS);
    expect_denied(write(second, 32));
    EXPECT_EQ(ibv_dereg_mr(mr_.release()), 0);
}

TEST_F(MemoryWindowTest, IsForPeersOnly) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(mw.get(), part(0, 64)), IBV_WC_SUCCESS);
    ibv_sge entry{memory_.address(), 16, mw->rkey};
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE;
    request.sg_list = &entry;
    request.num_sge = 1;
    request.wr.rdma = {memory_.address() + 16, mw->rkey};
    expect_failure(run(requester_.get(), request), IBV_WC_LOC_PROT_ERR);
}

TEST_F(MemoryWindowTest, GivesNoMoreThanItsFlags) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(mw.get(), part(0, 64, IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
    EXPECT_EQ(access(IBV_WR_RDMA_READ, mw->rkey, memory_.address()), IBV_WC_SUCCESS);
    expect_denied(write(mw->rkey, 0));
}

TEST_F(MemoryWindowTest, IsNotBoundBeyondTheRegion) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    const std::size_t size = memory_.length();
    expect_unbound(bind_2(mw.get(), rkey, part(0, size + 1)));
    expect_unbound(bind_2(mw.get(), rkey, part(size, 1)));
    expect_unbound(bind_2(mw.get(), rkey, part(~std::size_t{0}, 1)));
    expect_unbound(bind_2(mw.get(), rkey, part(8, ~std::size_t{0})));
    expect_unbound(bind_2(mw.get(), rkey, part(0, 0)));
    EXPECT_EQ(bind_2(mw.get(), rkey, part(0, size)), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindowTest, IsNotBoundToARegionThatDoesNotPermitIt) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    mr_ = region(full_access);
    expect_unbound(bind_2(mw.get(), rkey, part(0, 64)));
    mr_ = region(static_cast<unsigned>(IBV_ACCESS_REMOTE_READ) | IBV_ACCESS_MW_BIND);
    expect_unbound(bind_2(mw.get(), rkey, part(0, 64)));
    EXPECT_EQ(bind_2(mw.get(), rkey, part(0, 64, IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindowTest, IsNotBoundToARegionOfAnotherDomain) {
    const UniquePd other(ibv_alloc_pd(context.get()));
    const UniqueMr elsewhere(ibv_reg_mr_iova2(other.get(), memory_.data(), 64, memory_.address(),
                                              full_access | IBV_ACCESS_MW_BIND));
    ASSERT_NE(elsewhere, nullptr);
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    ibv_mw_bind_info info = part(0, 64);
    info.mr = elsewhere.get();
    expect_unbound(bind_2(mw.get(), ibv_inc_rkey(mw->rkey), info));
}

TEST_F(MemoryWindowTest, OfType2TakesOnlyTheLow8BitsOfTheKeyThatTheProgramChose) {
    const UniqueMw first = window(IBV_MW_TYPE_2);
    const UniqueMw second = window(IBV_MW_TYPE_2);
    const std::uint32_t index = second->rkey & ~0xffU;
    ASSERT_NE(index, first->rkey & ~0xffU);
    ASSERT_EQ(bind_2(second.get(), first->rkey ^ 0x55, part(0, 32)), IBV_WC_SUCCESS);
    const std::uint32_t key = index | ((first->rkey ^ 0x55) & 0xff);
    EXPECT_EQ(write(key, 0), IBV_WC_SUCCESS);
    EXPECT_EQ(invalidate(key), IBV_WC_SUCCESS);
    ASSERT_EQ(bind_2(second.get(), 0x77, part(0, 32)), IBV_WC_SUCCESS);
    EXPECT_EQ(write(index | 0x77, 0), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindowTest, OfType2KeepsTheKeyInItsStructureWhenTheBindIsPosted) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t before = mw->rkey;
    const std::uint32_t rkey = ibv_inc_rkey(before);
    ASSERT_EQ(modify(responder_.get(), {}, IBV_QPS_SQD, 0), 0);
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {mw.get(), rkey, part(0, 64)};
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(responder_.get(), &request, &bad), 0);
    EXPECT_TRUE(is_empty(cq_.get()));
    ASSERT_EQ(modify(responder_.get(), {}, IBV_QPS_RTS, 0), 0);
    EXPECT_EQ(completion(), IBV_WC_SUCCESS);
    EXPECT_EQ(mw->rkey, before);
    EXPECT_EQ(write(rkey, 0), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindowTest, OfType2IsNotBoundAgainWithTheOldKeyInItsStructure) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t before = mw->rkey;
    const std::uint32_t rkey = ibv_inc_rkey(before);
    ASSERT_EQ(bind_2(mw.get(), rkey, part(0, 64)), IBV_WC_SUCCESS);
    ASSERT_EQ(invalidate(rkey), IBV_WC_SUCCESS);
    mw->rkey = before;
    expect_unbound(bind_2(mw.get(), ibv_inc_rkey(rkey), part(0, 64)));
    mw->rkey = rkey;
    EXPECT_EQ(bind_2(mw.get(), ibv_inc_rkey(rkey), part(0, 64)), IBV_WC_SUCCESS);
}

TEST_F(MemoryWindowTest, MayBeBoundWithLocalWriteAmongItsAccess) {
    constexpr unsigned access = remote_all | IBV_ACCESS_LOCAL_WRITE;
    const UniqueMw first = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(first.get(), part(0, 64, access)), IBV_WC_SUCCESS);
    EXPECT_EQ(write(first->rkey, 0), IBV_WC_SUCCESS);
    const UniqueMw second = window(IBV_MW_TYPE_2);
    ASSERT_EQ(bind_2(second.get(), ibv_inc_rkey(second->rkey), part(0, 64, access)),
              IBV_WC_SUCCESS);
    EXPECT_EQ(write(second->rkey, 0), IBV_WC_SUCCESS);
    const UniqueMw third = window(IBV_MW_TYPE_2);
    ASSERT_EQ(bind_2(third.get(), ibv_inc_rkey(third->rkey), part(0, 64, IBV_ACCESS_LOCAL_WRITE)),
              IBV_WC_SUCCESS);
    expect_denied(write(third->rkey, 0));
}

TEST_F(MemoryWindowTest, OfType1IsUnboundByABindOfNoBytes) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(mw.get(), part(0, 64)), IBV_WC_SUCCESS);
    ASSERT_EQ(bind_1(mw.get(), part(0, 0)), IBV_WC_SUCCESS);
    expect_denied(write(mw->rkey, 0, 1));
    EXPECT_EQ(ibv_dereg_mr(mr_.release()), 0);
}

TEST_F(MemoryWindowTest, OfType1IsCheckedWhenTheBindIsPosted) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    const std::uint32_t rkey = mw->rkey;
    const auto error_of = [&](const ibv_mw_bind_info& info) {
        ibv_mw_bind bind{1, IBV_SEND_SIGNALED, info};
        return ibv_bind_mw(responder_.get(), mw.get(), &bind);
    };
    EXPECT_EQ(error_of({nullptr, 0, 16, 0}), EINVAL);
    EXPECT_EQ(error_of({nullptr, 16, 0, 0}), EINVAL);
    EXPECT_EQ(error_of(part(0, 64, remote_all | IBV_ACCESS_ZERO_BASED)), EINVAL);
    const UniqueMr zero_based = region(full_access | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
    EXPECT_EQ(error_of({zero_based.get(), 0, 64, remote_all}), EINVAL);
    const UniqueMr null(ibv_alloc_null_mr(pd.get()));
    ASSERT_NE(null, nullptr);
    EXPECT_EQ(error_of({null.get(), 0, 64, remote_all}), ENOTSUP);
    const UniqueMw type_2 = window(IBV_MW_TYPE_2);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED, part(0, 64)};
    EXPECT_EQ(ibv_bind_mw(responder_.get(), type_2.get(), &bind), EINVAL);
    EXPECT_EQ(mw->rkey, rkey);
    EXPECT_TRUE(is_empty(cq_.get()));
    EXPECT_EQ(bind_1(mw.get(), part(0, 64)), IBV_WC_SUCCESS) << "the queue pair still works";
}

TEST_F(MemoryWindowTest, OfType2IsNotBoundToARegionThatCountsFromZero) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    mr_ = region(full_access | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
    expect_unbound(bind_2(mw.get(), ibv_inc_rkey(mw->rkey), {mr_.get(), 0, 64, remote_all}));
}

TEST_F(MemoryWindowTest, OfAnotherDomainIsNotBoundByTheQueuePair) {
    const UniquePd other(ibv_alloc_pd(context.get()));
    const UniqueMw first(ibv_alloc_mw(other.get(), IBV_MW_TYPE_1));
    const UniqueMw second(ibv_alloc_mw(other.get(), IBV_MW_TYPE_2));
    ASSERT_TRUE(first && second);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED, part(0, 64)};
    EXPECT_EQ(ibv_bind_mw(responder_.get(), first.get(), &bind), EPERM);
    expect_unbound(bind_2(second.get(), ibv_inc_rkey(second->rkey), part(0, 64)));
}

TEST_F(MemoryWindowTest, KeepsItsRegionAsItIs) {
    UniqueMw mw = window(IBV_MW_TYPE_2);
    ASSERT_EQ(bind_2(mw.get(), ibv_inc_rkey(mw->rkey), part(0, 64)), IBV_WC_SUCCESS);
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(mr_.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                           IBV_ACCESS_LOCAL_WRITE),
              IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EBUSY);
    errno = 0;
    EXPECT_EQ(ibv_dereg_mr(mr_.get()), EBUSY);
    EXPECT_EQ(errno, EBUSY);
    expected_violations = 1;
    EXPECT_EQ(write(mw->rkey, 0), IBV_WC_SUCCESS);
    mw.reset();
    EXPECT_EQ(ibv_dereg_mr(mr_.release()), 0);
}

TEST_F(MemoryWindowTest, OfType2IsBoundOnceUntilItIsInvalidated) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t first = ibv_inc_rkey(mw->rkey);
    const std::uint32_t second = ibv_inc_rkey(first);
    ASSERT_EQ(bind_2(mw.get(), first, part(0, 32)), IBV_WC_SUCCESS);
    ASSERT_EQ(invalidate(first), IBV_WC_SUCCESS);
    ASSERT_EQ(bind_2(mw.get(), second, part(32, 32)), IBV_WC_SUCCESS);
    EXPECT_EQ(write(second, 32), IBV_WC_SUCCESS);
    expect_unbound(bind_2(mw.get(), ibv_inc_rkey(second), part(0, 32)));
}

TEST_F(MemoryWindowTest, OfType2MayCountFromZero) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(bind_2(mw.get(), rkey, part(100, 32, remote_all | IBV_ACCESS_ZERO_BASED)),
              IBV_WC_SUCCESS);
    ASSERT_EQ(access(IBV_WR_RDMA_WRITE, rkey, 16), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + 116, local_.data(), 16), 0);
    expect_denied(access(IBV_WR_RDMA_WRITE, rkey, 17));
}

TEST_F(MemoryWindowTest, OfType2IsGoneOnceInvalidated) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(bind_2(mw.get(), rkey, part(0, 64)), IBV_WC_SUCCESS);
    ASSERT_EQ(write(rkey, 0), IBV_WC_SUCCESS);
    ASSERT_EQ(invalidate(rkey), IBV_WC_SUCCESS);
    expect_denied(write(rkey, 0));
    EXPECT_EQ(ibv_dereg_mr(mr_.release()), 0);
}

TEST_F(MemoryWindowTest, OfType2IsInvalidatedBySends) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(bind_2(mw.get(), rkey, part(0, 64)), IBV_WC_SUCCESS);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(responder_.get(), &receive, &bad_receive), 0);
    ibv_send_wr request{};
    ibv_send_wr* bad = nullptr;
    request.opcode = IBV_WR_SEND_WITH_INV;
    request.invalidate_rkey = rkey;
    request.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(requester_.get(), &request, &bad), 0);
    bool told = false;
    for (const ibv_wc& wc : poll(cq_.get(), 2)) {
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.opcode == IBV_WC_RECV) {
            told = (wc.wc_flags & IBV_WC_WITH_INV) != 0 && wc.invalidated_rkey == rkey;
        }
    }
    EXPECT_TRUE(told);
    expect_denied(write(rkey, 0));
}

TEST_F(MemoryWindowTest, OfType2BelongsToItsQueuePair) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ibv_send_wr request{};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw = {mw.get(), rkey, part(0, 64)};
    // The window is bound on the requester. Only requests of the responder may use it.
    ASSERT_EQ(run(requester_.get(), request), IBV_WC_SUCCESS);
    expect_denied(write(rkey, 0));
}

TEST_F(MemoryWindowTest, OfType2EndsWithItsQueuePair) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(bind_2(mw.get(), rkey, part(0, 64)), IBV_WC_SUCCESS);
    connect_again();
    expect_denied(write(rkey, 0));
    ASSERT_EQ(bind_2(mw.get(), rkey, part(0, 64)), IBV_WC_SUCCESS);
    responder_.reset();
    EXPECT_EQ(ibv_dereg_mr(mr_.release()), 0);
}

TEST_F(MemoryWindowTest, OfARegionThatIsRevokedOpensNothing) {
    const UniqueMw mw = window(IBV_MW_TYPE_1);
    ASSERT_EQ(bind_1(mw.get(), part(0, 64)), IBV_WC_SUCCESS);
    ASSERT_EQ(softverbs_revoke_mr(mr_.get()), 0);
    expect_denied(write(mw->rkey, 0));
}

TEST_F(MemoryWindowTest, IsNotBoundToWhatHasGoneSince) {
    const UniqueMw mw = window(IBV_MW_TYPE_2);
    const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
    const ibv_mw_bind_info info = part(0, 64);
    ASSERT_EQ(ibv_dereg_mr(mr_.release()), 0);
    expect_unbound(bind_2(mw.get(), rkey, info));
}

TEST_F(MemoryWindowTest, TheMlx5ProviderPostsNoBindOfMoreThan2GiB) {
    requester_.reset();
    responder_.reset();
    mr_.reset();
    local_mr_.reset();
    cq_.reset();
    use("mlx5");
    cq_ = make_cq(16);
    responder_ = make_qp(IBV_QPT_RC, cq_.get());
    connect(responder_.get(), responder_->qp_num);
    const UniqueMr whole(
        ibv_reg_mr(pd.get(), nullptr, SIZE_MAX,
                   static_cast<int>(full_access | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND)));
    ASSERT_NE(whole, nullptr);
    constexpr std::uint64_t most = std::uint64_t{1} << 31U;
    const UniqueMw two = window(IBV_MW_TYPE_2);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = two.get();
    wr.bind_mw.rkey = ibv_inc_rkey(two->rkey);
    wr.bind_mw.bind_info = {whole.get(), memory_.address(), most + 1, remote_all};
    ibv_send_wr* bad = nullptr;
    const std::uint32_t key = two->rkey;
    EXPECT_EQ(ibv_post_send(responder_.get(), &wr, &bad), EOPNOTSUPP);
    EXPECT_EQ(bad, &wr);
    EXPECT_EQ(two->rkey, key);
    const UniqueMw one = window(IBV_MW_TYPE_1);
    ibv_mw_bind bind{1, IBV_SEND_SIGNALED, wr.bind_mw.bind_info};
    EXPECT_EQ(ibv_bind_mw(responder_.get(), one.get(), &bind), EOPNOTSUPP);
    wr.bind_mw.bind_info.length = most;
    EXPECT_EQ(ibv_post_send(responder_.get(), &wr, &bad), 0);
    EXPECT_EQ(completion(), IBV_WC_SUCCESS);
}

} // namespace
} // namespace softverbs_test
