// SPDX-License-Identifier: BSD-3-Clause
// Memory regions of host memory. The tests have the names and purposes of MRTest and MWTest in
// pyverbs (rdma-core) that need no second queue pair.
#include <array>
#include <set>

#include "memory_fixture.hpp"

namespace softverbs_test {
namespace {

class MRTest : public MemoryTest {
  protected:
    Pages memory_{4};

    int registration_error(void* address, std::size_t length, unsigned access) {
        return error_of([&] { return reg(address, length, access); });
    }
    int registration_error(unsigned access) {
        return registration_error(memory_.data(), 64, access);
    }
};

TEST_F(MRTest, RegMr) {
    ibv_mr* const mr = reg(memory_.data() + 16, 100, full_access);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, memory_.data() + 16);
    EXPECT_EQ(mr->length, 100U);
    EXPECT_EQ(mr->pd, pd.get());
    EXPECT_EQ(mr->context, context.get());
    EXPECT_NE(mr->lkey, 0U);
    EXPECT_NE(mr->rkey, mr->lkey);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
}

TEST_F(MRTest, RegMrBadFlags) {
    EXPECT_EQ(registration_error(IBV_ACCESS_REMOTE_WRITE), EINVAL);
    EXPECT_EQ(registration_error(IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ), EINVAL);
    EXPECT_EQ(registration_error(full_access | 1U << 12U), EINVAL);
    EXPECT_EQ(registration_error(full_access | 1U << 30U), EINVAL);
}

TEST_F(MRTest, RegMrTakesAllFlagsThatMayBeIgnored) {
    EXPECT_EQ(registration_error(full_access | IBV_ACCESS_RELAXED_ORDERING | 1U << 29U), 0);
    EXPECT_EQ(registration_error(full_access | IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND), 0);
    EXPECT_EQ(registration_error(0), 0);
}

TEST_F(MRTest, OfNoBytesIsAcceptedWithinAPageThatIsMapped) {
    EXPECT_EQ(registration_error(memory_.data(), 0, IBV_ACCESS_LOCAL_WRITE), EINVAL)
        << "it has no page";
    EXPECT_EQ(registration_error(nullptr, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    EXPECT_EQ(registration_error(memory_.data() + 1, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    EXPECT_EQ(registration_error(memory_.data() + memory_.length() + 1, 0, 0), EFAULT);
    ibv_mr* const mr = reg(memory_.data() + 1, 0, full_access);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->length, 0U);
    EXPECT_NE(mr->lkey, 0U);
    errno = 0;
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory_.data() + 1, 0, 0),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MRTest, AroundTheEndOfTheAddressSpaceIsRefused) {
    EXPECT_EQ(registration_error(memory_.data(), SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    auto* const last_page = reinterpret_cast<void*>(~std::uintptr_t{0} - Pages::page() + 1);
    EXPECT_EQ(registration_error(last_page, 2 * Pages::page(), IBV_ACCESS_LOCAL_WRITE), EINVAL);
}

TEST_F(MRTest, OfMemoryThatIsNotThereIsRefused) {
    EXPECT_EQ(registration_error(nullptr, 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    EXPECT_EQ(registration_error(memory_.data(), memory_.length() + 1, IBV_ACCESS_LOCAL_WRITE),
              EFAULT);
    EXPECT_EQ(registration_error(memory_.data(), memory_.length() + 1, 0), EFAULT);
    EXPECT_EQ(registration_error(memory_.data(), memory_.length(), IBV_ACCESS_LOCAL_WRITE), 0);
}

TEST_F(MRTest, OfReadOnlyMemoryIsForReadingOnly) {
    memory_.protect(PROT_READ);
    EXPECT_EQ(registration_error(memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE), EFAULT);
    EXPECT_EQ(registration_error(memory_.data(), 64, IBV_ACCESS_MW_BIND), EFAULT);
    EXPECT_EQ(registration_error(memory_.data(), 64, IBV_ACCESS_REMOTE_READ), 0);
}

TEST_F(MRTest, OnDemandIsNotLookedAtBefore) {
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
    EXPECT_EQ(registration_error(memory_.data(), memory_.length() + 1, access), 0);
    EXPECT_EQ(registration_error(nullptr, SIZE_MAX, access), 0);
}

TEST_F(MRTest, ofTheWholeAddressSpaceNeedsADeviceThatCan) {
    const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
    EXPECT_EQ(registration_error(nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    change_device([](ibv_device_attr_ex& device) {
        device.odp_caps.general_caps &= ~std::uint64_t{IBV_ODP_SUPPORT_IMPLICIT};
    });
    EXPECT_EQ(registration_error(nullptr, SIZE_MAX, access), EINVAL);
}

TEST_F(MRTest, OnDemandNeedsADeviceThatCan) {
    change_device([](ibv_device_attr_ex& device) { device.odp_caps.general_caps = 0; });
    EXPECT_EQ(registration_error(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    EXPECT_EQ(registration_error(IBV_ACCESS_LOCAL_WRITE), 0);
}

TEST_F(MRTest, LongerThanTheDeviceTakesIsRefused) {
    change_device([](ibv_device_attr_ex& device) { device.orig_attr.max_mr_size = Pages::page(); });
    EXPECT_EQ(registration_error(memory_.data(), Pages::page() + 1, IBV_ACCESS_LOCAL_WRITE),
              EINVAL);
    EXPECT_EQ(registration_error(memory_.data(), Pages::page(), IBV_ACCESS_LOCAL_WRITE), 0);
}

TEST_F(MRTest, AnIovaSharesThePageOffsetOfTheAddress) {
    const auto with = [&](std::uint64_t iova) {
        return error_of(
            [&] { return ibv_reg_mr_iova2(pd.get(), memory_.data() + 24, 64, iova, full_access); });
    };
    EXPECT_EQ(with(24), 0);
    EXPECT_EQ(with(16 * Pages::page() + 24), 0);
    EXPECT_EQ(with(0), EINVAL);
    EXPECT_EQ(with(25), EINVAL);
    EXPECT_EQ(with(~std::uint64_t{0} - Pages::page() + 25), 0);
}

TEST_F(MRTest, KeysAreNotGivenOutAgainSoon) {
    std::set<std::uint32_t> keys;
    for (int count = 0; count < 20000; ++count) {
        ibv_mr* const mr = reg(memory_.data(), 64, 0);
        ASSERT_NE(mr, nullptr);
        EXPECT_TRUE(keys.insert(mr->lkey).second);
        EXPECT_FALSE(keys.contains(0));
        ASSERT_EQ(ibv_dereg_mr(mr), 0);
    }
}

TEST_F(MRTest, KeepsItsProtectionDomain) {
    ibv_mr* const mr = reg(memory_.data(), 64, 0);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    expected_violations = 1;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// Tests of ibv_rereg_mr()

class ReregMRTest : public MRTest {
  protected:
    void SetUp() override {
        MRTest::SetUp();
        mr_ = reg(memory_.data(), 64, IBV_ACCESS_LOCAL_WRITE);
        ASSERT_NE(mr_, nullptr);
    }
    void TearDown() override {
        destroy(mr_);
        MRTest::TearDown();
    }
    struct Answer {
        int code;
        int error;
        bool operator==(const Answer&) const = default;
    };
    Answer rereg(int flags, void* address = nullptr, std::size_t length = 0, unsigned access = 0,
                 ibv_pd* new_pd = nullptr) {
        errno = 0;
        const int code =
            ibv_rereg_mr(mr_, flags, new_pd, address, length, static_cast<int>(access));
        return {code, errno};
    }
    ibv_mr* mr_ = nullptr;
};

TEST_F(ReregMRTest, MovesToAnotherProtectionDomain) {
    ibv_pd* const other = ibv_alloc_pd(context.get());
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0, other).code, 0);
    EXPECT_EQ(mr_->pd, other);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    expected_violations = 1;
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0, pd.get()).code, 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(ReregMRTest, MovesToOtherMemory) {
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, memory_.data() + 100, 32).code, 0);
    EXPECT_EQ(mr_->addr, memory_.data() + 100);
    EXPECT_EQ(mr_->length, 32U);
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, memory_.data(), memory_.length() + 1),
              (Answer{IBV_REREG_MR_ERR_CMD, EFAULT}));
    EXPECT_EQ(mr_->length, 32U);
}

TEST_F(ReregMRTest, RefusesWhatMakesNoSense) {
    const Answer input{IBV_REREG_MR_ERR_INPUT, EINVAL};
    EXPECT_EQ(rereg(8), input);
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 64), input);
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, memory_.data(), 0), input);
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, IBV_ACCESS_LOCAL_WRITE, pd.get()), input);
    EXPECT_EQ(rereg(0), (Answer{IBV_REREG_MR_ERR_CMD, EINVAL}));
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
              (Answer{IBV_REREG_MR_ERR_CMD, EINVAL}));
}

