// SPDX-License-Identifier: BSD-3-Clause
// A runtime without nrt_get_dmabuf_fd_v2(), which exports only from the first address of an
// allocation.
#include "drivers/driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using NeuronOlder = DriverTest;

TEST_F(NeuronOlder, ExportsInteriorRangesOfAnAllocationFromItsBase) {
    const std::uint64_t address = make(fake::Kind::device, 3 * page_size());
    const auto expected = put(address, 3 * page_size(), 1);
    const auto added = add(address, 3 * page_size());
    EXPECT_EQ(fake::calls("nrt_get_dmabuf_fd"), 1U);
    const ExportedRange range = exporter_->export_range(address + page_size() + 9, page_size());
    EXPECT_EQ(range.offset(), page_size() + 9);
    EXPECT_EQ(bytes_of(range), part(expected, page_size() + 9, page_size()));
}

TEST_F(NeuronOlder, RefusesASliceInsideAPageWithoutACall) {
    EXPECT_THAT(refusal(make() + 24, 100),
                fails_with("nrt_get_dmabuf_fd", EINVAL, "24 bytes into a page",
                           "nrt_get_dmabuf_fd_v2", "add the whole allocation"));
    EXPECT_EQ(fake::calls("nrt_get_dmabuf_fd"), 0U);
}

TEST_F(NeuronOlder, ReportsWhyTheRuntimeRefusesASlice) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    EXPECT_THAT(refusal(address + page_size(), page_size()),
                fails_with(EINVAL, "NRT_INVALID (2)", "the first address of an allocation"));
    EXPECT_FALSE(exporter_->find(address + page_size()));
}

} // namespace
} // namespace rdmabuf::testing
