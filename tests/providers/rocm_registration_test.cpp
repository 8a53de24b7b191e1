// SPDX-License-Identifier: BSD-3-Clause
// ROCm's memory registered and written to, on softverbs.
#include <algorithm>

#include <rdmabuf/dmabuf_mr.hpp>

#include "loopback.hpp"
#include "rocm_fixture.hpp"

namespace rdmabuf::testing {
namespace {

class RocmRegistration : public RocmTest {
  protected:
    /// What the first queue pair of a process opens stays open.
    RocmRegistration() {
        Loopback().connect();
        descriptors_ = open_descriptors();
    }

    DmaBufMR region(const ProtectionDomain& pd, std::uint64_t address, std::size_t length) {
        return {pd, exporter_->export_range(address, length), {.access = full_access}};
    }
    static std::span<const std::byte> bytes_at(std::uint64_t address, std::size_t length) {
        return {static_cast<const std::byte*>(fake_rocm_bytes(address)), length};
    }
};

TEST_F(RocmRegistration, AsksTheDriverNothingWhenItEnds) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = make(FakeRocmKind::device, 2 * page_size());
    std::optional<ExportedRange> range(exporter_->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    range.reset();
    // The memory may be gone by then.
    fake_rocm_free(address);
    const unsigned calls = fake_rocm_all_calls();
    first.reset();
    second.reset();
    EXPECT_EQ(fake_rocm_all_calls(), calls);
}

TEST_F(RocmRegistration, TakesInteriorRangesOfAnySizeAndTouchesNothingAround) {
    // Neighbours in the same pages, of one dma-buf.
    fake_rocm_set_packed(true);
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = make(FakeRocmKind::device, size);
    const std::uint64_t to = make(FakeRocmKind::device, size);
    ASSERT_NE(to % page_size(), 0U);
    Loopback net;
    net.connect();
    unsigned seed = 0;
    for (const std::size_t length :
         {std::size_t{1}, page_size() - 1, page_size() + 1, 3 * page_size(), std::size_t{70'001}}) {
        for (const std::size_t offset : {std::size_t{1}, std::size_t{511}, page_size() + 13}) {
            const auto source = put(from, size, ++seed);
            auto expected = put(to, size, ++seed);
            const DmaBufMR here = region(net.a.pd, from + offset, length);
            const DmaBufMR there = region(net.b.pd, to + 2 * offset, length);
            ASSERT_TRUE(net.a.qp->post_write(here.sge(0, static_cast<std::uint32_t>(length)),
                                             there.remote(), {.wr_id = seed}));
            net.a.expect(seed);
            std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(offset), length,
                        expected.begin() + static_cast<std::ptrdiff_t>(2 * offset));
            EXPECT_TRUE(std::ranges::equal(bytes_at(to, size), expected))
                << length << " bytes at " << offset;
            EXPECT_TRUE(std::ranges::equal(bytes_at(from, size), source));
        }
    }
}

TEST_F(RocmRegistration, LeavesNothingIn10000Cycles) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = make(FakeRocmKind::device, 2 * page_size());
    (void)region(pd, address + 5, page_size());
    const auto before = open_descriptors();
    for (int cycle = 0; cycle < 10'000; ++cycle) {
        ASSERT_EQ(region(pd, address + 5, page_size()).iova(), address + 5);
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(fake_rocm_open_exports(), 0U);
}

} // namespace
} // namespace rdmabuf::testing
