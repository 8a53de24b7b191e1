// SPDX-License-Identifier: BSD-3-Clause
// What only Level Zero has: contexts that find only their own memory, descriptors that the driver
// keeps, pools, mapped memory, and memory that was not allocated for export.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <rdmabuf/providers/level_zero.hpp>

#include "drivers/driver_fixture.hpp"
#include "fake_level_zero.hpp"
#include "level_zero/level_zero_abi.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::level_zero;
using fake::Kind;
using ::testing::HasSubstr;

constexpr const char* export_descriptor = "ze_external_memory_export_desc_t";

using LevelZeroContexts = DriverTest;
using LevelZeroRanges = DriverTest;
using LevelZeroKinds = DriverTest;
using LevelZeroDevices = DriverTest;

TEST_F(LevelZeroContexts, FindOnlyTheirOwnMemory) {
    const std::uint64_t address = make();
    const auto without_context = make_level_zero_exporter();
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_FALSE(without_context->find(address));
    EXPECT_THAT(error_of([&] { (void)without_context->export_range(address, 1); }),
                fails_with(EFAULT, "LevelZeroOptions::contexts"));
    const Buffer buffer = exporter_->allocate(1);
    EXPECT_TRUE(without_context->find(buffer.address())) << "the context of the library";
}

TEST_F(LevelZeroContexts, AreNotNeededWhereTheDriverFindsTheMemoryOfAll) {
    fake::set(fake::Setting::shared_contexts, 1);
    const std::uint64_t address = make();
    const auto expected = put(address, page_size(), 1);
    EXPECT_EQ(bytes_of(make_level_zero_exporter()->export_range(address, page_size())), expected);
}

TEST_F(LevelZeroContexts, AreSharedByTheExportersOfTheLibrary) {
    const Buffer first = exporter_->allocate(1);
    const unsigned created = fake::calls("zeContextCreate");
    const auto other = make_level_zero_exporter({.device = 1});
    const Buffer second = other->allocate(1);
    EXPECT_TRUE(other->find(first.address()));
    EXPECT_TRUE(exporter_->find(second.address()));
    EXPECT_EQ(fake::calls("zeContextCreate"), created);
}

// In a process of its own, because a process keeps the contexts that it has made.
TEST_F(LevelZeroContexts, AreUnknownWhileTheTypeOfADeviceIs) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto find = [this] {
        const int local = 0;
        fake::fail("zeDeviceGetProperties", abi::device_lost);
        const auto error =
            error_of([&] { (void)exporter_->find(reinterpret_cast<std::uintptr_t>(&local)); });
        std::fputs(error ? error->what() : "found or not", stderr);
        std::exit(0);
    };
    EXPECT_EXIT(find(), ::testing::ExitedWithCode(0), "zeDeviceGetProperties: .*DEVICE_LOST");
}

TEST_F(LevelZeroContexts, DoNotFindMemoryThatTheDriverReportsAsUnknown) {
    const std::uint64_t address = make();
    // The driver of an NPU returns this result for memory of other devices.
    fake::fail("zeMemGetAllocProperties", abi::not_available);
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_TRUE(exporter_->find(address));
}

TEST_F(LevelZeroRanges, HaveDescriptorsOtherThanTheOneThatTheDriverKeeps) {
    const std::uint64_t address = make();
    const auto expected = put(address, page_size(), 2);
    fake::set(fake::Setting::inheritable, 1);
    {
        const ExportedRange first = exporter_->export_range(address, page_size());
        const int kept = fake_level_zero::kept_descriptor(address);
        const ExportedRange second = exporter_->export_range(address, page_size());
        EXPECT_EQ(fake_level_zero::kept_descriptor(address), kept);
        EXPECT_EQ((std::set{kept, first.fd(), second.fd()}.size()), 3U);
        EXPECT_TRUE(closed_on_exec(first.fd()));
        EXPECT_FALSE(closed_on_exec(kept)) << "it is the driver's";
    }
    EXPECT_FALSE(fake_level_zero::kept_descriptor_was_closed());
    EXPECT_EQ(bytes_of(exporter_->export_range(address, page_size())), expected);
}

