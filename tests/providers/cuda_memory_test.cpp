// SPDX-License-Identifier: BSD-3-Clause
// Memory that only CUDA has: mappings of virtual addresses, memory of the host, integrated GPUs,
// and drivers that do not support all attributes.
#include <limits>

#include "cuda_calls.hpp"
#include "drivers/driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::cuda;
using abi::DeviceAttribute;
using fake::Kind;
using ::testing::HasSubstr;

constexpr const char* query = "cuPointerGetAttributes";
constexpr const char* retain = "cuDevicePrimaryCtxRetain";

/// Memory mapped to reserved addresses (cuMemMap).
struct Mapping {
    std::size_t pages;
    unsigned device = 0;
    /// Nothing is mapped to these addresses.
    bool hole = false;
    /// gpuDirectRDMACapable
    bool capable = true;
};

/// Maps memory to reserved addresses, one mapping after the other.
std::uint64_t map(const std::vector<Mapping>& mappings) {
    std::size_t pages = 0;
    for (const Mapping& mapping : mappings) {
        pages += mapping.pages;
    }
    const std::uint64_t start = fake::reserve(pages * page_size());
    std::uint64_t at = start;
    for (const auto& [count, device, hole, capable] : mappings) {
        if (!hole) {
            fake::place(at, Kind::mapped, count * page_size(), device, capable);
        }
        at += count * page_size();
    }
    return start;
}

using CudaDrivers = DriverTest;
using CudaMappings = DriverTest;
using CudaKinds = DriverTest;

TEST_F(CudaDrivers, ReportTheChipToChipLinkOfAGpuThatUsesThePageTablesOfTheCpu) {
    constexpr auto host_page_tables = DeviceAttribute::pageable_memory_access_uses_host_page_tables;
    const std::uint64_t address = make();
    EXPECT_FALSE(exporter_->find(address)->c2c);
    fake::set_attribute(0, number(host_page_tables), 1);
    EXPECT_TRUE(exporter_->find(address)->c2c);
    fake::set_attribute(0, number(DeviceAttribute::integrated), 1);
    EXPECT_FALSE(exporter_->find(address)->c2c);
    fake::set_attribute(0, number(DeviceAttribute::integrated), 0);
    fake::set_attribute(0, number(host_page_tables), -1);
    EXPECT_FALSE(exporter_->find(address)->c2c) << "the driver does not know the attribute";
}

TEST_F(CudaDrivers, ThatDoNotKnowPoolsFindMemory) {
    fake::forget_pointer_attribute(static_cast<int>(abi::PointerAttribute::mempool_handle));
    const std::uint64_t address = make();
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->base, address);
    const int local = 0;
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
}

TEST_F(CudaDrivers, ThatRefuseToDescribeHostMemoryDoNotOwnIt) {
    const int local = 0;
    fake::fail(query, abi::invalid_context);
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
}

// The libcuda.so.1 that the CUDA toolkit has for linking fails in each function.
TEST_F(CudaDrivers, ThatAreTheStubOfTheToolkitOwnNoMemory) {
    const int local = 0;
    fake::fail(query, abi::stub_library);
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    fake::fail("cuInit", abi::stub_library);
    const Availability none = exporter_->availability();
    EXPECT_THAT(none.reason, HasSubstr("CUDA_ERROR_STUB_LIBRARY"));
    EXPECT_THAT(none.remedy, HasSubstr("LD_LIBRARY_PATH"));
}

TEST_F(CudaMappings, AreFoundWithoutAContext) {
    const std::uint64_t address = map({{2}});
    const auto found = exporter_->find(address + page_size());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, 2 * page_size());
    EXPECT_EQ(fake::calls(retain), 0U);
}

TEST_F(CudaMappings, AreFoundInTheCurrentContextByAnOlderDriver) {
    fake::forget_pointer_attribute(static_cast<int>(abi::PointerAttribute::mapping_size));
    const std::uint64_t address = map({{1}});
    EXPECT_THAT(error_of([&] { (void)exporter_->find(address); }),
                fails_with(ENODEV, "make a context current"));
    const CurrentContext context(0);
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(fake::calls(retain), 0U);
}

TEST_F(CudaMappings, ThatFollowOneAnotherAreExportedTogether) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{2}, {1}, {3}});
    const auto expected = put(address, 6 * page, 5);
    EXPECT_EQ(exporter_->find(address + 1)->base, address);
    EXPECT_EQ(exporter_->find(address + 1)->length, 2 * page) << "the driver reports one mapping";
    const ExportedRange range = exporter_->export_range(address + page + 17, 3 * page);
    EXPECT_EQ(range.offset(), 17U);
    EXPECT_EQ(bytes_of(range), part(expected, page + 17, 3 * page));
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 6 * page)), expected);
    EXPECT_EQ(fake::calls("cuPointerSetAttribute"), 0U) << "mappings do not have SYNC_MEMOPS";
}

TEST_F(CudaMappings, EndWhereTheReservedRangeEnds) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{1}, {1}});
    ASSERT_EQ(map({{1}}), address + 2 * page);
    for (const std::size_t length :
         {2 * page + 1, std::numeric_limits<std::size_t>::max() - page}) {
        EXPECT_THAT(refusal(address, length),
                    fails_with(ERANGE, "buffer of " + std::to_string(2 * page) + " bytes",
                               "no device memory is mapped after it"));
    }
    EXPECT_EQ(fake::calls(driver_row().export_call), 0U);
}

