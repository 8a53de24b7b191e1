// SPDX-License-Identifier: BSD-3-Clause
// Mappings of a program's device registered and written to, on softverbs.
#include <rdmabuf/dmabuf_mr.hpp>

#include "habana_fixture.hpp"
#include "interior_writes.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class HabanaRegistration : public HabanaTest {
  protected:
    /// What the first queue pair of a process opens stays open.
    HabanaRegistration() {
        Loopback().connect();
        descriptors_ = open_descriptors();
    }
};

TEST_F(HabanaRegistration, AsksTheDriverNothingWhenItEnds) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = fake_habana_map(2 * page_size());
    std::optional<AddedRange> added(exporter->add({.address = address, .length = 2 * page_size()}));
    std::optional<ExportedRange> range(exporter->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    const unsigned calls = fake_habana_all_calls();
    added.reset();
    first.reset();
    range.reset();
    second.reset();
    EXPECT_EQ(fake_habana_all_calls(), calls);
}

TEST_F(HabanaRegistration, TakesInteriorRangesOfAnySizeAndTouchesNothingAround) {
    const auto exporter = of_device(abi::DeviceName::gaudi2);
    constexpr std::size_t size = 300'001;
    // Both in one mapping, side by side.
    const std::uint64_t pool = fake_habana_map(1U << 20U);
    const AddedRange source =
        exporter->add({.address = pool + 64, .length = size, .mapping = pool});
    const AddedRange target =
        exporter->add({.address = pool + 64 + size, .length = size, .mapping = pool});
    expect_interior_writes(*exporter, source.address(), target.address(), size, fake_habana_bytes);
}

} // namespace
} // namespace rdmabuf::testing
