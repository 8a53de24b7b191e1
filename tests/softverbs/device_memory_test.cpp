// SPDX-License-Identifier: BSD-3-Clause
// The tests have the names and purposes of DMTest and DeviceMemoryAPITest in pyverbs (rdma-core).
#include <array>
#include <cstring>
#include <limits>

#include "memory_fixture.hpp"

// Older headers do not declare this function.
extern "C" int ibv_dm_export_dmabuf_fd(ibv_dm* dm);

namespace softverbs_test {
namespace {

class DMTest : public MemoryTest {
  protected:
    void SetUp() override {
        MemoryTest::SetUp();
        change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 4096; });
        host_.fill(7);
    }
    ibv_dm* alloc(std::size_t length, std::uint32_t log_align = 0, std::uint32_t comp_mask = 0) {
        ibv_alloc_dm_attr wanted{length, log_align, comp_mask};
        return ibv_alloc_dm(context.get(), &wanted);
    }
    int allocation_error(std::size_t length, std::uint32_t log_align = 0,
                         std::uint32_t comp_mask = 0) {
        return error_of([&] { return alloc(length, log_align, comp_mask); });
    }
    std::array<unsigned char, 256> host_{};
};

TEST_F(DMTest, CreateDm) {
    ibv_dm* const dm = alloc(4096, 6);
    ASSERT_NE(dm, nullptr);
    EXPECT_EQ(dm->context, context.get());
    EXPECT_EQ(dm->comp_mask, static_cast<std::uint32_t>(IBV_DM_MASK_HANDLE));
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 1U);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 0U);
}

TEST_F(DMTest, CreateDmBadFlow) {
    EXPECT_EQ(allocation_error(4097), EINVAL);
    EXPECT_EQ(allocation_error(0), EINVAL);
    EXPECT_EQ(allocation_error(64, 20), EINVAL);
    EXPECT_EQ(allocation_error(64, 0, 1), EINVAL);
    EXPECT_EQ(allocation_error(std::numeric_limits<std::size_t>::max()), EINVAL);
}

TEST_F(DMTest, IsUsedUp) {
    ibv_dm* const most = alloc(4000);
    ASSERT_NE(most, nullptr);
    EXPECT_EQ(allocation_error(97), ENOMEM); // 4000 bytes take 4032 of the device
    EXPECT_EQ(allocation_error(64), 0);
    EXPECT_EQ(allocation_error(65), ENOMEM);
    EXPECT_EQ(ibv_free_dm(most), 0);
    EXPECT_EQ(allocation_error(4096), 0);
}

TEST_F(DMTest, IsUsedUpWhenATestSaysSo) {
    ASSERT_EQ(softverbs_set_faults("dm=exhausted"), 0);
    EXPECT_EQ(allocation_error(64), ENOMEM);
    EXPECT_EQ(allocation_error(0), EINVAL);
    softverbs_clear_faults();
    EXPECT_EQ(allocation_error(64), 0);
}

TEST_F(DMTest, DmWriteAndRead) {
    ibv_dm* const dm = alloc(128);
    ASSERT_NE(dm, nullptr);
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 16, host_.data(), 64), 0);
    std::array<unsigned char, 128> back{};
    back.fill(1);
    EXPECT_EQ(ibv_memcpy_from_dm(back.data(), dm, 0, 128), 0);
    for (std::size_t index = 0; index < back.size(); ++index) {
        EXPECT_EQ(back[index], index >= 16 && index < 80 ? 7 : 0) << index;
    }
    EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DMTest, DmWriteAndReadBadFlow) {
    ibv_dm* const dm = alloc(100); // though 128 were taken
    ASSERT_NE(dm, nullptr);
    constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    for (const auto& [offset, length] : {std::pair<std::uint64_t, std::size_t>{100, 4},
                                         {0, 104},
                                         {96, 8},
                                         {max - 3, 4},
                                         {4, max}}) {
        EXPECT_EQ(ibv_memcpy_to_dm(dm, offset, host_.data(), length), EFAULT);
        EXPECT_EQ(ibv_memcpy_from_dm(host_.data(), dm, offset, length), EFAULT);
    }
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 96, host_.data(), 4), 0);
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 100, host_.data(), 0), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DMTest, CopyFunctionsAreMissingAsInProvidersThatNeverSetThem) {
    const unsigned none = softverbs_features(0) & ~unsigned{SOFTVERBS_FEATURE_DM_COPY} &
                          ~unsigned{SOFTVERBS_FEATURE_DM_COPY_GARBAGE};
    ASSERT_EQ(softverbs_set_features(0, none), 0);
    ibv_dm* dm = alloc(64);
    ASSERT_NE(dm, nullptr);
    EXPECT_EQ(dm->memcpy_to_dm, nullptr);
    EXPECT_EQ(dm->memcpy_from_dm, nullptr);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    ASSERT_EQ(softverbs_set_features(0, none | SOFTVERBS_FEATURE_DM_COPY_GARBAGE), 0);
    dm = alloc(64);
    ASSERT_NE(dm, nullptr);
    EXPECT_LT(reinterpret_cast<std::uintptr_t>(dm->memcpy_to_dm), Pages::page());
    EXPECT_NE(dm->memcpy_to_dm, nullptr);
    EXPECT_NE(dm->memcpy_from_dm, nullptr);
    EXPECT_EQ(ibv_free_dm(dm), 0);
}

