// SPDX-License-Identifier: BSD-3-Clause
// Level Zero's memory registered and written to, on softverbs.
#include <rdmabuf/dmabuf_mr.hpp>

#include "interior_writes.hpp"
#include "level_zero_fixture.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

using enum FakeLevelZeroKind;

class LevelZeroRegistration : public LevelZeroTest {
  protected:
    /// What the first queue pair of a process opens stays open.
    LevelZeroRegistration() {
        Loopback().connect();
        descriptors_ = open_descriptors();
    }

    DmaBufMR region(const ProtectionDomain& pd, std::uint64_t address, std::size_t length) {
        return {pd, exporter_->export_range(address, length), {.access = full_access}};
    }
};

TEST_F(LevelZeroRegistration, AsksTheDriverNothingWhenItEnds) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = make(device, 2 * page_size());
    std::optional<ExportedRange> range(exporter_->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    // The memory may be gone by then.
    fake_level_zero_free(address);
    const unsigned calls = fake_level_zero_all_calls();
    first.reset();
    range.reset();
    second.reset();
    EXPECT_EQ(fake_level_zero_all_calls(), calls);
}

TEST_F(LevelZeroRegistration, TakesInteriorRangesOfAnySizeAndTouchesNothingAround) {
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = make(device, size);
    const std::uint64_t to = make(device, size);
    expect_interior_writes(*exporter_, from, to, size, fake_level_zero_bytes);
}

} // namespace
} // namespace rdmabuf::testing
