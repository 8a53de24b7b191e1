// SPDX-License-Identifier: BSD-3-Clause
// A driver from before HSA AMD extension 1.9.
#include "rocm_fixture.hpp"

namespace rdmabuf::testing {
namespace {

TEST_F(RocmTest, ExportsInTheOnlyWayThatAnOlderDriverHas) {
    const std::uint64_t address = make(FakeRocmKind::device, 2 * page_size());
    const auto expected = put(address, 2 * page_size(), 1);
    const ExportedRange range =
        exporter_->export_range(address, 2 * page_size(), MappingKind::pcie);
    EXPECT_EQ(range.mapping(), MappingKind::standard);
    EXPECT_EQ(bytes_of(range), expected);
    EXPECT_EQ(fake_rocm_calls("hsa_amd_portable_export_dmabuf"), 1U);
}

} // namespace
} // namespace rdmabuf::testing
