// SPDX-License-Identifier: BSD-3-Clause
// Memory of a program registered and written to, on softverbs.
#include <rdmabuf/dmabuf_mr.hpp>

#include "driver_fixture.hpp"
#include "interior_writes.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class DriverRegistration : public DriverTest {
  protected:
    DriverRegistration() {
        // The first queue pair of a process opens descriptors that stay open.
        Loopback().connect();
        descriptors_ = open_descriptors();
    }
};

TEST_F(DriverRegistration, DoesNotCallTheDriverWhenItEnds) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    std::optional<AddedRange> added = add(address, 2 * page_size());
    std::optional<ExportedRange> range(exporter_->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    // Some drivers close the descriptor of a range.
    range.reset();
    added.reset();
    fake::free(address);
    const unsigned calls = fake::all_calls();
    first.reset();
    second.reset();
    EXPECT_EQ(fake::all_calls(), calls);
}

TEST_F(DriverRegistration, WritesInteriorRangesOfAnySizeAndNothingElse) {
    // The allocations share pages where the driver packs allocations.
    fake::set(fake::Setting::packed, driver_row().packs ? 1 : 0);
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = make(fake::Kind::device, size);
    const std::uint64_t to = make(fake::Kind::device, size);
    const auto source = add(from, size);
    const auto target = add(to, size);
    EXPECT_EQ(to % page_size() != 0, driver_row().packs);
    expect_interior_writes(*exporter_, from, to, size, fake::bytes);
}

} // namespace
} // namespace rdmabuf::testing