// The buffer object of an allocation may be much larger than the allocation: some GPUs round it up
// to 2 MiB, and a cache reuses larger objects (DrmMemoryManager and SvmAllocationCache of
// compute-runtime). The driver does not report the size of the object.
TEST_F(LevelZeroRanges, EndWithTheAllocationAndNotWithItsBufferObject) {
    fake::set(fake::Setting::block_alignment, std::int64_t{2} << 20U);
    const std::uint64_t address = make(Kind::device, 5000);
    const auto expected = put(address, 5000, 3);
    EXPECT_EQ(exporter_->find(address)->length, 5000U);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 5000)), expected);
    for (const std::size_t length :
         {std::size_t{5001}, std::numeric_limits<std::size_t>::max() - page_size()}) {
        EXPECT_THAT(refusal(address, length), fails_with(ERANGE, "buffer of 5000 bytes"));
    }
    const Buffer buffer = exporter_->allocate(1);
    EXPECT_FALSE(refusal(buffer.address(), buffer.size()));
}

TEST_F(LevelZeroRanges, OfAPoolAreRefusedUnlessTheyAreTheFirstBecauseTheirOffsetIsUnknown) {
    fake::set(fake::Setting::undescribed_result, abi::success);
    const std::size_t page = page_size();
    const std::uint64_t pool = fake::reserve(4 * page);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{512}, page, 3 * page}) {
        fake::place(pool + offset, Kind::device, 512, 0, false);
    }
    const auto expected = put(pool, 512, 4);
    EXPECT_EQ(bytes_of(exporter_->export_range(pool, 512)), expected);
    for (const std::size_t offset : {std::size_t{512}, page, 3 * page}) {
        EXPECT_THAT(refusal(pool + offset), fails_with(EOPNOTSUPP, "512 bytes at 0x",
                                                       "a part of a pool", export_descriptor));
    }
    fake::fail("zeMemGetAllocProperties", abi::device_lost, 2);
    EXPECT_THAT(refusal(pool + page), fails_with(ENODEV, "ZE_RESULT_ERROR_DEVICE_LOST"));
    EXPECT_THAT(error_of([&] { (void)exporter_->find(pool + 2 * page); }), fails_with(EIO))
        << "an address of the pool without an allocation is not memory of others";
}

// The dma-buf of mapped memory is the whole physical memory, and the driver does not report where a
// mapping begins in it (Context::mapVirtualMem() of compute-runtime).
TEST_F(LevelZeroRanges, OfMappedMemoryAreRefusedUnlessThePhysicalMemoryHasTheSizeOfTheMapping) {
    fake::set(fake::Setting::shared_contexts, 1);
    const std::size_t page = page_size();
    const std::uint64_t whole = fake::reserve(2 * page);
    fake::place(whole, Kind::mapped, 2 * page);
    const auto expected = put(whole, 2 * page, 6);
    EXPECT_EQ(bytes_of(exporter_->export_range(whole, 2 * page)), expected);
    const std::uint64_t part = fake::reserve(2 * page) + page;
    fake::place(part, Kind::mapped, page);
    EXPECT_THAT(refusal(part), fails_with(EOPNOTSUPP, "mapped by zeVirtualMemMap",
                                          "in the physical memory", export_descriptor));
    fake::fail("zeVirtualMemGetAccessAttribute", abi::device_lost);
    EXPECT_THAT(refusal(part), fails_with(ENODEV, "ZE_RESULT_ERROR_DEVICE_LOST"));
}

TEST_F(LevelZeroRanges, HaveNoGenerationIfTheirIdIsTheirAddress) {
    const std::uint64_t address = make();
    EXPECT_NE(exporter_->find(address)->generation, 0U);
    fake::set(fake::Setting::addresses_as_ids, 1);
    EXPECT_EQ(exporter_->find(address)->generation, 0U);
}

