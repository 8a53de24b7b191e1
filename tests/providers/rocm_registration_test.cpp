// SPDX-License-Identifier: BSD-3-Clause
// ROCm's memory registered and written to, on softverbs.
#include <rdmabuf/dmabuf_mr.hpp>

#include "interior_writes.hpp"
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
    expect_interior_writes(*exporter_, from, to, size, fake_rocm_bytes);
}

} // namespace
} // namespace rdmabuf::testing
