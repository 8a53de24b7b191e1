// SPDX-License-Identifier: BSD-3-Clause
// Runs also on a driver from before HSA AMD extension 1.9.
#include "drivers/driver_fixture.hpp"
#include "rocm/rocm_abi.hpp"

namespace rdmabuf::testing {
namespace {

TEST_F(DriverTest, ExportsOfADeviceWithASmallBarHaveTheStandardMapping) {
    fake::set(fake::Setting::pcie_result, detail::rocm::not_supported);
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    const auto expected = put(address, 2 * page_size(), 1);
    const ExportedRange range =
        exporter_->export_range(address, 2 * page_size(), MappingKind::pcie);
    EXPECT_EQ(range.mapping(), MappingKind::standard);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(fake::calls(driver_row().export_call), 1U);
}

} // namespace
} // namespace rdmabuf::testing