TEST_F(LevelZeroRanges, OfSeveralTilesAreRefused) {
    const std::uint64_t address = make(Kind::device, 2 * page_size());
    fake::set(fake::Setting::shortfall, static_cast<std::int64_t>(page_size()));
    // The part in the dma-buf is refused too: the other dma-bufs are unknown.
    EXPECT_THAT(refusal(address), fails_with(ERANGE, std::to_string(2 * page_size()), "tile"));
}

TEST_F(LevelZeroKinds, HostMemoryThatTheProgramHasImportedIsHostMemory) {
    fake::set_attribute(0, fake_level_zero::host_type, 4); // ZE_MEMORY_TYPE_HOST_IMPORTED
    EXPECT_EQ(exporter_->find(make(Kind::host))->kind, MemoryKind::pinned_host);
    fake::set(fake::Setting::undescribed_result, abi::unsupported_feature);
    EXPECT_THAT(refusal(make(Kind::host, 1, 0, false)), fails_with(EOPNOTSUPP, "by ibv_reg_mr()"));
}

TEST_F(LevelZeroKinds, ThatWereNotAllocatedForExportAreExportedOnlyByDriversThatCan) {
    for (const Kind kind : {Kind::device, Kind::host}) {
        const std::uint64_t address = make(kind, 2 * page_size(), 0, false);
        fake::set(fake::Setting::undescribed_result, abi::unsupported_feature);
        EXPECT_THAT(refusal(address),
                    fails_with(EOPNOTSUPP, "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE",
                               kind == Kind::host ? "by ibv_reg_mr()" : export_descriptor));
        fake::set(fake::Setting::undescribed_result, abi::success);
        const auto expected = put(address, 2 * page_size(), 5);
        EXPECT_EQ(bytes_of(exporter_->export_range(address, 2 * page_size())), expected);
    }
    fake::set(fake::Setting::undescribed_result, abi::invalid_argument);
    EXPECT_THAT(refusal(make(Kind::device, 1, 0, false)),
                fails_with(EOPNOTSUPP, export_descriptor));
}

TEST_F(LevelZeroDevices, AreGpusAndNothingElse) {
    fake::set_attribute(0, fake_level_zero::device_type, 5);
    EXPECT_EQ(exporter_->availability().reason, driver_row().available_without_first);
    fake::set_attribute(1, fake_level_zero::device_type, 5);
    const Availability none = exporter_->availability();
    EXPECT_FALSE(none);
    EXPECT_THAT(none.reason, HasSubstr(driver_row().no_device));
    fake::reset(2);
    EXPECT_TRUE(exporter_->availability());
    fake::set_attribute(0, fake_level_zero::export_types, 0);
    fake::set_attribute(1, fake_level_zero::export_types, 0);
    EXPECT_FALSE(exporter_->availability());
    EXPECT_THAT(exporter_->availability().reason,
                HasSubstr("does not export its memory as dma-bufs"));
}

// With ZE_INIT_FLAG_GPU_ONLY, the driver of an NPU fails, and the loader then skips this driver for
// the rest of the process.
TEST_F(LevelZeroDevices, OfAllTypesAreInitialised) {
    EXPECT_TRUE(exporter_->availability());
    EXPECT_EQ(fake::recorded("zeInit"), 0U);
}

TEST_F(LevelZeroDevices, WithoutADriverAreReportedWithTheDeviceFiles) {
    fake::fail("zeInit", abi::uninitialized);
    const Availability found = exporter_->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason,
                ::testing::AllOf(HasSubstr("libze_loader.so.1"),
                                 HasSubstr("ZE_RESULT_ERROR_UNINITIALIZED (0x78000001)")));
    EXPECT_THAT(found.remedy, HasSubstr("/dev/dri/renderD*"));
}

} // namespace
} // namespace rdmabuf::testing
