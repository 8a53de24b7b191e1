// SPDX-License-Identifier: BSD-3-Clause
// What only Level Zero's memory can get wrong. The loader is the real one and the driver a fake:
// this proves what we make of a driver's answers, and not what Intel's answers.
#include <cerrno>
#include <limits>

#include <rdmabuf/resolver.hpp>

#include "level_zero_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum FakeLevelZeroKind;

constexpr const char* export_call = "zeMemGetAllocProperties(export)";

using LevelZeroFinding = LevelZeroTest;
using LevelZeroRanges = LevelZeroTest;
using LevelZeroKinds = LevelZeroTest;

TEST_F(LevelZeroFinding, TellsKindDeviceAndExtent) {
    const std::size_t size = 3 * page_size();
    const std::vector<std::pair<FakeLevelZeroKind, MemoryKind>> kinds{
        {device, MemoryKind::device},
        {shared, MemoryKind::managed},
        {host, MemoryKind::pinned_host},
    };
    for (const auto& [made, kind] : kinds) {
        const std::uint64_t address = make(made, size, 1);
        const auto found = exporter_->find(address + size - 1);
        ASSERT_TRUE(found) << to_string(kind);
        EXPECT_EQ(found->kind, kind);
        EXPECT_EQ(found->base, address);
        EXPECT_EQ(found->length, size);
        EXPECT_EQ(found->pci_address, made == device ? "0001:3b:1f.1" : "");
        EXPECT_FALSE(exporter_->find(address + size));
        fake_level_zero_free(address);
    }
}

TEST_F(LevelZeroFinding, ExportsNothingAndAsksEachContextOnce) {
    const std::uint64_t address = make(device);
    const auto before = open_descriptors();
    EXPECT_FALSE(exporter_->find(address - 1));
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake_level_zero_calls(export_call), 0U);

    // By now the library has a context, too.
    const int local = 0;
    const unsigned calls = fake_level_zero_all_calls();
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    EXPECT_EQ(fake_level_zero_all_calls(), calls + 2) << "the program's, and the library's";
}

