// SPDX-License-Identifier: BSD-3-Clause
// Memory that a program allocated on its device. The driver is a fake: this proves what we make of
// its answers, and not what Habana's answers.
#include <cerrno>
#include <tuple>

#include "habana_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using HabanaAdding = HabanaTest;

TEST_F(HabanaAdding, MakesAMappingKnownUntilItIsRemoved) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::size_t size = 3 * page_size();
    const std::uint64_t address = fake_habana_map(size);
    const auto expected = put(address, size, 1);
    EXPECT_FALSE(exporter->find(address));
    AddedRange added = exporter->add({.address = address, .length = size, .generation = 5});
    const auto found = exporter->find(address + size - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, size);
    EXPECT_EQ(found->generation, 5U);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->pci_address, "0000:33:00.0");
    {
        const ExportedRange range = exporter->export_range(address + page_size() + 7, 100);
        EXPECT_EQ(range.offset(), page_size() + 7);
        const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(page_size() + 7);
        EXPECT_EQ(bytes_through(range, false), std::vector(begin, begin + 100));
    }
    added.remove();
    EXPECT_FALSE(exporter->find(address));
    const auto error = error_of([&] { (void)exporter->export_range(address, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EFAULT);
}

TEST_F(HabanaAdding, CallsWhatTheDeviceNeeds) {
    for (const auto& [name, called, other] :
         {std::tuple{abi::DeviceName::gaudi, dram_call, mapping_call},
          std::tuple{abi::DeviceName::gaudi_hl2000m, dram_call, mapping_call},
          std::tuple{abi::DeviceName::gaudi2, mapping_call, dram_call},
          std::tuple{static_cast<abi::DeviceName>(7), mapping_call, dram_call}}) {
        fake_habana_reset(1);
        const auto exporter = of_device(name);
        const std::uint64_t address = fake_habana_map(2 * page_size());
        const AddedRange added = exporter->add({.address = address, .length = 2 * page_size()});
        EXPECT_EQ(fake_habana_calls(called), 1U);
        EXPECT_EQ(fake_habana_calls(other), 0U);
    }
}

TEST_F(HabanaAdding, WidensMemoryOfAGaudi1ToPages) {
    const auto exporter = of_device(abi::DeviceName::gaudi);
    const std::uint64_t dram = fake_habana_map(2 * page_size());
    const auto expected = put(dram, 2 * page_size(), 2);
    const AddedRange added = exporter->add({.address = dram + 100, .length = page_size()});
    EXPECT_EQ(fake_habana_exported(), 2 * page_size());
    const ExportedRange range = exporter->export_range(dram + 101, page_size() - 1);
    EXPECT_EQ(range.offset(), 101U);
    const auto begin = expected.begin() + 101;
    EXPECT_EQ(bytes_through(range, false),
              std::vector(begin, begin + static_cast<std::ptrdiff_t>(page_size() - 1)));
}

TEST_F(HabanaAdding, ExportsAMappingFromItsBeginOnForMemoryFurtherIn) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t pool = fake_habana_map(8 * page_size());
    const auto expected = put(pool, 8 * page_size(), 3);
    const std::size_t in = 2 * page_size() + 128;
    const AddedRange added =
        exporter->add({.address = pool + in, .length = page_size(), .mapping = pool});
    EXPECT_EQ(fake_habana_exported(), 4 * page_size());
    EXPECT_FALSE(exporter->find(pool));
    const ExportedRange range = exporter->export_range(pool + in + 1, 50);
    EXPECT_EQ(range.offset(), in + 1);
    const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(in + 1);
    EXPECT_EQ(bytes_through(range, false), std::vector(begin, begin + 50));
}

TEST_F(HabanaAdding, AsksNothingToFindAndToExportRanges) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(page_size());
    const AddedRange added = exporter->add({.address = address, .length = page_size()});
    const unsigned calls = fake_habana_all_calls();
    const int local = 0;
    EXPECT_FALSE(exporter->find(reinterpret_cast<std::uintptr_t>(&local)));
    EXPECT_TRUE(exporter->find(address));
    const ExportedRange range = exporter->export_range(address, 1);
    EXPECT_EQ(fake_habana_all_calls(), calls);
}

