// SPDX-License-Identifier: BSD-3-Clause
// What only Habana has: two generations of devices with different exports, mappings that contain
// the memory, and a device that one process acquires.
#include <tuple>

#include <rdmabuf/providers/habana.hpp>

#include "drivers/driver_fixture.hpp"
#include "fake_habana.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::habana;
using abi::DeviceName;
using ::testing::HasSubstr;

constexpr const char* mapping_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
constexpr const char* dram_call = "hlthunk_device_memory_export_dmabuf_fd";

/// Makes an exporter for a device that the program has opened.
std::shared_ptr<HabanaExporter> exporter_of(DeviceName name) {
    return make_habana_exporter({.fd = fake_habana::open(name)});
}

std::optional<Error> refusal_of(HabanaExporter& exporter, const HabanaMemory& memory) {
    return error_of([&] { (void)exporter.add(memory); });
}

using HabanaAdding = DriverTest;
using HabanaAllocating = DriverTest;
using HabanaDevice = DriverTest;

TEST_F(HabanaAdding, CallsTheFunctionOfTheDevice) {
    for (const auto& [name, called, other] :
         {std::tuple{DeviceName::gaudi, dram_call, mapping_call},
          std::tuple{DeviceName::gaudi_hl2000m, dram_call, mapping_call},
          std::tuple{DeviceName::gaudi2, mapping_call, dram_call},
          std::tuple{static_cast<DeviceName>(7), mapping_call, dram_call}}) {
        fake::reset(1);
        const auto exporter = exporter_of(name);
        const std::uint64_t address = make();
        const AddedRange added = exporter->add({.address = address, .length = page_size()});
        EXPECT_EQ(fake::calls(called), 1U);
        EXPECT_EQ(fake::calls(other), 0U);
    }
}

TEST_F(HabanaAdding, ExportsWholePagesOfAGaudi1) {
    const auto exporter = exporter_of(DeviceName::gaudi);
    const std::uint64_t dram = make(fake::Kind::device, 2 * page_size());
    const auto expected = put(dram, 2 * page_size(), 2);
    const AddedRange added = exporter->add({.address = dram + 100, .length = page_size()});
    EXPECT_EQ(fake::recorded(dram_call), 2 * page_size());
    const ExportedRange range = exporter->export_range(dram + 101, page_size() - 1);
    EXPECT_EQ(range.offset(), 101U);
    EXPECT_EQ(bytes_of(range), part(expected, 101, page_size() - 1));
}

TEST_F(HabanaAdding, ExportsAMappingFromItsStart) {
    const auto exporter = exporter_of(DeviceName::gaudi2);
    const std::uint64_t pool = make(fake::Kind::device, 8 * page_size());
    const auto expected = put(pool, 8 * page_size(), 3);
    const std::size_t begin = 2 * page_size() + 128;
    const AddedRange added =
        exporter->add({.address = pool + begin, .length = page_size(), .mapping = pool});
    EXPECT_EQ(fake::recorded(mapping_call), 4 * page_size());
    EXPECT_FALSE(exporter->find(pool));
    const ExportedRange range = exporter->export_range(pool + begin + 1, 50);
    EXPECT_EQ(range.offset(), begin + 1);
    EXPECT_EQ(bytes_of(range), part(expected, begin + 1, 50));
}

TEST_F(HabanaAdding, ReportsWhyTheDriverRefuses) {
    const auto exporter = exporter_of(DeviceName::gaudi2);
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    EXPECT_THAT(refusal_of(*exporter, {.address = address, .length = 1, .mapping = address + 1}),
                fails_with(EINVAL, "the mapping begins after the start of the memory"));
    EXPECT_EQ(fake::calls(mapping_call), 0U);
    // Not the start of a mapping, and memory behind the end of a mapping.
    for (const HabanaMemory& memory :
         {HabanaMemory{.address = address + page_size(), .length = page_size()},
          HabanaMemory{.address = address, .length = 3 * page_size()}}) {
        EXPECT_THAT(refusal_of(*exporter, memory),
                    fails_with(mapping_call, EINVAL, std::to_string(memory.length) + " bytes at 0x",
                               "hlthunk_device_memory_map()"));
        EXPECT_FALSE(exporter->find(memory.address));
    }
    EXPECT_THAT(refusal_of(*exporter_of(DeviceName::gaudi), {.address = page_size(), .length = 1}),
                fails_with(dram_call, EINVAL, "in the DRAM of the device"));
    EXPECT_THAT(refusal_of(*make_habana_exporter(), {.address = 4096, .length = 1}),
                fails_with(ENODEV, "HabanaOptions::fd"));
}

