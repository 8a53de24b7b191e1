// SPDX-License-Identifier: BSD-3-Clause
// What only CUDA's memory can get wrong. The driver is a fake: this proves what we make of its
// answers, and not what NVIDIA's answers.
#include <cerrno>
#include <future>
#include <limits>

#include <rdmabuf/resolver.hpp>

#include "cuda_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* export_call = "cuMemGetHandleForAddressRange";

using CudaFinding = CudaTest;
using CudaRanges = CudaTest;
using CudaMappings = CudaTest;
using CudaKinds = CudaTest;

TEST_F(CudaFinding, TellsKindDeviceAndExtent) {
    const std::size_t size = 3 * page_size();
    const std::vector<std::pair<FakeCudaKind, MemoryKind>> kinds{
        {FakeCudaKind::device, MemoryKind::device},
        {FakeCudaKind::managed, MemoryKind::managed},
        {FakeCudaKind::pool, MemoryKind::device},
        {FakeCudaKind::host, MemoryKind::pinned_host},
    };
    for (const auto& [made, kind] : kinds) {
        const std::uint64_t address = make(made, size, 1);
        const auto found = exporter_->find(address + size - 1);
        ASSERT_TRUE(found) << to_string(kind);
        EXPECT_EQ(found->kind, kind);
        EXPECT_EQ(found->base, address);
        EXPECT_EQ(found->length, size);
        EXPECT_EQ(found->pci_address, "0000:3c:00.0");
        EXPECT_FALSE(exporter_->find(address + size));
        fake_cuda_free(address);
    }
}

TEST_F(CudaFinding, ReportsTheChipToChipLinkOfAGpuThatUsesTheCpusPageTables) {
    constexpr int host_page_tables = 100;
    constexpr int integrated = 18;
    const std::uint64_t address = make(FakeCudaKind::device);
    EXPECT_FALSE(exporter_->find(address)->c2c);
    fake_cuda_set_attribute(0, host_page_tables, 1);
    EXPECT_TRUE(exporter_->find(address)->c2c);
    fake_cuda_set_attribute(0, integrated, 1);
    EXPECT_FALSE(exporter_->find(address)->c2c);
    // A driver that does not know the attribute.
    fake_cuda_set_attribute(0, integrated, 0);
    fake_cuda_set_attribute(0, host_page_tables, -1);
    EXPECT_FALSE(exporter_->find(address)->c2c);
}

TEST_F(CudaFinding, ExportsNothingAndAsksOnceForWhatIsNotCudas) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto before = open_descriptors();
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake_cuda_calls(export_call), 0U);

    const int local = 0;
    const unsigned calls = fake_cuda_all_calls();
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    EXPECT_EQ(fake_cuda_all_calls(), calls + 1);
}

TEST_F(CudaFinding, DoesNotKnowMemoryThatIsFreedBetweenTwoQueries) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_fail("cuMemGetAddressRange_v2", 1, abi::not_found);
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_TRUE(exporter_->find(address));
}

TEST_F(CudaFinding, TellsWhatFailsForMemoryThatIsCudas) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_fail("cuMemGetAddressRange_v2", 1, abi::out_of_memory);
    const auto error = error_of([&] { (void)exporter_->find(address); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOMEM);
    EXPECT_STREQ(error->function(), "cuMemGetAddressRange");
}

TEST_F(CudaFinding, TakesMemoryThatIsFreedMeanwhileForUnknown) {
    // With its context: what fails then is no error, but the answer.
    for (const bool again : {false, true}) {
        const std::uint64_t address = make(FakeCudaKind::device);
        fake_cuda_free_before("cuCtxPushCurrent_v2", address, again);
        fake_cuda_fail("cuCtxPushCurrent_v2", 1, abi::invalid_context);
        EXPECT_FALSE(exporter_->find(address));
        EXPECT_EQ(exporter_->find(address).has_value(), again);
        fake_cuda_free(address);
    }
}

TEST_F(CudaFinding, GivesAnAddressThatIsReusedAnotherGeneration) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto first = exporter_->find(address);
    fake_cuda_free(address);
    EXPECT_FALSE(exporter_->find(address));
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
    EXPECT_THAT(error->what(), HasSubstr("not been freed"));
    ASSERT_EQ(make(FakeCudaKind::device), address);
    const auto second = exporter_->find(address);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->base, second->base);
    EXPECT_NE(first->generation, second->generation);
}

TEST_F(CudaFinding, ComesBeforeTheExportersOfSystemMemory) {
    const Resolver resolver = Resolver::system();
    EXPECT_EQ(resolver.exporters().front()->name(), "cuda");
    const std::uint64_t address = make(FakeCudaKind::device);
    EXPECT_EQ(resolver.find(address).exporter->name(), "cuda");
}

// Ranges

