// SPDX-License-Identifier: BSD-3-Clause
// Tests of exporters that are notified of the memory of the program, because their driver does not
// report which memory contains an address.
#include "driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using DriverAdding = DriverTest;

TEST_F(DriverAdding, MemoryIsFoundUntilItIsRemoved) {
    const std::size_t size = 3 * page_size();
    const std::uint64_t address = make(fake::Kind::device, size);
    EXPECT_FALSE(exporter_->find(address));
    auto added = add(address, size, 77);
    const auto found = exporter_->find(address + size - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, address);
    EXPECT_EQ(found->length, size);
    EXPECT_EQ(found->generation, 77U);
    EXPECT_EQ(found->kind, driver_row().kinds.front().found);
    EXPECT_EQ(found->pci_address, driver_row().kinds.front().pci_address);
    EXPECT_FALSE(exporter_->find(address + size));
    added->remove();
    EXPECT_FALSE(exporter_->find(address));
    EXPECT_THAT(error_of([&] { (void)exporter_->export_range(address, 1); }), fails_with(EFAULT));
}

TEST_F(DriverAdding, ExportsAsOftenAsTheDriverRequiresAndFindDoesNotCallTheDriver) {
    const std::uint64_t address = make(fake::Kind::device, 4 * page_size());
    const auto expected = put(address, 4 * page_size(), 1);
    const auto added = add(address, 4 * page_size());
    EXPECT_EQ(fake::calls(driver_row().export_call), 1U);
    const unsigned calls = fake::all_calls();
    const int local = 0;
    EXPECT_FALSE(exporter_->find(reinterpret_cast<std::uintptr_t>(&local)));
    const auto found = exporter_->find(address);
    ASSERT_TRUE(found);
    EXPECT_EQ(fake::all_calls(), calls);
    const ExportedRange range = exporter_->export_range(address + page_size() + 5, 100);
    EXPECT_EQ(fake::all_calls(), calls + (found->single_import ? 1 : 0));
    EXPECT_EQ(range.offset() % page_size(), 5U);
    EXPECT_EQ(bytes_of(range), part(expected, page_size() + 5, 100));
}

TEST_F(DriverAdding, ASliceMayBeginInsideAPage) {
    const std::uint64_t address = make(fake::Kind::device, 4 * page_size());
    const auto expected = put(address, 4 * page_size(), 2);
    const std::size_t begin = page_size() + 513;
    const auto slice = add(address + begin, page_size() + 11);
    EXPECT_FALSE(exporter_->find(address));
    const ExportedRange range = exporter_->export_range(address + begin + 3, page_size() + 8);
    EXPECT_EQ(range.offset() % page_size(), 516U);
    EXPECT_EQ(bytes_of(range), part(expected, begin + 3, page_size() + 8));
}

TEST_F(DriverAdding, RefusesAnImpossibleRangeWithoutACall) {
    EXPECT_THAT(refusal(make(), 0), fails_with(EINVAL, "0 bytes"));
    EXPECT_EQ(fake::calls(driver_row().export_call), 0U);
}

TEST_F(DriverAdding, RefusesMemoryThatOverlapsAndClosesItsDescriptor) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    const auto first = add(address, page_size());
    const auto before = open_descriptors();
    EXPECT_THAT(refusal(address, 2 * page_size()), fails_with(EEXIST));
    EXPECT_LE(open_descriptors().size(), before.size());
}

TEST_F(DriverAdding, KeepsOnlyDescriptorsThatAreClosedOnExec) {
    fake::set(fake::Setting::inheritable, 1);
    const std::uint64_t address = make();
    const auto before = open_descriptors();
    const auto added = add(address, page_size());
    for (const int fd : open_descriptors()) {
        EXPECT_TRUE(before.contains(fd) || closed_on_exec(fd)) << "descriptor " << fd;
    }
}

} // namespace
} // namespace rdmabuf::testing
