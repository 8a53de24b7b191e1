// SPDX-License-Identifier: BSD-3-Clause
// CUDA's memory registered and written to, on softverbs.
#include <cstdlib>

#include <rdmabuf/dmabuf_mr.hpp>

#include "cuda_fixture.hpp"
#include "interior_writes.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class CudaRegistration : public CudaTest {
  protected:
    /// What the first queue pair of a process opens stays open.
    CudaRegistration() {
        Loopback().connect();
        descriptors_ = open_descriptors();
    }

    DmaBufMR region(const ProtectionDomain& pd, std::uint64_t address, std::size_t length) {
        return {pd, exporter_->export_range(address, length), {.access = full_access}};
    }
};

TEST_F(CudaRegistration, AsksTheDriverNothingWhenItEnds) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    const std::uint64_t address = make(FakeCudaKind::device, 2 * page_size());
    std::optional<ExportedRange> range(exporter_->export_range(address + 3, page_size()));
    std::optional<DmaBufMR> first(std::in_place, pd, *range);
    std::optional<DmaBufMR> second(std::in_place, pd, *range);
    EXPECT_EQ(first->iova(), address + 3);
    // The memory may be gone by then.
    fake_cuda_free(address);
    const unsigned calls = fake_cuda_all_calls();
    first.reset();
    range.reset();
    second.reset();
    EXPECT_EQ(fake_cuda_all_calls(), calls);
}

TEST_F(CudaRegistration, TakesInteriorRangesOfAnySizeAndTouchesNothingAround) {
    // Neighbours in the same pages.
    fake_cuda_set_packed(true);
    constexpr std::size_t size = 300'001;
    const std::uint64_t from = make(FakeCudaKind::device, size);
    const std::uint64_t to = make(FakeCudaKind::device, size);
    ASSERT_NE(to % page_size(), 0U);
    expect_interior_writes(*exporter_, from, to, size, fake_cuda_bytes);
}

TEST_F(CudaRegistration, SpansMappings) {
    // Where it cannot map it, softverbs copies in the primary context, which it keeps.
    kept_primaries_ = std::getenv("SOFTVERBS_FAULTS") != nullptr ? 1 : 0;
    const std::size_t page = page_size();
    const std::uint64_t from = map({{page, 0, false, true}, {2 * page, 0, false, true}});
    const std::uint64_t to = map({{2 * page, 0, false, true}, {page, 0, false, true}});
    Loopback net;
    net.connect();
    const auto source = put(from, 3 * page, 1);
    auto expected = put(to, 3 * page, 2);
    const std::size_t length = 2 * page + 5;
    const DmaBufMR here = region(net.a.pd, from + 7, length);
    const DmaBufMR there = region(net.b.pd, to + 11, length);
    ASSERT_TRUE(net.a.qp->post_write(here.sge(0, static_cast<std::uint32_t>(length)),
                                     there.remote(), {.wr_id = 1}));
    net.a.expect(1);
    std::copy(source.begin() + 7, source.begin() + 7 + static_cast<std::ptrdiff_t>(length),
              expected.begin() + 11);
    const std::span found(static_cast<const std::byte*>(fake_cuda_bytes(to)), 3 * page);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin()));
}

} // namespace
} // namespace rdmabuf::testing