TEST_F(LevelZeroFinding, KnowsTheMemoryOfContextsThatItWasToldOf) {
    const std::uint64_t address = make(device);
    const auto untold = make_level_zero_exporter();
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_FALSE(untold->find(address));
    const auto error = error_of([&] { (void)untold->export_range(address, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
    EXPECT_THAT(error->what(), HasSubstr("LevelZeroOptions::contexts"));
    // Its own it needs not be told of.
    const Buffer buffer = exporter_->allocate(1);
    EXPECT_TRUE(untold->find(buffer.address()));
}

TEST_F(LevelZeroFinding, NeedsNoContextWhereTheDriverAnswersForAll) {
    fake_level_zero_set_lenient(true);
    const std::uint64_t address = make(device);
    const auto expected = put(address, page_size(), 1);
    const auto untold = make_level_zero_exporter();
    EXPECT_TRUE(untold->find(address));
    EXPECT_EQ(bytes_of(untold->export_range(address, page_size())), expected);
}

TEST_F(LevelZeroFinding, TakesTheDriversRefusalForAnAnswer) {
    const std::uint64_t address = make(device);
    // What the driver of an NPU says of memory that is not its own.
    fake_level_zero_fail("zeMemGetAllocProperties", 1, abi::not_available);
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_TRUE(exporter_->find(address));
    for (const auto gone : {abi::invalid_argument, abi::address_not_found}) {
        fake_level_zero_fail("zeMemGetAddressRange", 1, gone);
        EXPECT_FALSE(exporter_->find(address));
    }
}

TEST_F(LevelZeroFinding, DriverErrorIsNotTheAnswerThatMemoryIsNotLevelZeros) {
    const std::uint64_t address = make(device);
    // The context of the program fails; that of the library does not know the memory.
    fake_level_zero_fail("zeMemGetAllocProperties", 1, abi::device_lost);
    const auto error = error_of([&] { (void)exporter_->find(address); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_STREQ(error->function(), "zeMemGetAllocProperties");
    EXPECT_TRUE(exporter_->find(address));
}

TEST_F(LevelZeroFinding, TellsWhatFailsForMemoryThatIsLevelZeros) {
    const std::uint64_t address = make(device);
    fake_level_zero_fail("zeMemGetAddressRange", 1, abi::device_lost);
    const auto error = error_of([&] { (void)exporter_->find(address); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_STREQ(error->function(), "zeMemGetAddressRange");
    EXPECT_THAT(error->what(), AllOf(HasSubstr("ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)"),
                                     HasSubstr("check dmesg")));
}

TEST_F(LevelZeroFinding, TakesMemoryThatIsFreedMeanwhileForUnknown) {
    for (const bool again : {false, true}) {
        const std::uint64_t address = make(device);
        fake_level_zero_free_before("zeMemGetAddressRange", address, again);
        fake_level_zero_fail("zeMemGetAddressRange", 1, abi::out_of_host_memory);
        EXPECT_FALSE(exporter_->find(address));
        EXPECT_EQ(exporter_->find(address).has_value(), again);
        fake_level_zero_free(address);
    }
}

TEST_F(LevelZeroFinding, GivesAnAddressThatIsReusedAnotherGeneration) {
    const std::uint64_t address = make(device);
    const auto first = exporter_->find(address);
    fake_level_zero_free(address);
    EXPECT_FALSE(exporter_->find(address));
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
    EXPECT_THAT(error->what(), HasSubstr("not been freed"));
    ASSERT_EQ(make(device), address);
    const auto second = exporter_->find(address);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->base, second->base);
    EXPECT_NE(first->generation, second->generation);
}

TEST_F(LevelZeroFinding, ComesBeforeTheExportersOfSystemMemory) {
    fake_level_zero_set_lenient(true);
    const Resolver resolver = Resolver::system();
    std::vector<std::string> names;
    for (const auto& exporter : resolver.exporters()) {
        names.emplace_back(exporter->name());
    }
    const auto place = [&](const char* name) {
        return std::find(names.begin(), names.end(), name) - names.begin();
    };
    EXPECT_LT(place("level_zero"), place("drm"));
    EXPECT_LT(place("level_zero"), place("udmabuf"));
    EXPECT_EQ(resolver.find(make(device)).exporter->name(), "level_zero");
}

// Ranges

TEST_F(LevelZeroRanges, LieInTheDmaBufOfTheWholeAllocation) {
    const std::size_t size = 4 * page_size();
    const std::uint64_t address = make(device, size);
    const auto expected = put(address, size, 1);
    const ExportedRange range = exporter_->export_range(address + page_size() + 17, 300);
    EXPECT_EQ(range.offset(), page_size() + 17);
    EXPECT_EQ(range.length(), 300U);
    EXPECT_EQ(range.address(), address + page_size() + 17);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(page_size() + 17);
    EXPECT_EQ(bytes_of(range), std::vector(begin, begin + 300));
}

TEST_F(LevelZeroRanges, HaveDescriptorsBesideTheOneThatTheDriverKeeps) {
    const std::uint64_t address = make(device);
    const auto expected = put(address, page_size(), 2);
    {
        const ExportedRange first = exporter_->export_range(address, page_size());
        const int kept = fake_level_zero_descriptor(address);
        const ExportedRange second = exporter_->export_range(address, page_size());
        EXPECT_EQ(fake_level_zero_descriptor(address), kept) << "it gives everybody the same";
        EXPECT_EQ((std::set{kept, first.fd(), second.fd()}.size()), 3U);
    }
    EXPECT_FALSE(fake_level_zero_descriptor_was_closed());
    EXPECT_EQ(bytes_of(exporter_->export_range(address, page_size())), expected);
}

TEST_F(LevelZeroRanges, AreClosedOnExecAndTheDriversDescriptorIsAsItWas) {
    const std::uint64_t address = make(device);
    fake_level_zero_set_inheritable(true);
    EXPECT_TRUE(closed_on_exec(exporter_->export_range(address, 1).fd()));
    EXPECT_FALSE(closed_on_exec(fake_level_zero_descriptor(address)));
}

TEST_F(LevelZeroRanges, AreRoundedUpToTheDriversPagesAndNoFurther) {
    const std::size_t driver_page = std::max<std::size_t>(65536, page_size());
    fake_level_zero_set_page_size(driver_page);
    const std::uint64_t address = make(device, 5000);
    const auto expected = put(address, 5000, 3);
    EXPECT_EQ(exporter_->find(address)->length, 5000U);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 5000)), expected);
    // The last page holds more than the allocation, and the allocation is the limit.
    for (const std::size_t length :
         {std::size_t{5001}, std::numeric_limits<std::size_t>::max() - page_size()}) {
        const auto error = refusal(address, length);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ERANGE);
        EXPECT_THAT(error->what(), HasSubstr("buffer of 5000 bytes"));
    }
}

TEST_F(LevelZeroRanges, OfAPoolAreRefusedSinceNobodyTellsWhereInItTheyLie) {
    fake_level_zero_set_undescribed(abi::success);
    const std::size_t driver_page = std::max<std::size_t>(65536, page_size());
    fake_level_zero_set_page_size(driver_page);
    struct Piece {
        std::size_t pool_size, offset, size;
    };
    for (const auto [pool_size, offset, size] :
         {Piece{2 * driver_page, 0, 1000}, Piece{2 * driver_page, driver_page, 1000},
          Piece{driver_page, 512, 1000}, Piece{2 * driver_page, page_size(), driver_page + 1}}) {
        const std::uint64_t address = fake_level_zero_make_pooled(pool_size, offset, size);
        const auto error = refusal(address);
        ASSERT_TRUE(error) << size << " bytes at " << offset << " of " << pool_size;
        EXPECT_EQ(error->error(), EOPNOTSUPP);
        EXPECT_THAT(error->what(),
                    AllOf(HasSubstr("dma-buf has " + std::to_string(pool_size) + " bytes"),
                          HasSubstr("has " + std::to_string(size)),
                          HasSubstr("ze_external_memory_export_desc_t")));
        fake_level_zero_free(address);
    }
    // One that has a pool to itself is whole.
    const std::uint64_t address = fake_level_zero_make_pooled(driver_page, 0, 1000);
    const auto expected = put(address, 1000, 4);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 1000)), expected);
}