TEST_F(HabanaAdding, LeavesNoDescriptorToOtherProgramsNorBehindIn10000Cycles) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(2 * page_size());
    fake_habana_set_faults({.inheritable = true});
    const AddedRange added = exporter->add({.address = address, .length = 2 * page_size()});
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 10'000; ++cycle) {
        const ExportedRange part = exporter->export_range(address + 5, page_size());
        ASSERT_GE(part.fd(), 0);
    }
    EXPECT_EQ(open_descriptors(), before);
    for (const int fd : before) {
        EXPECT_TRUE(descriptors_.contains(fd) || closed_on_exec(fd)) << "descriptor " << fd;
    }
}

TEST_F(HabanaAdding, RefusesNumbersThatCannotBe) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(page_size());
    for (const auto& [memory, text] :
         {std::pair{HabanaMemory{.address = address}, "0 bytes"},
          std::pair{HabanaMemory{.length = 1}, "address 0"},
          std::pair{HabanaMemory{.address = std::uintptr_t{0} - 16, .length = 32},
                    "does not fit into 64 bits"},
          std::pair{HabanaMemory{.address = address, .length = 1, .mapping = address + 1},
                    "the mapping begins after the start of the memory"}}) {
        const auto error = refusal(*exporter, memory);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EINVAL);
        EXPECT_THAT(error->what(), HasSubstr(text));
    }
    EXPECT_EQ(fake_habana_calls(mapping_call), 0U);
}

TEST_F(HabanaAdding, TellsWhatTheDriverRefused) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(2 * page_size());
    const auto before = open_descriptors();
    // Not where a mapping begins, and past the end of one.
    for (const HabanaMemory& memory :
         {HabanaMemory{.address = address + page_size(), .length = page_size()},
          HabanaMemory{.address = address, .length = 3 * page_size()}}) {
        const auto error = refusal(*exporter, memory);
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EINVAL);
        EXPECT_STREQ(error->function(), mapping_call);
        EXPECT_THAT(error->what(), AllOf(HasSubstr(std::to_string(memory.length) + " bytes at 0x"),
                                         HasSubstr("hlthunk_device_memory_map()")));
        EXPECT_FALSE(exporter->find(memory.address));
    }
    fake_habana_fail(mapping_call, 1, -EBUSY);
    const auto error = refusal(*exporter, {.address = address, .length = 1});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EBUSY);
    EXPECT_THAT(error->what(), HasSubstr("being reset"));
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(HabanaAdding, TellsOfAGaudi1WhatItsAddressesAre) {
    const auto exporter = of_device(abi::DeviceName::gaudi);
    const auto error = refusal(*exporter, {.address = page_size(), .length = 1});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EINVAL);
    EXPECT_STREQ(error->function(), dram_call);
    EXPECT_THAT(error->what(), HasSubstr("in the DRAM of the device"));
}

TEST_F(HabanaAdding, RefusesADmaBufThatIsTooShort) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(2 * page_size());
    fake_habana_set_faults({.short_exports = true});
    const auto error = refusal(*exporter, {.address = address, .length = page_size() + 1});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ERANGE);
    EXPECT_THAT(error->what(), HasSubstr("has " + std::to_string(page_size()) + " bytes"));
}

TEST_F(HabanaAdding, RefusesWhatOverlaps) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const std::uint64_t address = fake_habana_map(2 * page_size());
    const AddedRange first = exporter->add({.address = address, .length = 2 * page_size()});
    const auto before = open_descriptors();
    const auto error =
        refusal(*exporter, {.address = address + page_size(), .length = 1, .mapping = address});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EEXIST);
    EXPECT_EQ(open_descriptors(), before);
}

} // namespace
} // namespace rdmabuf::testing
