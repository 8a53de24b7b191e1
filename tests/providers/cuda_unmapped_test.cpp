// SPDX-License-Identifier: BSD-3-Clause
// What can become of CUDA's memory that softverbs cannot map and has the driver copy.
#include <softverbs/softverbs.h>

#include <optional>

#include <rdmabuf/dmabuf_mr.hpp>

#include "cuda_fixture.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class CudaUnmapped : public CudaTest {
  protected:
    CudaUnmapped() {
        // What the first queue pair of a process opens stays open.
        Loopback().connect();
        descriptors_ = open_descriptors();
        net_.emplace().connect();
        softverbs_set_faults("dmabuf=unmappable");
    }

    DmaBufMR region(const End& end, std::uint64_t address) {
        return {end.pd, exporter_->export_range(address, length), {.access = full_access}};
    }
    ibv_wc_status write(const Region& from, const Region& to) {
        EXPECT_TRUE(net_->a.qp->post_write(from.sge(0, length), to.remote(), {.wr_id = 1}));
        return net_->a.next().status;
    }

    static constexpr std::uint32_t length = 100'000;
    std::optional<Loopback> net_;
};

TEST_F(CudaUnmapped, IsCopiedInTheContextOfTheProgramAndNoOther) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length, 1);
    const auto sent = put(from, length, 1);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    const auto calls = fake_cuda_calls("cuMemcpyHtoDAsync_v2");
    EXPECT_EQ(write(here, there), IBV_WC_SUCCESS);
    EXPECT_GT(fake_cuda_calls("cuMemcpyHtoDAsync_v2"), calls);
    const std::span found(static_cast<const std::byte*>(fake_cuda_bytes(to)), length);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), sent.begin()));
}

TEST_F(CudaUnmapped, TheFreedMemoryOfThePeerIsARemoteAccessError) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    fake_cuda_free(to);
    EXPECT_EQ(write(here, there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, OnesOwnFreedMemoryIsALocalProtectionError) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    fake_cuda_free(from);
    EXPECT_EQ(write(here, there), IBV_WC_LOC_PROT_ERR);
}

TEST_F(CudaUnmapped, FreedBeforeTheDataOfAReadCameIsALocalProtectionErrorToo) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    fake_cuda_fail("cuMemcpyHtoDAsync_v2", 1, abi::invalid_value);
    ASSERT_TRUE(net_->a.qp->post_read(here.sge(0, length), there.remote(), {.wr_id = 1}));
    EXPECT_EQ(net_->a.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(CudaUnmapped, ADestroyedContextTakesItsMemoryAlong) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length, 1);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    fake_cuda_destroy_program_context(1);
    EXPECT_EQ(write(here, there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, AtomicsOnFreedMemoryAreRefused) {
    const std::uint64_t from = make(FakeCudaKind::device, length);
    const std::uint64_t to = make(FakeCudaKind::device, length);
    const DmaBufMR here = region(net_->a, from);
    const DmaBufMR there = region(net_->b, to);
    fake_cuda_free(to);
    ASSERT_TRUE(net_->a.qp->post_fetch_add(here.sge(0, 8), there.remote(), 1, {.wr_id = 1}));
    EXPECT_EQ(net_->a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, IsRegisteredByItsOwnAddressOnly) {
    const std::uint64_t memory = make(FakeCudaKind::device, 2 * page_size());
    const ExportedRange range = exporter_->export_range(memory, 2 * page_size());
    const auto error =
        error_of([&] { const DmaBufMR region(net_->a.pd, range, {.iova = memory + (1U << 30U)}); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code().value(), EINVAL);
    // Its begin is there, its end is not.
    fake_cuda_free(memory);
    const std::uint64_t shorter = make(FakeCudaKind::device, page_size());
    ASSERT_EQ(shorter, memory);
    EXPECT_TRUE(error_of([&] { const DmaBufMR region(net_->a.pd, range, {}); }));
}

} // namespace
} // namespace rdmabuf::testing
