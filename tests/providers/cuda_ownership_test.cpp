// SPDX-License-Identifier: BSD-3-Clause
// Whose memory an address is: drivers that cannot say, and what finding an owner must not do.
#include <cerrno>

#include <rdmabuf/resolver.hpp>

#include "cuda_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int mempool_handle = 17;
constexpr int mapping_size = 18;
constexpr const char* query = "cuPointerGetAttributes";
constexpr const char* retain = "cuDevicePrimaryCtxRetain";

std::uintptr_t address_of(const int& local) {
    return reinterpret_cast<std::uintptr_t>(&local);
}

using CudaOwnership = CudaTest;
using CudaSegments = CudaTest;

TEST_F(CudaOwnership, DriverErrorIsNotTheAnswerThatMemoryIsNotCudas) {
    const std::uint64_t address = make(FakeCudaKind::device);
    for (const int result : {999, abi::deinitialized, abi::out_of_memory}) {
        fake_cuda_fail(query, 1, result);
        const auto error = error_of([&] { (void)exporter_->find(address); });
        ASSERT_TRUE(error) << result;
        EXPECT_STREQ(error->function(), query);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("(" + std::to_string(result) + ")"),
                                         HasSubstr("the owner of the memory")));
    }
    EXPECT_TRUE(exporter_->find(address));
}

TEST_F(CudaOwnership, MemoryIsFoundByADriverThatDoesNotKnowPools) {
    fake_cuda_forget_pointer_attribute(mempool_handle);
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->base, address);
    const int local = 0;
    EXPECT_FALSE(exporter_->find(address_of(local)));
}

TEST_F(CudaOwnership, HostMemoryOfADriverThatRefusesToDescribeItIsNotCudas) {
    const int local = 0;
    fake_cuda_fail(query, 1, abi::invalid_context);
    EXPECT_FALSE(exporter_->find(address_of(local)));
}

TEST_F(CudaOwnership, FindingMappedMemoryCreatesNoContext) {
    const std::uint64_t address = map({{2 * page_size(), 0, false, true}});
    const auto found = exporter_->find(address + page_size());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, 2 * page_size());
    EXPECT_EQ(fake_cuda_calls(retain), 0U);
}

TEST_F(CudaOwnership, FindingMappedMemoryUsesTheCurrentContextOfAnOlderDriver) {
    fake_cuda_forget_pointer_attribute(mapping_size);
    const std::uint64_t address = map({{page_size(), 0, false, true}});
    const auto error = error_of([&] { (void)exporter_->find(address); });
    ASSERT_TRUE(error) << "without a context this driver cannot say";
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), HasSubstr("make a context current"));

    ASSERT_EQ(cuCtxPushCurrent_v2(static_cast<abi::Context>(fake_cuda_program_context(0))),
              abi::success);
    const auto found = exporter_->find(address);
    abi::Context popped = nullptr;
    ASSERT_EQ(cuCtxPopCurrent_v2(&popped), abi::success);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(fake_cuda_calls(retain), 0U);
}

TEST(CudaResolver, FindingTheOwnerOfHostMemoryDoesNotInitialiseCuda) {
    fake_cuda_reset(1);
    const Resolver resolver({make_cuda_exporter()});
    const int local = 0;
    EXPECT_FALSE(resolver.try_find(address_of(local)));
    EXPECT_TRUE(error_of([&] { (void)resolver.find(address_of(local)); }));
    EXPECT_EQ(fake_cuda_calls("cuInit"), 0U);
    EXPECT_EQ(fake_cuda_calls(retain), 0U);
}

// Ranges of several mappings

TEST_F(CudaSegments, ALaterSegmentMappedAnewChangesTheGeneration) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{page, 0, false, true}, {2 * page, 0, false, true}});
    const auto before = exporter_->find_range(address, 3 * page);
    ASSERT_TRUE(before);
    EXPECT_EQ(before->base, address);
    EXPECT_EQ(before->length, 3 * page);
    EXPECT_EQ(exporter_->find_range(address, 3 * page)->generation, before->generation);

    const auto first = exporter_->find(address);
    fake_cuda_map_anew(address + page);
    const auto after = exporter_->find_range(address, 3 * page);
    ASSERT_TRUE(after);
    EXPECT_NE(after->generation, before->generation);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);
    EXPECT_EQ(exporter_->find_range(address, page)->generation, first->generation);
}

TEST_F(CudaSegments, ARangeEndsBeforeAHoleAndWhereAllocationsOnlyLieSideBySide) {
    const std::size_t page = page_size();
    const std::uint64_t holed =
        map({{page, 0, false, true}, {page, 0, true, true}, {page, 0, false, true}});
    EXPECT_EQ(exporter_->find_range(holed, 3 * page)->length, page);
    const std::uint64_t first = make(FakeCudaKind::device, page);
    ASSERT_EQ(make(FakeCudaKind::device, page), first + page);
    EXPECT_EQ(exporter_->find_range(first, 2 * page)->length, page);
}

} // namespace
} // namespace rdmabuf::testing
