// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/rocm.hpp>

#include "drivers/driver_fixture.hpp"
#include "exporter_suite.hpp"
#include "rocm/rocm_abi.hpp"

namespace rdmabuf::testing {
namespace {

const Subject subject{.name = "rocm",
                      .make =
                          [] {
                              auto exporter = make_rocm_exporter();
                              // Initialises HSA. Before that, HSA has no memory.
                              (void)exporter->availability();
                              return exporter;
                          },
                      .machine =
                          [] {
                              fake::reset(1);
                              // The exporter falls back to the other mapping.
                              fake::set(fake::Setting::pcie_result, detail::rocm::not_supported);
                              return nullptr;
                          },
                      .works_with = "libhsa-runtime64.so.1, 0000:3b:00.0",
                      .makes_dmabufs = false,
                      .mapped = false,
                      .falls_back = true};

INSTANTIATE_TEST_SUITE_P(Rocm, ExporterSuite, ::testing::Values(subject));

// This test also runs on a driver from before HSA AMD extension 1.9.
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