TEST_F(CudaRanges, AreWidenedToPagesWhereAllocationsShareThem) {
    fake_cuda_set_packed(true);
    const std::uint64_t first = make(FakeCudaKind::device, 1000);
    const std::uint64_t second = make(FakeCudaKind::device, 1000);
    ASSERT_EQ(first / page_size(), second / page_size());
    ASSERT_NE(second % page_size(), 0U);
    put(first, 1000, 1);
    const auto expected = put(second, 1000, 2);
    const ExportedRange range = exporter_->export_range(second, 1000);
    EXPECT_EQ(range.offset(), second % page_size());
    EXPECT_EQ(range.length(), 1000U);
    EXPECT_EQ(range.address(), second);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(exporter_->find(second + 999)->base, second);
    // The page holds more than the allocation, and the allocation is the limit.
    const auto error = refusal(second, 1001);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
}

TEST_F(CudaRanges, DoNotSpanAllocationsThatLieSideBySide) {
    // Packed, they are also in one block of the driver's.
    for (const bool packed : {false, true}) {
        fake_cuda_set_packed(packed);
        const std::uint64_t first = make(FakeCudaKind::device, page_size());
        const std::uint64_t second = make(FakeCudaKind::device, page_size());
        ASSERT_EQ(second, first + page_size());
        const auto error = refusal(first + 1, page_size());
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ERANGE);
        EXPECT_EQ(fake_cuda_calls(export_call), 0U) << "the driver might have allowed it";
    }
}

TEST_F(CudaRanges, ThatTheDriverCutsShortAreRefused) {
    const std::uint64_t address = make(FakeCudaKind::device, 2 * page_size());
    const auto before = open_descriptors();
    fake_cuda_set_shortfall(page_size());
    const auto error = refusal(address + 1, page_size());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("has " + std::to_string(page_size()) + " bytes"),
                                     HasSubstr(std::to_string(2 * page_size()))));
    // The fake keeps one for what it has exported.
    EXPECT_LE(open_descriptors().size(), before.size() + 1);
    EXPECT_TRUE(refusal(address + 1, page_size()));
    EXPECT_LE(open_descriptors().size(), before.size() + 1);
}

TEST_F(CudaRanges, ThatAreFreedMeanwhileAreNoRanges) {
    for (const bool again : {false, true}) {
        const std::uint64_t address = make(FakeCudaKind::device);
        fake_cuda_free_before(export_call, address, again);
        fake_cuda_fail(export_call, 1, abi::invalid_value);
        const auto error = refusal(address, 1);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EFAULT);
        EXPECT_THAT(error->what(),
                    HasSubstr(again ? "belongs to another allocation now" : "not been freed"));
        fake_cuda_free(address);
    }
}

TEST_F(CudaRanges, NeedADescriptorThatIsClosedOnExec) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_set_inheritable(true);
    EXPECT_TRUE(closed_on_exec(exporter_->export_range(address, 1).fd()));
    fake_cuda_set_no_descriptor(true);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), HasSubstr("returned no descriptor"));
}

TEST_F(CudaRanges, GoThroughTheBarWhereThePlatformHasIt) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto expected = put(address, page_size(), 3);
    const ExportedRange range = exporter_->export_range(address, page_size(), MappingKind::pcie);
    EXPECT_EQ(range.mapping(), MappingKind::pcie);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(exporter_->export_range(address, 1).mapping(), MappingKind::standard);
}

TEST_F(CudaRanges, FallBackFromTheBarWhereThePlatformHasNotSuchAPath) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto expected = put(address, page_size(), 4);
    for (const int answer : {abi::not_supported, abi::invalid_value}) {
        fake_cuda_set_pcie(answer);
        const ExportedRange range =
            exporter_->export_range(address, page_size(), MappingKind::pcie);
        EXPECT_EQ(range.mapping(), MappingKind::standard);
        EXPECT_EQ(bytes_of(range), expected);
    }
    const unsigned calls = fake_cuda_calls(export_call);
    fake_cuda_set_pcie(abi::out_of_memory);
    const auto error = refusal(address, 1, MappingKind::pcie);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOMEM);
    EXPECT_EQ(fake_cuda_calls(export_call), calls + 1) << "that is no answer about the path";
}

TEST_F(CudaRanges, LeaveNoDescriptorsIn10000Cycles) {
    const std::uint64_t address = make(FakeCudaKind::device, 4 * page_size());
    (void)exporter_->export_range(address + 5, page_size());
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 10'000; ++cycle) {
        const ExportedRange range = exporter_->export_range(address + 5, page_size());
        ASSERT_GE(range.fd(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
}

// Mapped memory

TEST_F(CudaMappings, AreOneRangeTogether) {
    const std::size_t page = page_size();
    const std::uint64_t address =
        map({{2 * page, 0, false, true}, {page, 0, false, true}, {3 * page, 0, false, true}});
    const auto expected = put(address, 6 * page, 5);
    const auto found = exporter_->find(address + 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, 2 * page) << "the driver tells of one mapping";

    const std::size_t begin = page + 17;
    const std::size_t length = 3 * page;
    const ExportedRange range = exporter_->export_range(address + begin, length);
    EXPECT_EQ(range.offset(), 17U);
    const auto start = expected.begin() + static_cast<std::ptrdiff_t>(begin);
    EXPECT_EQ(bytes_of(range), std::vector(start, start + static_cast<std::ptrdiff_t>(length)));
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 6 * page)), expected);
    EXPECT_EQ(fake_cuda_calls("cuPointerSetAttribute"), 0U) << "they have no such attribute";
}

