// SPDX-License-Identifier: BSD-3-Clause
// CUDA memory on softverbs, also memory that softverbs cannot map and that the driver copies.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>

#include "cuda/cuda_abi.hpp"
#include "drivers/driver_fixture.hpp"
#include "loopback.hpp"

namespace rdmabuf::testing {
namespace {

class CudaRegistration : public DriverTest {
  protected:
    /// The first queue pair of a process opens descriptors that stay open.
    static void SetUpTestSuite() { Loopback().connect(); }
};

TEST_F(CudaRegistration, UsesVerbsWhereOnlyDataDirectIsListedAndThereIsNone) {
    using enum RegistrationPath;
    const Loopback net;
    const Registration region =
        register_memory(net.a.pd, Resolver({exporter_}), make(fake::Kind::device, page_size()),
                        page_size(), {.paths = {dmabuf_data_direct}});
    EXPECT_EQ(region.path(), dmabuf);
    EXPECT_EQ(region.trail()[0].path, dmabuf_data_direct);
    // libmlx5 does not have the function, or answers for the device of another driver.
    EXPECT_THAT(region.trail()[0].error, ::testing::AnyOf(ENOSYS, EOPNOTSUPP));
}

class CudaUnmapped : public CudaRegistration {
  protected:
    CudaUnmapped() {
        net_.emplace().connect();
        softverbs_set_faults("dmabuf=unmappable");
    }

    /// Memory of both sides of a transfer, and its regions.
    struct Transfer {
        std::uint64_t from, to;
        DmaBufMR here, there;
    };
    Transfer transfer(unsigned device_of_target = 0) {
        const std::uint64_t from = make(fake::Kind::device, length);
        const std::uint64_t to = make(fake::Kind::device, length, device_of_target);
        return {from, to, region(net_->a, from), region(net_->b, to)};
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
    const auto [from, to, here, there] = transfer(1);
    const auto sent = put(from, length, 1);
    const auto calls = fake::calls("cuMemcpyHtoDAsync_v2");
    EXPECT_EQ(write(here, there), IBV_WC_SUCCESS);
    EXPECT_GT(fake::calls("cuMemcpyHtoDAsync_v2"), calls);
    const std::span found(static_cast<const std::byte*>(fake::bytes(to)), length);
    EXPECT_TRUE(std::equal(found.begin(), found.end(), sent.begin()));
}

TEST_F(CudaUnmapped, TheFreedMemoryOfThePeerIsARemoteAccessError) {
    const auto [from, to, here, there] = transfer();
    fake::free(to);
    EXPECT_EQ(write(here, there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, OnesOwnFreedMemoryIsALocalProtectionError) {
    const auto [from, to, here, there] = transfer();
    fake::free(from);
    EXPECT_EQ(write(here, there), IBV_WC_LOC_PROT_ERR);
}

TEST_F(CudaUnmapped, FreedBeforeTheDataOfAReadCameIsALocalProtectionErrorToo) {
    const auto [from, to, here, there] = transfer();
    fake::fail("cuMemcpyHtoDAsync_v2", detail::cuda::invalid_value);
    ASSERT_TRUE(net_->a.qp->post_read(here.sge(0, length), there.remote(), {.wr_id = 1}));
    EXPECT_EQ(net_->a.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(CudaUnmapped, ADestroyedContextTakesItsMemoryAlong) {
    const auto [from, to, here, there] = transfer(1);
    fake::destroy_program_context(1);
    EXPECT_EQ(write(here, there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, AContextAtTheAddressOfADestroyedOneDoesNotServeItsMemory) {
    const auto [from, to, here, there] = transfer(1);
    fake::renew_program_context(1);
    EXPECT_EQ(write(here, there), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, AContextAtTheAddressOfADestroyedOneHasAStreamOfItsOwn) {
    const auto before = transfer(1);
    EXPECT_EQ(write(before.here, before.there), IBV_WC_SUCCESS);
    fake::renew_program_context(1);
    const auto after = transfer(1);
    EXPECT_EQ(write(after.here, after.there), IBV_WC_SUCCESS);
}

TEST_F(CudaUnmapped, AtomicsOnFreedMemoryAreRefused) {
    const auto [from, to, here, there] = transfer();
    fake::free(to);
    ASSERT_TRUE(net_->a.qp->post_fetch_add(here.sge(0, 8), there.remote(), 1, {.wr_id = 1}));
    EXPECT_EQ(net_->a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(CudaUnmapped, IsRegisteredByItsOwnAddressOnly) {
    const std::uint64_t memory = make(fake::Kind::device, 2 * page_size());
    const ExportedRange range = exporter_->export_range(memory, 2 * page_size());
    EXPECT_THAT(
        error_of([&] { const DmaBufMR region(net_->a.pd, range, {.iova = memory + (1U << 30U)}); }),
        fails_with(EINVAL));
    // Its begin is there, its end is not.
    fake::free(memory);
    const std::uint64_t shorter = make(fake::Kind::device, page_size());
    ASSERT_EQ(shorter, memory);
    EXPECT_TRUE(error_of([&] { const DmaBufMR region(net_->a.pd, range, {}); }));
}

} // namespace
} // namespace rdmabuf::testing
