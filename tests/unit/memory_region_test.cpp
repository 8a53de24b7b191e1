// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <rdmabuf/region.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

/// Memory of its own that begins with a page, since an iova has to lie where the address does in
/// its page.
class Pages {
  public:
    explicit Pages(std::size_t size)
        : size_(size),
          data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        EXPECT_NE(data_, MAP_FAILED);
    }
    ~Pages() { ::munmap(data_, size_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return size_; }

  private:
    std::size_t size_;
    void* data_;
};

class MemoryRegionTest : public SoftverbsTest {
  protected:
    Basics basics_;
    Pages memory_{64};

    static const testing::Registration& last() { return testing::record().registrations.back(); }
    auto refusal(void* address, std::size_t length, const MemoryRegionOptions& options = {}) {
        return error_of([&] { MemoryRegion(basics_.pd, address, length, options); });
    }
    std::uintptr_t address() { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
};

TEST_F(MemoryRegionTest, IsKnownByItsVirtualAddress) {
    const MemoryRegion region(basics_.pd, memory_.data(), memory_.size());
    EXPECT_EQ(last().function, "ibv_reg_mr_iova2");
    EXPECT_EQ(last().start, address());
    EXPECT_EQ(last().length, 64U);
    EXPECT_EQ(last().iova, address());
    EXPECT_EQ(last().access, static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE));
    EXPECT_EQ(region.address(), memory_.data());
    EXPECT_EQ(region.iova(), address());
    EXPECT_EQ(region.length(), 64U);
    EXPECT_EQ(region.access(), Access::local_write);
    testing::tell_keys_apart(region.native());
    EXPECT_EQ(region.lkey(), region.native()->lkey);
    EXPECT_EQ(region.rkey(), region.native()->rkey);
    EXPECT_NE(region.rkey(), region.lkey());
    EXPECT_EQ(region.sge().lkey, region.lkey());
    EXPECT_EQ(region.remote(),
              (RemoteRegion{.address = address(), .length = 64, .rkey = region.rkey()}));
    EXPECT_EQ(region.protection_domain(), basics_.pd);
}