TEST_F(CudaMappings, WithAHoleOrOfTwoDevicesOrNotMadeForRdmaAreRefused) {
    const std::size_t page = page_size();
    const std::uint64_t holed = map({{1}, {.pages = 1, .hole = true}, {1}});
    EXPECT_THAT(refusal(holed, 3 * page),
                fails_with(ERANGE, "no device memory is mapped after it"));
    EXPECT_TRUE(exporter_->find(holed + 2 * page));
    EXPECT_FALSE(exporter_->find(holed + page));
    EXPECT_EQ(exporter_->find_range(holed, 3 * page)->length, page);
    EXPECT_THAT(refusal(map({{1}, {.pages = 1, .device = 1}}), 2 * page),
                fails_with(EIO, "CUDA_ERROR_INVALID_VALUE (1)",
                           "the range spans 2 mappings, which must be on one device"));
    EXPECT_THAT(refusal(map({{.pages = 1, .capable = false}})),
                fails_with(EOPNOTSUPP, "gpuDirectRDMACapable"));
}

TEST_F(CudaMappings, ALaterMappingThatIsReplacedChangesTheGeneration) {
    const std::size_t page = page_size();
    const std::uint64_t address = map({{1}, {2}});
    const auto before = exporter_->find_range(address, 3 * page);
    ASSERT_TRUE(before);
    EXPECT_EQ(before->base, address);
    EXPECT_EQ(before->length, 3 * page);
    EXPECT_EQ(exporter_->find_range(address, 3 * page)->generation, before->generation);
    const auto first = exporter_->find(address);
    fake::replace(address + page);
    EXPECT_NE(exporter_->find_range(address, 3 * page)->generation, before->generation);
    EXPECT_EQ(exporter_->find(address)->generation, first->generation);
    EXPECT_EQ(exporter_->find_range(address, page)->generation, first->generation);
}

TEST_F(CudaKinds, OfAPoolAreExportedByDriversThatCan) {
    EXPECT_EQ(exporter_->export_range(make(Kind::pooled), 8).offset(), 0U);
    const std::uint64_t refused = make(Kind::pooled, page_size(), 0, false);
    EXPECT_THAT(error_of([&] { (void)exporter_->export_range(refused, 8); }),
                fails_with(EOPNOTSUPP, "from a memory pool (cuMemAllocAsync)", "with cuMemAlloc"));
}

TEST_F(CudaKinds, OfTheHostAreExportedByDriversThatCan) {
    const std::uint64_t address = make(Kind::host, 2 * page_size());
    constexpr auto exports_host = DeviceAttribute::host_alloc_dma_buf_supported;
    fake::set_attribute(0, number(exports_host), -1); // before CUDA 13
    EXPECT_THAT(refusal(address), fails_with(EOPNOTSUPP, "by ibv_reg_mr()"));
    fake::set_attribute(0, number(exports_host), 1);
    const auto expected = put(address, 2 * page_size(), 6);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 2 * page_size())), expected);
    EXPECT_THAT(refusal(address, 2 * page_size() + 1), fails_with(ERANGE));
}

TEST_F(CudaKinds, OfTheHostWithoutADeviceEndWithTheirMapping) {
    const std::size_t page = page_size();
    const std::uint64_t reserved = fake::reserve(3 * page);
    fake::place(reserved, Kind::host_without_device, page);
    fake::place(reserved + page, Kind::host_without_device, page);
    const auto found = exporter_->find(reserved + page + 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, reserved + page);
    EXPECT_EQ(found->length, page);
}

TEST_F(CudaKinds, OfAGpuWithoutDmaBufsAreRefusedWithThePathsThatItHas) {
    const std::uint64_t address = make();
    driver_row().disable_exports();
    fake::set_attribute(1, number(DeviceAttribute::dma_buf_supported), 0);
    EXPECT_FALSE(exporter_->availability());
    EXPECT_THAT(exporter_->availability().reason, HasSubstr("does not export dma-bufs"));
    fake::set_attribute(0, number(DeviceAttribute::gpu_direct_rdma_supported), 0);
    EXPECT_THAT(refusal(address)->what(), ::testing::Not(HasSubstr("nvidia_peermem")));
    fake::set_attribute(0, number(DeviceAttribute::integrated), 1);
    EXPECT_THAT(refusal(address),
                fails_with(EOPNOTSUPP, "uses the memory of the host", "cuMemHostAlloc"));
}

// Contexts of mappings, which belong to none

TEST_F(CudaMappings, AreExportedInThePrimaryContextWhichIsThenReleased) {
    const std::uint64_t own = make();
    const std::uint64_t mapped = map({{1}});
    const CurrentContext elsewhere(1);
    for (const std::uint64_t address : {own, mapped}) {
        EXPECT_TRUE(exporter_->find(address));
        EXPECT_FALSE(refusal(address));
        EXPECT_EQ(current_context(), program_context(1));
    }
    EXPECT_EQ(fake::calls(retain), 1U) << "only for the memory without a context";
    for (const char* const function : {retain, "cuCtxPushCurrent_v2", "cuMemGetAddressRange_v2",
                                       "cuMemGetHandleForAddressRange"}) {
        fake::fail(function, abi::out_of_memory);
        EXPECT_THAT(refusal(mapped),
                    is_error_of({function, 0, ENOMEM, "CUDA_ERROR_OUT_OF_MEMORY (2)"}));
        EXPECT_EQ(current_context(), program_context(1)) << function;
        EXPECT_EQ(fake::primary_references(0), 0U) << function;
    }
}

} // namespace
} // namespace rdmabuf::testing