TEST_F(CudaMappings, EndWhereTheReservedRangeEnds) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{page, 0, false, true}, {page, 0, false, true}});
    const std::uint64_t neighbour = map({{page, 0, false, true}});
    ASSERT_EQ(neighbour, address + 2 * page);
    for (const std::size_t length :
         {2 * page + 1, std::numeric_limits<std::size_t>::max() - page}) {
        const auto error = refusal(address, length);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ERANGE);
        EXPECT_THAT(error->what(),
                    AllOf(HasSubstr("buffer of " + std::to_string(page) + " bytes"),
                          HasSubstr("reserved range of " + std::to_string(2 * page) + " bytes")));
    }
    EXPECT_EQ(fake_cuda_calls(export_call), 0U);
}

TEST_F(CudaMappings, HaveNoHolesInARange) {
    const std::size_t page = page_size();
    const std::uint64_t address =
        map({{page, 0, false, true}, {page, 0, true, true}, {page, 0, false, true}});
    const auto error = refusal(address, 3 * page);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
    EXPECT_THAT(error->what(), HasSubstr("no memory is mapped after it"));
    EXPECT_TRUE(exporter_->find(address + 2 * page));
    EXPECT_FALSE(exporter_->find(address + page));
}

TEST_F(CudaMappings, OfTwoDevicesAreNoRange) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{page, 0, false, true}, {page, 1, false, true}});
    const auto error = refusal(address, 2 * page);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("CUDA_ERROR_INVALID_VALUE (1)"),
                      HasSubstr("the range spans 2 mappings, which must be on one device")));
}

TEST_F(CudaMappings, MustHaveBeenMadeForRdma) {
    const std::uint64_t address = map({{page_size(), 0, false, false}});
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), HasSubstr("gpuDirectRDMACapable"));
}

// Kinds of memory

TEST_F(CudaKinds, ThatMoveOrArePooledAreRefusedWithWhatToUse) {
    const auto managed = refusal(make(FakeCudaKind::managed), 1);
    ASSERT_TRUE(managed);
    EXPECT_EQ(managed->error(), EOPNOTSUPP);
    EXPECT_THAT(managed->what(),
                AllOf(HasSubstr("managed (cuMemAllocManaged)"), HasSubstr("with cuMemAlloc")));
    const auto pooled = refusal(make(FakeCudaKind::pool), 1);
    ASSERT_TRUE(pooled);
    EXPECT_EQ(pooled->error(), EOPNOTSUPP);
    EXPECT_THAT(pooled->what(), AllOf(HasSubstr("from a memory pool (cuMemAllocAsync)"),
                                      HasSubstr("with cuMemAlloc")));
    EXPECT_EQ(fake_cuda_calls(export_call), 0U);
}

TEST_F(CudaKinds, OfTheHostAreExportedByDriversThatCan) {
    const std::uint64_t address = make(FakeCudaKind::host, 2 * page_size());
    // 0: it can not; -1: it does not know the question, as before CUDA 13.
    for (const int answer : {0, -1}) {
        fake_cuda_set_attribute(0, 146, answer);
        const auto error = refusal(address, 1);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EOPNOTSUPP);
        EXPECT_THAT(error->what(), HasSubstr("with MemoryRegion"));
    }
    fake_cuda_set_attribute(0, 146, 1);
    const auto expected = put(address, 2 * page_size(), 6);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 2 * page_size())), expected);
    const auto beyond = refusal(address, 2 * page_size() + 1);
    ASSERT_TRUE(beyond);
    EXPECT_EQ(beyond->error(), ERANGE);
}

TEST_F(CudaKinds, OfADeviceWithoutDmaBufsAreRefusedWithWhatWouldHelp) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const std::uint64_t other = make(FakeCudaKind::device, page_size(), 1);
    fake_cuda_set_attribute(0, 124, 0);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("device 0 (0000:3b:00.0) does not export dma-bufs"),
                      HasSubstr("open kernel modules"), HasSubstr("nvidia_peermem")));
    EXPECT_FALSE(refusal(other, 1)) << "the other device can";

    fake_cuda_set_attribute(0, 116, 0);
    EXPECT_THAT(refusal(address, 1)->what(), ::testing::Not(HasSubstr("nvidia_peermem")));
    fake_cuda_set_attribute(0, 18, 1);
    EXPECT_THAT(refusal(address, 1)->what(),
                AllOf(HasSubstr("uses the memory of the host"), HasSubstr("cuMemHostAlloc")));
    EXPECT_EQ(exporter_->find(address)->kind, MemoryKind::device);
}

} // namespace
} // namespace rdmabuf::testing
