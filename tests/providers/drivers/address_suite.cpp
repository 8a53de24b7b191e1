// SPDX-License-Identifier: BSD-3-Clause
// Tests of exporters whose driver reports which memory contains an address.
#include <limits>

#include <rdmabuf/resolver.hpp>

#include "driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using DriverOwnership = DriverTest;
using DriverGenerations = DriverTest;
using DriverRanges = DriverTest;
using DriverKinds = DriverTest;
using DriverDevices = DriverTest;

const int host_memory = 0;
const auto host_address = reinterpret_cast<std::uintptr_t>(&host_memory);

TEST_F(DriverOwnership, FindingDoesNotInitialiseTheDriver) {
    // The library of Level Zero keeps its contexts when the driver is reset. After this allocation
    // it has them in any order of the tests.
    if (allocator_) {
        static_cast<void>(allocator_->allocate(1));
    }
    allocator_.reset();
    exporter_.reset();
    fake::reset(2);
    const auto exporter = driver_row().make(0);
    const Resolver resolver({exporter});
    EXPECT_FALSE(exporter->find(0x1234));
    EXPECT_FALSE(resolver.try_find(host_address));
    EXPECT_TRUE(error_of([&] { (void)resolver.find(host_address); }));
    const auto& [init, result, error, text] = driver_row().uninitialised;
    EXPECT_THAT(error_of([&] { (void)exporter->export_range(0x1234, 1); }),
                fails_with(error, text));
    EXPECT_EQ(fake::calls(init), 0U);
    if (driver_row().begin) {
        driver_row().begin(*exporter);
    }
}

TEST_F(DriverOwnership, ReportsKindDeviceAndExtent) {
    const std::size_t size = 3 * page_size();
    for (const auto& [made, kind, pci_address] : driver_row().kinds) {
        const std::uint64_t address = make(made, size, 1);
        const auto found = exporter_->find(address + size - 1);
        ASSERT_TRUE(found) << to_string(kind);
        EXPECT_EQ(found->kind, kind);
        EXPECT_EQ(found->base, address);
        EXPECT_EQ(found->length, size);
        EXPECT_EQ(found->pci_address, pci_address);
        EXPECT_FALSE(exporter_->find(address + size));
        fake::free(address);
    }
}

TEST_F(DriverOwnership, FindingExportsNothingAndCallsLittleForMemoryOfOthers) {
    const std::uint64_t address = make();
    const auto before = open_descriptors();
    EXPECT_TRUE(exporter_->find(address));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake::calls(driver_row().export_call), 0U);
    // The first call may list the contexts of the driver.
    EXPECT_FALSE(exporter_->find(host_address));
    const unsigned calls = fake::all_calls();
    EXPECT_FALSE(exporter_->find(host_address));
    EXPECT_EQ(fake::all_calls(), calls + driver_row().calls_of_miss);
}

TEST_F(DriverOwnership, AFailureOfTheDriverDoesNotMeanThatMemoryIsOfOthers) {
    const std::uint64_t address = make();
    for (const DriverFailure& failure : driver_row().find_failures) {
        fake::fail(failure.function, failure.result);
        EXPECT_THAT(error_of([&] { (void)exporter_->find(address); }), is_error_of(failure));
        EXPECT_TRUE(exporter_->find(address));
    }
}

// For an address in a pool of Intel's driver that no allocation contains, the driver reports device
// memory, but no extent (Context::getMemAllocProperties() and Context::getMemAddressRange() of
// compute-runtime).
TEST_F(DriverOwnership, MemoryWithoutAnExtentIsNotOfOthers) {
    fake::set(fake::Setting::no_extent, 1);
    for (const auto& [kind, found, pci_address] : driver_row().kinds) {
        if (found == MemoryKind::pinned_host) {
            continue; // may be registered as host memory
        }
        const std::uint64_t address = make(kind);
        EXPECT_TRUE(error_of([&] { (void)Resolver({exporter_}).try_find(address); }))
            << to_string(found);
    }
}

TEST_F(DriverOwnership, MemoryThatIsFreedDuringFindIsUnknownUnlessItIsAllocatedAgain) {
    for (const DriverFailure& step : driver_row().find_steps) {
        for (const bool again : {false, true}) {
            const std::uint64_t address = make();
            fake::free_before(step.function, address, again);
            fake::fail(step.function, step.result);
            EXPECT_EQ(exporter_->find(address).has_value(), again);
            fake::free(address);
        }
    }
}

