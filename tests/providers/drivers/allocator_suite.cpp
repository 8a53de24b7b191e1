// SPDX-License-Identifier: BSD-3-Clause
// The tests that the exporters of all kinds of memory pass, for the exporter of a vendor's driver.
#include "driver_fixture.hpp"
#include "exporter_suite.hpp"

namespace rdmabuf::testing {
namespace {

Subject subject() {
    const DriverRow& row = driver_row();
    return {.name = row.name,
            .make =
                [&row] {
                    auto exporter = row.make(0);
                    // Initialises the driver. Before that, the driver has no memory.
                    (void)exporter->availability();
                    return exporter;
                },
            .machine =
                [&row] {
                    fake::reset(2);
                    fake::set(fake::Setting::pcie_result,
                              row.no_pcie.empty() ? 0 : row.no_pcie.front());
                    return nullptr;
                },
            .works_with = row.available,
            .makes_dmabufs = false,
            .mapped = false,
            .exports_pages = row.exports_pages,
            .exports_more = row.exports_more,
            .falls_back = !row.no_pcie.empty()};
}

INSTANTIATE_TEST_SUITE_P(Driver, ExporterSuite, ::testing::Values(subject()));

} // namespace
} // namespace rdmabuf::testing
