// SPDX-License-Identifier: BSD-3-Clause
// Memory of a program registered and written to, on softverbs.
#include <algorithm>

#include <rdmabuf/region.hpp>

#include "driver_fixture.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class DriverRegistration : public DriverTest {
  protected:
    /// The first queue pair of a process opens descriptors that stay open.
    static void SetUpTestSuite() { Loopback().connect(); }
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
    // The program may free the memory before it destroys the regions.
    fake::free(address);
    const unsigned calls = fake::all_calls();
    added.reset();
    first.reset();
    second.reset();
    range.reset();
    EXPECT_EQ(fake::all_calls(), calls);
}

// Writes from inside one allocation into another one, with odd sizes and offsets. All other bytes
// of both stay as they were.
TEST_F(DriverRegistration, WritesInteriorRangesOfAnySizeAndNothingElse) {
    // The allocations share pages where the driver packs allocations.
    fake::set(fake::Setting::packed, driver_row().packs ? 1 : 0);
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = make(fake::Kind::device, size);
    const std::uint64_t to = make(fake::Kind::device, size);
    const auto source_added = add(from, size);
    const auto target_added = add(to, size);
    EXPECT_EQ(to % page_size() != 0, driver_row().packs);
    const auto bytes_at = [&](std::uint64_t address) {
        return std::span(static_cast<const std::byte*>(fake::bytes(address)), size);
    };
    const auto region = [&](const End& end, std::uint64_t address, std::size_t length) {
        return DmaBufMR(end.pd, exporter_->export_range(address, length), {.access = full_access});
    };
    Loopback net;
    net.connect();
    unsigned seed = 0;
    for (const std::size_t length :
         {std::size_t{1}, page_size() - 1, page_size() + 1, 3 * page_size(), std::size_t{70'001}}) {
        for (const std::size_t offset : {std::size_t{1}, std::size_t{511}, page_size() + 13}) {
            const auto source = put(from, size, ++seed);
            auto expected = put(to, size, ++seed);
            const DmaBufMR here = region(net.a, from + offset, length);
            const DmaBufMR there = region(net.b, to + 2 * offset, length);
            ASSERT_TRUE(net.a.qp->post_write(here.sge(0, static_cast<std::uint32_t>(length)),
                                             there.remote(), {.wr_id = seed}));
            net.a.expect(seed);
            const auto sent = source.begin() + static_cast<std::ptrdiff_t>(offset);
            std::copy(sent, sent + static_cast<std::ptrdiff_t>(length),
                      expected.begin() + static_cast<std::ptrdiff_t>(2 * offset));
            EXPECT_TRUE(std::ranges::equal(bytes_at(to), expected))
                << length << " bytes at " << offset;
            EXPECT_TRUE(std::ranges::equal(bytes_at(from), source));
        }
    }
}

} // namespace
} // namespace rdmabuf::testing