TEST_F(MemoryRegionTest, OfZeroBaseCountsFromZero) {
    const MemoryRegion region(basics_.pd, memory_.data(), 64,
                              {.access = Access::local_write | Access::zero_based});
    EXPECT_EQ(last().iova, 0U);
    EXPECT_EQ(region.iova(), 0U);
    EXPECT_EQ(last().access, static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
}

TEST_F(MemoryRegionTest, PassesEveryAccessFlagOn) {
    const Access access = full_access | Access::relaxed_ordering | Access::on_demand |
                          Access::hugetlb | Access::memory_window_bind;
    const MemoryRegion region(basics_.pd, memory_.data(), 64, {.access = access});
    EXPECT_EQ(last().access, static_cast<unsigned>(access));
    EXPECT_NE(last().access & IBV_ACCESS_RELAXED_ORDERING, 0U);
}

TEST_F(MemoryRegionTest, MayBeReadOnly) {
    const MemoryRegion region(basics_.pd, memory_.data(), 64, {.access = Access::remote_read});
    EXPECT_EQ(last().access, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
}

TEST_F(MemoryRegionTest, OfNothingIsRefused) {
    EXPECT_THAT(refusal(memory_.data(), 0), fails_with("ibv_reg_mr", EINVAL, "a length of 0"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(MemoryRegionTest, ThatPeersMayWriteMustBeWritable) {
    EXPECT_THAT(
        refusal(memory_.data(), 64, {.access = Access::remote_write | Access::remote_atomic}),
        fails_with("ibv_reg_mr", EINVAL, "remote_write|remote_atomic needs local_write too"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(MemoryRegionTest, AnIovaWithAnotherPageOffsetIsRefusedWithTheReason) {
    EXPECT_THAT(
        refusal(static_cast<std::byte*>(memory_.data()) + 8, 16, {.iova = 0x10010}),
        fails_with("ibv_reg_mr", EINVAL,
                   "the iova lies 16 bytes into its page and the address 8 bytes into its page"));
    const Access zero_based = Access::local_write | Access::zero_based;
    EXPECT_THAT(
        refusal(static_cast<std::byte*>(memory_.data()) + 8, 16, {.access = zero_based}),
        fails_with("ibv_reg_mr", EINVAL, "zero_based needs an address at the beginning of a page"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(MemoryRegionTest, AccessBitsThatVerbsDoesNotHaveAreRefusedByName) {
    EXPECT_THAT(
        refusal(memory_.data(), 64, {.access = Access::local_write | static_cast<Access>(0x400)}),
        fails_with("ibv_reg_mr", EINVAL, "host memory cannot be registered with 0x400"));
    // Optional bits of newer kernels pass.
    EXPECT_FALSE(refusal(memory_.data(), 64, {.access = static_cast<Access>(1U << 21U)}));
}

TEST_F(MemoryRegionTest, AboveTheLimitOfLockedMemorySaysTheLimit) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
    rlimit tight = before;
    tight.rlim_cur = 65536;
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &tight), 0);
    testing::fail_next("ibv_reg_mr", ENOMEM);
    const auto error = refusal(memory_.data(), 64);
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
    EXPECT_THAT(error, fails_with("ibv_reg_mr", ENOMEM,
                                  "RLIMIT_MEMLOCK limits pinned memory to 65536 bytes",
                                  "this registration pins 64",
                                  "with CAP_IPC_LOCK, the NIC has no more memory regions"));
}

TEST_F(MemoryRegionTest, ThatCannotBePinnedPointsToItsDmaBuf) {
    EXPECT_THAT(refusal(nullptr, 64), fails_with("ibv_reg_mr", EFAULT, "use its dma-buf"));
}

TEST_F(MemoryRegionTest, TellsOtherErrorsAsTheyAre) {
    testing::fail_next("ibv_reg_mr", ENODEV);
    EXPECT_STREQ(refusal(memory_.data(), 64)->what(), "ibv_reg_mr: No such device (ENODEV)");
}

TEST_F(MemoryRegionTest, TakesAnIovaAndGivesEntriesForItsParts) {
    const MemoryRegion region(basics_.pd, memory_.data(), 64, {.iova = 0x1000});
    EXPECT_EQ(last().iova, 0x1000U);
    EXPECT_EQ(region.remote().address, 0x1000U);
    const ibv_sge all = region.sge();
    EXPECT_EQ(all.addr, 0x1000U);
    EXPECT_EQ(all.length, 64U);
    EXPECT_EQ(all.lkey, region.lkey());
    const ibv_sge part = region.sge(16, 48);
    EXPECT_EQ(part.addr, 0x1010U);
    EXPECT_EQ(part.length, 48U);
    EXPECT_EQ(region.sge(64, 0).addr, 0x1040U);
}

TEST_F(MemoryRegionTest, GivesNoEntriesOutsideItself) {
    const MemoryRegion region(basics_.pd, memory_.data(), 64);
    EXPECT_THAT(error_of([&] { static_cast<void>(region.sge(16, 49)); }),
                fails_with("Region::sge", ERANGE,
                           "49 bytes at offset 16 do not lie inside the region of 64 bytes"));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.sge(65, 0)); }),
                fails_with("Region::sge", ERANGE, "0 bytes at offset 65"));
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(region.sge(std::numeric_limits<std::size_t>::max(), 2));
                }),
                fails_with("Region::sge", ERANGE, "offset 18446744073709551615"));
}

TEST_F(MemoryRegionTest, AboveWhatAnEntryCanSayIsNeverCutShort) {
    const std::size_t large = std::size_t{1} << 32U;
    const Pages memory(large);
    // Or it would all be brought in.
    constexpr Access on_demand = Access::local_write | Access::on_demand;
    const MemoryRegion region(basics_.pd, memory.data(), large, {.access = on_demand, .iova = 0});
    EXPECT_THAT(error_of([&] { static_cast<void>(region.sge()); }),
                fails_with("Region::sge", ERANGE, "4294967296 bytes"));
    EXPECT_EQ(region.sge(large - 1, 1).addr, large - 1);
    const MemoryRegion largest(basics_.pd, memory.data(), large - 1,
                               {.access = on_demand, .iova = 0});
    EXPECT_EQ(largest.sge().length, 4294967295U);
}

TEST_F(MemoryRegionTest, OfTheWholeAddressSpaceTakesAddressesAsOffsets) {
    const MemoryRegion all = MemoryRegion::implicit_on_demand(basics_.pd);
    EXPECT_EQ(all.iova(), 0U);
    EXPECT_EQ(all.length(), std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(all.address(), nullptr);
    EXPECT_EQ(all.access(), Access::local_write | Access::on_demand);
    EXPECT_EQ(last().start, 0U);
    EXPECT_EQ(last().length, std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(last().iova, 0U);
    EXPECT_EQ(last().access, static_cast<unsigned>(Access::local_write | Access::on_demand));
    EXPECT_EQ(all.sge(address(), 64).addr, address());
}

TEST_F(MemoryRegionTest, OfTheWholeAddressSpaceNeedsImplicitOnDemandPaging) {
    testing::change_device(
        [](ibv_device_attr_ex& attributes) { attributes.odp_caps.general_caps = IBV_ODP_SUPPORT; });
    EXPECT_THAT(error_of([&] { static_cast<void>(MemoryRegion::implicit_on_demand(basics_.pd)); }),
                fails_with("ibv_reg_mr", EINVAL, "soft0 has no implicit on-demand paging"));
}

TEST_F(MemoryRegionTest, PrefetchesPagesOnDemand) {
    constexpr std::size_t count = 4;
    const std::size_t page = testing::page_size();
    const Pages memory(count * page);
    const MemoryRegion region(basics_.pd, memory.data(), memory.size(),
                              {.access = Access::local_write | Access::on_demand});
    const auto present = [&] {
        std::array<unsigned char, count> found{};
        EXPECT_EQ(::mincore(memory.data(), memory.size(), found.data()), 0);
        return std::count_if(found.begin(), found.end(),
                             [](unsigned char bits) { return (bits & 1U) != 0; });
    };
    EXPECT_EQ(present(), 0);
    region.prefetch(0, memory.size(), {.pages = Prefetch::present_pages});
    region.prefetch(page, 0, {.pages = Prefetch::write});
    EXPECT_EQ(present(), 0);
    region.prefetch(page, 1, {.pages = Prefetch::write, .wait = true});
    EXPECT_EQ(present(), 1);
    region.prefetch(0, memory.size());
    EXPECT_EQ(present(), 4);

    const auto& advice = testing::record().advice;
    ASSERT_EQ(advice.size(), 3U);
    EXPECT_EQ(advice[0].advice, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
    EXPECT_EQ(advice[1].advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
    EXPECT_EQ(advice[1].flags, unsigned{IBV_ADVISE_MR_FLAG_FLUSH});
    EXPECT_EQ(advice[2].advice, IBV_ADVISE_MR_ADVICE_PREFETCH);
    EXPECT_EQ(advice[2].flags, 0U);
}

TEST_F(MemoryRegionTest, PrefetchesMoreThanAnEntryCanSay) {
    const std::size_t large = (std::size_t{1} << 32U) + testing::page_size();
    const Pages memory(large);
    const MemoryRegion region(basics_.pd, memory.data(), large,
                              {.access = Access::on_demand, .iova = 0});
    region.prefetch(1, large - 1, {.pages = Prefetch::present_pages});
    const auto& entries = testing::record().advice.at(0).entries;
    std::uint64_t next = 1;
    for (const ibv_sge& entry : entries) {
        EXPECT_EQ(entry.addr, next);
        EXPECT_EQ(entry.lkey, region.lkey());
        next += entry.length;
    }
    EXPECT_EQ(next, large);
}

TEST_F(MemoryRegionTest, RefusesToPrefetchWithTheReason) {
    const auto refused = [](const Region& region, std::size_t offset, std::size_t length,
                            Prefetch pages = Prefetch::read) {
        return error_of([&] { region.prefetch(offset, length, {.pages = pages}); });
    };
    constexpr const char* function = "ibv_advise_mr";
    const MemoryRegion pinned(basics_.pd, memory_.data(), memory_.size());
    EXPECT_THAT(refused(pinned, 0, 1), fails_with(function, ENOENT, "are pinned"));
    const MemoryRegion region(basics_.pd, memory_.data(), memory_.size(),
                              {.access = Access::on_demand});
    EXPECT_THAT(refused(region, 1, memory_.size()), fails_with(function, ERANGE, ""));
    EXPECT_THAT(refused(region, 0, 1, Prefetch::write),
                fails_with(function, EPERM, "no Access::local_write"));
}

} // namespace
} // namespace rdmabuf
