// SPDX-License-Identifier: BSD-3-Clause
#include <new>

#include "drivers/driver_fixture.hpp"
#include "out_of_memory.hpp"

namespace rdmabuf::testing {
namespace {

using RocmRanges = DriverTest;

TEST_F(RocmRanges, AreReturnedToTheDriverWhereMemoryIsShort) {
    const std::uint64_t address = make();
    const ExportedRange first = exporter_->export_range(address, 1);
    bool refused = false;
    try {
        const OutOfMemory now;
        (void)exporter_->export_range(address, 1);
    } catch (const std::bad_alloc&) {
        refused = true;
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(fake::open_exports(), 1U);
}

} // namespace
} // namespace rdmabuf::testing
