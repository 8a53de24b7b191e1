// SPDX-License-Identifier: BSD-3-Clause
// Access to memory by lkeys and rkeys. The tests use two connected queue pairs of this process.
#include <array>
#include <cstring>

#include "memory_fixture.hpp"

namespace softverbs_test {
namespace {

class AccessTest : public ConnectedPairTest {
  protected:
    ibv_wc_status write(std::uint32_t rkey, std::uint64_t address, std::uint32_t length = 16) {
        return rdma(IBV_WR_RDMA_WRITE, local(length), rkey, address);
    }
    ibv_wc_status read(std::uint32_t rkey, std::uint64_t address, std::uint32_t length = 16) {
        return rdma(IBV_WR_RDMA_READ, local(length), rkey, address);
    }
};

class RegionAccessTest : public AccessTest {
  protected:
    Pages memory_{2};
    UniqueMr target(unsigned access, std::uint64_t iova = 0) {
        UniqueMr mr(ibv_reg_mr_iova2(pd.get(), memory_.data(), Pages::page(), iova, access));
        EXPECT_NE(mr, nullptr);
        return mr;
    }
};

TEST_F(RegionAccessTest, IsByItsIova) {
    const UniqueMr mr = target(full_access, 64 * Pages::page());
    ASSERT_EQ(write(mr->rkey, 64 * Pages::page() + 100), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + 100, local_.data(), 16), 0);
    EXPECT_EQ(memory_.data()[99], std::byte{0});
    EXPECT_EQ(memory_.data()[116], std::byte{0});
    expect_failure(write(mr->rkey, memory_.address()));
}

TEST_F(RegionAccessTest, OfZeroBaseCountsFromZero) {
    const UniqueMr mr = target(full_access | IBV_ACCESS_ZERO_BASED, memory_.address());
    ASSERT_EQ(write(mr->rkey, 8), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + 8, local_.data(), 16), 0);
}

TEST_F(RegionAccessTest, EndsWithTheRegion) {
    const UniqueMr mr = target(full_access, 0x100000);
    EXPECT_EQ(write(mr->rkey, 0x100000 + Pages::page() - 16), IBV_WC_SUCCESS);
    expect_failure(write(mr->rkey, 0x100000 + Pages::page() - 15));
    expect_failure(write(mr->rkey, 0x100000 - 1));
    expect_failure(read(mr->rkey, ~std::uint64_t{0} - 7));
}

TEST_F(RegionAccessTest, EndsWithItsKey) {
    UniqueMr mr = target(full_access);
    const std::uint32_t rkey = mr->rkey;
    expect_failure(write(rkey + 1, 0));
    expect_failure(write(rkey ^ 0x100, 0));
    mr.reset();
    expect_failure(write(rkey, 0));
}

TEST_F(RegionAccessTest, WithTheLkeyInPlaceOfTheRkeyOrTheReverseFails) {
    const UniqueMr mr = target(full_access);
    expect_failure(write(mr->lkey, 0));
    ibv_sge entry = local();
    entry.lkey = local_mr_->rkey;
    expect_failure(rdma(IBV_WR_RDMA_WRITE, entry, mr->rkey, 0), IBV_WC_LOC_PROT_ERR);
    entry.length = 8; // a read, whose data is not sent inline
    expect_failure(rdma(IBV_WR_RDMA_READ, entry, mr->rkey, 0), IBV_WC_LOC_PROT_ERR);
}

TEST_F(RegionAccessTest, OfNoBytesNeedsNoKey) {
    EXPECT_EQ(write(0x12345678, 0x1000, 0), IBV_WC_SUCCESS);
}

TEST_F(RegionAccessTest, FollowsANewRegistration) {
    const UniqueMr mr = target(full_access);
    ASSERT_EQ(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory_.data() + 512,
                           64, 0),
              0);
    ASSERT_EQ(write(mr->rkey, memory_.address() + 512), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + 512, local_.data(), 16), 0);
    expect_failure(write(mr->rkey, memory_.address()));
}

TEST_F(RegionAccessTest, OnDemandFailsWhereThereIsNothing) {
    const UniqueMr mr(ibv_reg_mr_iova2(pd.get(), memory_.data(), 3 * Pages::page(), 0,
                                       full_access | IBV_ACCESS_ON_DEMAND));
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(write(mr->rkey, Pages::page()), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory_.data() + Pages::page(), local_.data(), 16), 0);
    EXPECT_NE(write(mr->rkey, 2 * Pages::page()), IBV_WC_SUCCESS);
}