TEST_F(DriverGenerations, EndWithTheAllocation) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    const auto first = exporter_->find(address);
    ASSERT_TRUE(first);
    EXPECT_EQ(exporter_->find(address + page_size())->generation, first->generation);
    EXPECT_EQ(exporter_->find_range(address, 2 * page_size())->generation, first->generation);
    fake::free(address);
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_THAT(refusal(address), fails_with(EFAULT, "not been freed"));
    ASSERT_EQ(make(fake::Kind::device, 2 * page_size()), address);
    const auto second = exporter_->find(address);
    ASSERT_TRUE(second);
    EXPECT_EQ(second->base, first->base);
    EXPECT_NE(second->generation, first->generation);
}

TEST_F(DriverRanges, DoNotSpanAllocationsThatLieSideBySide) {
    for (const bool packed : {false, true}) {
        fake::set(fake::Setting::packed, packed && driver_row().packs ? 1 : 0);
        const std::uint64_t first = make();
        const std::uint64_t second = make();
        ASSERT_EQ(second, first + page_size());
        for (const std::size_t length : {page_size(), std::numeric_limits<std::size_t>::max()}) {
            EXPECT_THAT(refusal(first + 1, length), fails_with(ERANGE));
        }
        EXPECT_EQ(exporter_->find_range(first, 2 * page_size())->length, page_size());
        EXPECT_EQ(fake::calls(driver_row().export_call), 0U) << "the driver might have allowed it";
    }
}

TEST_F(DriverRanges, OfMemoryThatIsFreedDuringTheExportAreRefused) {
    for (const bool succeeds : {false, true}) {
        for (const bool again : {false, true}) {
            const std::uint64_t address = make();
            fake::free_before(driver_row().export_call, address, again);
            if (!succeeds) {
                fake::fail(driver_row().export_call, driver_row().export_step_result);
            }
            EXPECT_THAT(
                refusal(address),
                fails_with(EFAULT, again ? "belongs to another allocation now" : "not been freed"));
            fake::free(address);
        }
    }
}

TEST_F(DriverKinds, ThatCannotBeExportedAreRefusedWithARemedy) {
    for (const auto& [kind, error, texts] : driver_row().refused_kinds) {
        const auto refused = refusal(make(kind));
        for (const std::string& text : texts) {
            EXPECT_THAT(refused, fails_with(error, text));
        }
    }
    EXPECT_EQ(fake::calls(driver_row().export_call), 0U);
}

TEST_F(DriverDevices, WithoutDmaBufsAreNamedAndTheirMemoryIsFoundAndRefused) {
    const std::uint64_t address = make();
    const std::uint64_t other = make(fake::Kind::device, page_size(), 1);
    driver_row().disable_exports();
    for (const std::string& text : driver_row().disabled_texts) {
        EXPECT_THAT(refusal(address), fails_with(EOPNOTSUPP, text));
    }
    const std::string& available = driver_row().available_without_first;
    EXPECT_EQ(refusal(other).has_value(), available.empty());
    EXPECT_EQ(bool{allocator_->availability()}, !available.empty());
    EXPECT_THAT(allocator_->availability().reason, ::testing::HasSubstr(available));
    EXPECT_EQ(exporter_->find(address)->kind, MemoryKind::device);
}

TEST_F(DriverDevices, AreChosenByTheirNumber) {
    {
        const Buffer buffer = driver_row().make(1)->allocate(1);
        EXPECT_EQ(exporter_->find(buffer.address())->pci_address,
                  driver_row().kinds.front().pci_address);
        EXPECT_EQ(fake::live(), 1U);
    }
    EXPECT_EQ(fake::live(), 0U);
    for (const int device : {2, -1}) {
        const auto exporter = driver_row().make(device);
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        EXPECT_THAT(error, fails_with(ENODEV, " " + std::to_string(device) + "; number of ",
                                      "that this process sees: 2"));
        EXPECT_FALSE(exporter->availability());
    }
}

} // namespace
} // namespace rdmabuf::testing