TEST_F(ReregMRTest, IsForHostMemoryOnly) {
    const MemFd file(Pages::page());
    ibv_mr* const host = mr_;
    mr_ = ibv_reg_dmabuf_mr(pd.get(), 0, Pages::page(), 0, file.get(), IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr_, nullptr);
    EXPECT_EQ(rereg(IBV_REREG_MR_CHANGE_PD, nullptr, 0, 0, pd.get()),
              (Answer{IBV_REREG_MR_ERR_INPUT, EINVAL}));
    destroy(mr_);
    mr_ = host;
}

// Tests of ibv_advise_mr()

class AdviseMRTest : public MRTest {
  protected:
    int advise(ibv_pd* domain, ibv_sge entry,
               ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH,
               std::uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) {
        return ibv_advise_mr(domain, advice, flags, &entry, 1);
    }
};

TEST_F(AdviseMRTest, PrefetchesMemoryOnDemand) {
    ibv_mr* const mr = reg(memory_.data(), memory_.length() + Pages::page(),
                           static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) | IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    const auto length = static_cast<std::uint32_t>(memory_.length());
    std::array<unsigned char, 4> present{};
    EXPECT_EQ(advise(pd.get(), {memory_.address(), length, mr->lkey},
                     IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE),
              0);
    ASSERT_EQ(::mincore(memory_.data(), memory_.length(), present.data()), 0);
    EXPECT_EQ(present, (std::array<unsigned char, 4>{1, 1, 1, 1}));
    // EFAULT: the page is not mapped, or the range is not within the region.
    EXPECT_EQ(advise(pd.get(), {memory_.address(), length + 1, mr->lkey}), EFAULT);
    EXPECT_EQ(advise(pd.get(), {memory_.address() - 1, 1, mr->lkey}), EFAULT);
    EXPECT_EQ(advise(pd.get(), {memory_.address(), 64, mr->lkey + 1}), ENOENT);
    EXPECT_EQ(advise(pd.get(), {memory_.address(), 64, mr->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH, 2),
              EINVAL);
    ibv_pd* const other = ibv_alloc_pd(context.get());
    EXPECT_EQ(advise(other, {memory_.address(), 64, mr->lkey}), EPERM);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    destroy(mr);
}

TEST_F(AdviseMRTest, PrefetchForWritingNeedsWriteAccess) {
    ibv_mr* const mr = reg(memory_.data(), 64, IBV_ACCESS_ON_DEMAND);
    ASSERT_NE(mr, nullptr);
    const ibv_sge entry{memory_.address(), 64, mr->lkey};
    EXPECT_EQ(advise(pd.get(), entry, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EPERM);
    EXPECT_EQ(advise(pd.get(), entry, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT), 0);
    destroy(mr);
}

TEST_F(AdviseMRTest, MemoryThatIsPinnedNeedsNone) {
    ibv_mr* const mr = reg(memory_.data(), 64, 0);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(advise(pd.get(), {memory_.address(), 64, mr->lkey}), ENOENT);
    destroy(mr);
}

TEST_F(AdviseMRTest, AboutNothingIsRefused) {
    EXPECT_EQ(ibv_advise_mr(pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0), EINVAL);
}

TEST_F(AdviseMRTest, IsOnlyForDevicesThatDoWithoutPinning) {
    use("efa");
    EXPECT_EQ(registration_error(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND), EOPNOTSUPP);
    EXPECT_EQ(advise(pd.get(), {memory_.address(), 64, 1}), EOPNOTSUPP);
}

// Tests of windows and null regions without a queue pair

class MWTest : public MemoryTest {};

TEST_F(MWTest, RegMw) {
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
        ibv_mw* const mw = ibv_alloc_mw(pd.get(), type);
        ASSERT_NE(mw, nullptr);
        EXPECT_EQ(mw->type, type);
        EXPECT_EQ(mw->pd, pd.get());
        EXPECT_EQ(mw->context, context.get());
        EXPECT_NE(mw->rkey, 0U);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MW), 1U);
        EXPECT_EQ(ibv_dealloc_mw(mw), 0);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MW), 0U);
    }
}

TEST_F(MWTest, RegMwWrongType) {
    EXPECT_EQ(error_of([&] { return ibv_alloc_mw(pd.get(), static_cast<ibv_mw_type>(3)); }),
              EINVAL);
}

TEST_F(MWTest, KeepsItsProtectionDomain) {
    ibv_mw* const mw = ibv_alloc_mw(pd.get(), IBV_MW_TYPE_2);
    ASSERT_NE(mw, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    expected_violations = 1;
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(MWTest, ANullRegionHasNoRemoteKey) {
    ibv_mr* const mr = ibv_alloc_null_mr(pd.get());
    ASSERT_NE(mr, nullptr);
    EXPECT_NE(mr->lkey, 0U);
    EXPECT_EQ(mr->rkey, 0U);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

} // namespace
} // namespace softverbs_test
