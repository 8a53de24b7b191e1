// SPDX-License-Identifier: BSD-3-Clause
#include <new>

#include "out_of_memory.hpp"
#include "rocm_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using RocmRanges = RocmTest;

TEST_F(RocmRanges, GoBackToTheDriverWhereMemoryIsShort) {
    const std::uint64_t address = make(FakeRocmKind::device);
    const ExportedRange first = exporter_->export_range(address, 1);
    bool refused = false;
    try {
        const OutOfMemory now;
        (void)exporter_->export_range(address, 1);
    } catch (const std::bad_alloc&) {
        refused = true;
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(fake_rocm_open_exports(), 1U);
}

} // namespace
} // namespace rdmabuf::testing