TEST_F(DMTest, OfAConnectXTakesPagesAndIsCopiedByWords) {
    use("mlx5");
    change_device([](ibv_device_attr_ex& device) { device.max_dm_size = 8192; });
    ibv_dm* const one = alloc(1);
    ibv_dm* const other = alloc(100);
    ASSERT_NE(one, nullptr);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(allocation_error(1), ENOMEM);
    for (const auto& [offset, length] :
         {std::pair<std::uint64_t, std::size_t>{2, 4}, {4, 6}, {1, 1}}) {
        EXPECT_EQ(ibv_memcpy_to_dm(other, offset, host_.data(), length), EINVAL);
        EXPECT_EQ(ibv_memcpy_from_dm(host_.data(), other, offset, length), EINVAL);
    }
    EXPECT_EQ(ibv_memcpy_to_dm(other, 99, host_.data(), 2), EFAULT); // which it looks at first
    EXPECT_EQ(ibv_memcpy_to_dm(other, 4, host_.data(), 96), 0);
    EXPECT_EQ(ibv_free_dm(one), 0);
    EXPECT_EQ(ibv_free_dm(other), 0);
}

TEST_F(DMTest, OfADeviceWithoutAnyIsNotSupported) {
    use("rxe");
    EXPECT_EQ(allocation_error(64), EOPNOTSUPP);
}

class DeviceMemoryAPITest : public DMTest {
  protected:
    void SetUp() override {
        DMTest::SetUp();
        dm_ = alloc(100);
        ASSERT_NE(dm_, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(ibv_free_dm(dm_), 0);
        DMTest::TearDown();
    }
    ibv_mr* reg_dm(std::uint64_t offset, std::size_t length,
                   unsigned access = full_access | IBV_ACCESS_ZERO_BASED) {
        return ibv_reg_dm_mr(pd.get(), dm_, offset, length, access);
    }
    int dm_refusal(std::uint64_t offset, std::size_t length,
                   unsigned access = full_access | IBV_ACCESS_ZERO_BASED) {
        return error_of([&] { return reg_dm(offset, length, access); });
    }
    ibv_dm* dm_ = nullptr;
};

TEST_F(DeviceMemoryAPITest, CreateDmMr) {
    ibv_mr* const mr = reg_dm(40, 60);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->addr, nullptr);
    EXPECT_EQ(mr->length, 60U);
    EXPECT_EQ(mr->pd, pd.get());
    EXPECT_NE(mr->lkey, 0U);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DeviceMemoryAPITest, DmBadRegistration) {
    EXPECT_EQ(dm_refusal(0, 101), EINVAL);
    EXPECT_EQ(dm_refusal(40, 61), EINVAL);
    EXPECT_EQ(dm_refusal(101, 0), EINVAL);
    EXPECT_EQ(dm_refusal(0, 0), 0) << "as the kernel: it gives no access to any byte";
    EXPECT_EQ(dm_refusal(std::numeric_limits<std::uint64_t>::max(), 2), EINVAL);
}

TEST_F(DeviceMemoryAPITest, DmBadAccess) {
    constexpr unsigned zero_based = IBV_ACCESS_ZERO_BASED;
    EXPECT_EQ(dm_refusal(0, 64, full_access), EINVAL);
    EXPECT_EQ(dm_refusal(0, 64, zero_based | IBV_ACCESS_REMOTE_WRITE), EINVAL);
    constexpr std::array<unsigned, 4> refused{IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
                                              IBV_ACCESS_HUGETLB, IBV_ACCESS_RELAXED_ORDERING};
    for (const unsigned flag : refused) {
        EXPECT_EQ(dm_refusal(0, 64, zero_based | flag), EINVAL);
    }
    EXPECT_EQ(dm_refusal(0, 64, zero_based), 0);
}

TEST_F(DeviceMemoryAPITest, IsBusyWhileThereAreRegions) {
    ibv_mr* const mr = reg_dm(0, 64);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_free_dm(dm_), EBUSY);
    expected_violations = 1;
    EXPECT_EQ(ibv_memcpy_to_dm(dm_, 0, host_.data(), 4), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DeviceMemoryAPITest, CanBeImported) {
    ASSERT_EQ(ibv_memcpy_to_dm(dm_, 8, host_.data(), 4), 0);
    ibv_dm* const imported = ibv_import_dm(context.get(), dm_->handle);
    ASSERT_NE(imported, nullptr);
    EXPECT_EQ(imported->handle, dm_->handle);
    std::array<unsigned char, 4> back{};
    EXPECT_EQ(ibv_memcpy_from_dm(back.data(), imported, 8, 4), 0);
    EXPECT_EQ(back, (std::array<unsigned char, 4>{7, 7, 7, 7}));
    // The allocation exists until both ibv_dm objects are freed. It is counted once.
    ibv_unimport_dm(dm_);
    dm_ = imported;
    EXPECT_EQ(ibv_memcpy_from_dm(back.data(), dm_, 8, 4), 0);
    EXPECT_EQ(allocation_error(4096), ENOMEM);
    EXPECT_EQ(allocation_error(4096 - 128), 0);
}

TEST_F(DeviceMemoryAPITest, CanBeExportedAsADmaBuf) {
    const int fd = ibv_dm_export_dmabuf_fd(dm_);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
    ASSERT_EQ(ibv_memcpy_to_dm(dm_, 8, host_.data(), 4), 0);
    std::array<unsigned char, 6> back{};
    ASSERT_EQ(::pread(fd, back.data(), back.size(), 7), 6);
    EXPECT_EQ(back, (std::array<unsigned char, 6>{0, 7, 7, 7, 7, 0}));
    // The memory has a size in whole pages. The device memory begins at offset 0.
    ibv_mr* const mr = ibv_reg_dmabuf_mr(pd.get(), 0, Pages::page(), 0, fd, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(::ftruncate(fd, 0), -1);
    ::close(fd);
    destroy(mr);
}

} // namespace
} // namespace softverbs_test
