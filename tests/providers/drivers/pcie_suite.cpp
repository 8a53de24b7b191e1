// SPDX-License-Identifier: BSD-3-Clause
// Tests of exporters that have MappingKind::pcie.
#include <utility>

#include "driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using DriverPcie = DriverTest;

TEST_F(DriverPcie, ExportsThroughTheBarWhereTheDeviceHasThatMapping) {
    const std::uint64_t address = make();
    const auto expected = put(address, page_size(), 3);
    const ExportedRange range = exporter_->export_range(address, page_size(), MappingKind::pcie);
    EXPECT_EQ(range.mapping(), MappingKind::pcie);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(exporter_->export_range(address, 1).mapping(), MappingKind::standard);
}

TEST_F(DriverPcie, FallsBackWhereTheDeviceDoesNotHaveThatMapping) {
    const std::uint64_t address = make();
    const auto expected = put(address, page_size(), 4);
    const auto exports = [] {
        const auto& [standard, pcie] = std::pair(driver_row().export_call, driver_row().pcie_call);
        return fake::calls(standard) + (pcie != standard ? fake::calls(pcie) : 0);
    };
    for (const int result : driver_row().no_pcie) {
        fake::set(fake::Setting::pcie_result, result);
        const unsigned calls = exports();
        const ExportedRange range =
            exporter_->export_range(address, page_size(), MappingKind::pcie);
        EXPECT_EQ(range.mapping(), MappingKind::standard);
        EXPECT_EQ(bytes_of(range), expected);
        EXPECT_EQ(exports(), calls + 2) << "one for each mapping";
    }
    fake::set(fake::Setting::pcie_result, driver_row().pcie_failure);
    const unsigned before = exports();
    EXPECT_THAT(refusal(address, 1, MappingKind::pcie), fails_with(ENOMEM));
    EXPECT_EQ(exports(), before + 1) << "this failure does not mean that the mapping is missing";
}

} // namespace
} // namespace rdmabuf::testing