TEST_F(LevelZeroRanges, ThatTheDriverCutsShortAreRefused) {
    const std::uint64_t address = make(device, 2 * page_size());
    fake_level_zero_set_shortfall(page_size());
    // Also the part that is there: of several dma-bufs nothing is known.
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("has " + std::to_string(page_size()) + " bytes"),
                      HasSubstr(std::to_string(2 * page_size())), HasSubstr("tile")));
}

TEST_F(LevelZeroRanges, ThatAreFreedMeanwhileAreNoRanges) {
    // Also where the driver then exports what is there now, and nothing fails.
    for (const bool again : {false, true}) {
        for (const bool fails : {false, true}) {
            const std::uint64_t address = make(device);
            fake_level_zero_free_before(export_call, address, again);
            if (fails) {
                fake_level_zero_fail(export_call, 1, abi::unknown_error);
            }
            const auto error = refusal(address);
            ASSERT_TRUE(error);
            EXPECT_EQ(error->error(), EFAULT);
            EXPECT_THAT(error->what(),
                        HasSubstr(again ? "belongs to another allocation now" : "not been freed"));
            fake_level_zero_free(address);
        }
    }
}

TEST_F(LevelZeroRanges, TellWhatTheDriverSaysAndTryNoOtherWay) {
    const std::uint64_t address = make(device);
    fake_level_zero_fail(export_call, 1, abi::out_of_host_memory);
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOMEM);
    EXPECT_THAT(error->what(), HasSubstr("ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY (0x70000002)"));
    EXPECT_EQ(fake_level_zero_calls("zeMemGetIpcHandle"), 0U);
}

// Kinds of memory

TEST_F(LevelZeroKinds, ThatWereNotAllocatedForExportAreExportedWhereTheDriverDoesItAllTheSame) {
    fake_level_zero_set_undescribed(abi::success);
    const std::uint64_t address = make_undescribed(device, 2 * page_size());
    const auto expected = put(address, 2 * page_size(), 5);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 2 * page_size())), expected);
}

TEST_F(LevelZeroKinds, ThatTheDriverDoesNotExportAreRefusedWithHowToAllocate) {
    const std::uint64_t address = make_undescribed(device);
    for (const auto answer : {abi::unsupported_feature, abi::invalid_argument}) {
        fake_level_zero_set_undescribed(answer);
        const auto error = refusal(address);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EOPNOTSUPP);
        EXPECT_THAT(error->what(), HasSubstr("ze_external_memory_export_desc_t"));
    }
    const std::uint64_t described = make(device);
    fake_level_zero_set_no_descriptor(true);
    EXPECT_EQ(refusal(described)->error(), EOPNOTSUPP) << "a success that gives nothing";
}

TEST_F(LevelZeroKinds, ThatMoveAreRefusedWithWhatToUse) {
    const auto error = refusal(make(shared));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("shared (zeMemAllocShared), and migrates"),
                                     HasSubstr("use zeMemAllocDevice")));
    EXPECT_EQ(fake_level_zero_calls(export_call), 0U);
}

TEST_F(LevelZeroKinds, OfTheHostAreExportedByDriversThatCan) {
    const std::uint64_t address = make_undescribed(host, 2 * page_size());
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"),
                                     HasSubstr("with MemoryRegion")));
    EXPECT_EQ(fake_level_zero_calls("zeMemGetIpcHandle"), 0U) << "which is for device memory";
    fake_level_zero_set_undescribed(abi::success);
    const auto expected = put(address, 2 * page_size(), 6);
    EXPECT_EQ(bytes_of(exporter_->export_range(address, 2 * page_size())), expected);
}

TEST_F(LevelZeroKinds, OfAGpuWithoutDmaBufsAreRefused) {
    const std::uint64_t address = make(device);
    const std::uint64_t other = make(device, page_size(), 1);
    fake_level_zero_set_export_types(0, 1);
    const auto error = refusal(address);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EOPNOTSUPP);
    EXPECT_THAT(error->what(), HasSubstr("the GPU 0001:3a:1f.1 does not export its memory"));
    EXPECT_FALSE(refusal(other)) << "the other GPU can";
    EXPECT_EQ(exporter_->find(address)->kind, MemoryKind::device);
}

} // namespace
} // namespace rdmabuf::testing