TEST_F(RegionAccessTest, OfANullRegionReadsZerosAndSwallowsWrites) {
    const UniqueMr null(ibv_alloc_null_mr(pd.get()));
    ASSERT_NE(null, nullptr);
    std::memset(memory_.data(), 9, 64);
    const UniqueMr mr = target(full_access);
    ASSERT_EQ(rdma(IBV_WR_RDMA_WRITE, {0x123456, 16, null->lkey}, mr->rkey, 0), IBV_WC_SUCCESS);
    constexpr std::array<std::byte, 16> zeros{};
    EXPECT_EQ(std::memcmp(memory_.data(), zeros.data(), 16), 0);
    EXPECT_EQ(memory_.data()[16], std::byte{9});
    EXPECT_EQ(rdma(IBV_WR_RDMA_READ, {0, 64, null->lkey}, mr->rkey, 0), IBV_WC_SUCCESS);
}

// Tests for dma-bufs and device memory

class SharedAccessTest : public AccessTest {};

TEST_F(SharedAccessTest, ReachesTheBytesOfADmaBuf) {
    const std::size_t page = Pages::page();
    MemFd file(4 * page);
    const UniqueMr mr(ibv_reg_dmabuf_mr(pd.get(), page + 24, 2 * page, 64 * page + 24, file.get(),
                                        static_cast<int>(full_access)));
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(write(mr->rkey, 64 * page + 32), IBV_WC_SUCCESS);
    std::array<std::uint8_t, 18> bytes{};
    ASSERT_EQ(::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(page + 31)), 18);
    EXPECT_EQ(bytes.front(), 0);
    EXPECT_EQ(std::memcmp(&bytes[1], local_.data(), 16), 0);
    EXPECT_EQ(bytes.back(), 0);
    ASSERT_EQ(::pwrite(file.get(), "0123456789abcdef", 16, static_cast<off_t>(3 * page)), 16);
    file.close();
    ASSERT_EQ(read(mr->rkey, 64 * page + 2 * page), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(local_.data(), "0123456789abcdef", 16), 0);
    expect_failure(read(mr->rkey, 64 * page));
    expect_failure(read(mr->rkey, 66 * page + 24 - 15));
}

class DeviceMemoryTest : public AccessTest {
  protected:
    void SetUp() override {
        AccessTest::SetUp();
        ibv_alloc_dm_attr wanted{256, 0, 0};
        dm_ = ibv_alloc_dm(context.get(), &wanted);
        ASSERT_NE(dm_, nullptr);
        mr_.reset(ibv_reg_dm_mr(pd.get(), dm_, 64, 128, full_access | IBV_ACCESS_ZERO_BASED));
        ASSERT_NE(mr_, nullptr);
    }
    void TearDown() override {
        mr_.reset();
        EXPECT_EQ(ibv_free_dm(dm_), 0);
    }
    ibv_dm* dm_ = nullptr;
    UniqueMr mr_;
};

TEST_F(DeviceMemoryTest, IsWrittenAndReadByPeers) {
    ASSERT_EQ(write(mr_->rkey, 8), IBV_WC_SUCCESS);
    std::array<std::uint8_t, 24> back{};
    ASSERT_EQ(ibv_memcpy_from_dm(back.data(), dm_, 68, 24), 0);
    EXPECT_EQ(back[3], 0);
    EXPECT_EQ(std::memcmp(&back[4], local_.data(), 16), 0);
    EXPECT_EQ(back[20], 0);
    ASSERT_EQ(ibv_memcpy_to_dm(dm_, 64 + 112, "0123456789abcdef", 16), 0);
    ASSERT_EQ(read(mr_->rkey, 112), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(local_.data(), "0123456789abcdef", 16), 0);
    expect_failure(read(mr_->rkey, 113));
}

TEST_F(DeviceMemoryTest, IsASourceAndATarget) {
    ASSERT_EQ(ibv_memcpy_to_dm(dm_, 64, "0123456789abcdef", 16), 0);
    ASSERT_EQ(rdma(IBV_WR_RDMA_WRITE, {0, 16, mr_->lkey}, mr_->rkey, 32), IBV_WC_SUCCESS);
    std::array<char, 16> back{};
    ASSERT_EQ(ibv_memcpy_from_dm(back.data(), dm_, 96, 16), 0);
    EXPECT_EQ(std::memcmp(back.data(), "0123456789abcdef", 16), 0);
    expect_failure(rdma(IBV_WR_RDMA_WRITE, {120, 16, mr_->lkey}, mr_->rkey, 0),
                   IBV_WC_LOC_PROT_ERR);
}

} // namespace
} // namespace softverbs_test