TEST_F(HabanaAllocating, AcquiresADeviceWhileThereAreBuffersAndExports) {
    EXPECT_TRUE(allocator_->availability());
    EXPECT_EQ(fake::references(), 0U) << "availability() acquires no device";
    {
        const Buffer first = allocator_->allocate(1);
        const Buffer second = make_habana_exporter()->allocate(1);
        EXPECT_EQ(fake::calls("synDeviceAcquire"), 1U);
        EXPECT_EQ(allocator_->find(first.address())->pci_address, "0000:33:00.0");
    }
    EXPECT_EQ(fake::references(), 0U);
    auto buffer = std::make_unique<Buffer>(allocator_->allocate(page_size()));
    const ExportedRange range = allocator_->export_range(buffer->address(), page_size());
    buffer.reset();
    EXPECT_EQ(fake::references(), 1U);
    EXPECT_EQ(fake::calls("synDeviceAcquire"), 2U);
}

TEST_F(HabanaAllocating, NeverExportsLessOfTheMappingThanBefore) {
    auto first = std::make_unique<Buffer>(allocator_->allocate(page_size()));
    const Buffer second = allocator_->allocate(4 * page_size());
    EXPECT_EQ(fake::recorded(mapping_call), 5 * page_size());
    // Older kernels have one size for all exports of a mapping.
    first.reset();
    const Buffer third = allocator_->allocate(page_size());
    ASSERT_LT(third.address(), second.address());
    EXPECT_EQ(fake::recorded(mapping_call), 5 * page_size());
}

TEST_F(HabanaAllocating, DoesNotAllocateOnTheDeviceOfTheProgram) {
    EXPECT_THAT(error_of([&] { (void)exporter_->allocate(1); }), fails_with(ENOTSUP, "add() it"));
    EXPECT_EQ(fake::calls("synDeviceAcquire"), 0U);
}

TEST_F(HabanaAllocating, WorksWithALibraryThatTheProgramInitialised) {
    EXPECT_FALSE(refusal_to_allocate());
    for (const int status : {abi::already_initialized, abi::object_already_initialized}) {
        // Also initialises the library.
        fake::fail("synInitialize", status);
        EXPECT_FALSE(refusal_to_allocate());
    }
}

TEST_F(HabanaAllocating, ReportsATeardownThatFails) {
    const TeardownFailures failures;
    {
        const Buffer buffer = allocator_->allocate(1);
        fake::fail("synDeviceFree", abi::device_reset);
    }
    EXPECT_EQ(TeardownFailures::seen().at(0), TeardownFailures::Failure("synDeviceFree", EIO));
    fake::reset(1);
}

TEST_F(HabanaDevice, OfTheProgramIsNamed) {
    EXPECT_EQ(exporter_->availability().reason, "libhl-thunk.so, the program's Gaudi 0000:33:00.0");
    EXPECT_EQ(exporter_of(DeviceName::gaudi)->availability().reason,
              "libhl-thunk.so, the program's Gaudi 1 0000:33:00.0");
}

TEST_F(HabanaDevice, MustBeOpenAndAGaudi) {
    const int goya = fake_habana::open(DeviceName::goya);
    for (const auto& [fd, error, text] :
         {std::tuple{1'000'000, EBADF, "is not open"},
          std::tuple{goya, ENODEV, "is not that of a Gaudi"},
          std::tuple{0, ENODEV, "descriptor 0 is not that of a Gaudi"}}) {
        const auto exporter = make_habana_exporter({.fd = fd});
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr(text));
        EXPECT_NE(found.remedy, "");
        EXPECT_THAT(refusal_of(*exporter, {.address = 4096, .length = 1}), fails_with(error));
    }
}

} // namespace
} // namespace rdmabuf::testing
