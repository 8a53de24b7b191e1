// SPDX-License-Identifier: BSD-3-Clause
// Device memory through the kernel's uverbs. The rig's device wants regions to begin at whole pages
// of it; that is Soft-RoCE's restriction and not the interface's.
#include <unistd.h>

#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/device_memory.hpp>

#include "fails_with.hpp"
#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

class RealDeviceMemory : public ::testing::Test {
  protected:
    Loopback net_;
    const ProtectionDomain& pd_ = net_.a.pd;
    std::size_t capacity_ = net_.context.attributes().max_dm_size();
};

TEST_F(RealDeviceMemory, KeepsWhatIsCopiedIntoIt) {
    DeviceMemory memory(net_.context, 5000);
    const auto bytes = pattern(4000, 1);
    memory.copy_in(500, bytes);
    std::vector<std::byte> back(5000, std::byte{0xff});
    memory.copy_out(0, back);
    EXPECT_EQ(std::vector<std::byte>(back.begin() + 500, back.begin() + 4500), bytes);
    EXPECT_EQ(back[499], std::byte{0});
    EXPECT_EQ(back[4500], std::byte{0});
}

TEST_F(RealDeviceMemory, IsClearedBetweenOwners) {
    {
        DeviceMemory memory(net_.context, page_size());
        memory.copy_in(0, std::vector<std::byte>(page_size(), std::byte{0xff}));
    }
    const DeviceMemory memory(net_.context, page_size());
    std::vector<std::byte> back(page_size(), std::byte{1});
    memory.copy_out(0, back);
    EXPECT_EQ(back, std::vector<std::byte>(page_size()));
}

TEST_F(RealDeviceMemory, BadSizesAndAlignmentsHaveTheKernelsErrno) {
    EXPECT_THAT(error_of([&] { DeviceMemory(net_.context, 64, {.log2_alignment = 30}); }),
                fails_with("ibv_alloc_dm", EINVAL, "64 bytes aligned to 2^30 on rxe0"));
    EXPECT_THAT(error_of([&] { DeviceMemory(net_.context, capacity_ + 1); }),
                fails_with("ibv_alloc_dm", ENOMEM,
                           "reports " + std::to_string(capacity_) + " bytes of device memory"));
}

TEST_F(RealDeviceMemory, RunsOutAndComesBack) {
    std::vector<DeviceMemory> pieces;
    pieces.emplace_back(net_.context, capacity_ / 2);
    pieces.emplace_back(net_.context, capacity_ - capacity_ / 2);
    EXPECT_THAT(error_of([&] { DeviceMemory(net_.context, 4); }),
                fails_with("ibv_alloc_dm", ENOMEM, "4 bytes aligned to 2^0"));
    pieces.pop_back();
    EXPECT_NO_THROW(DeviceMemory(net_.context, 4));
}

TEST_F(RealDeviceMemory, KernelIsBusyWhileARegionUsesIt) {
    DeviceMemory memory(net_.context, 4096);
    std::optional<DeviceMemoryMR> region(std::in_place, pd_, memory);
    // Behind the library's back, whose own answer is the same.
    EXPECT_EQ(ibv_free_dm(memory.native()), EBUSY);
    EXPECT_THAT(error_of([&] { memory.close(); }), fails_with("ibv_free_dm", EBUSY, ""));
    std::array<std::byte, 4> word{};
    EXPECT_TRUE(memory.try_copy_out(0, word));
    region.reset();
    memory.close();
}

TEST_F(RealDeviceMemory, BadRegionsHaveTheKernelsErrno) {
    const DeviceMemory memory(net_.context, 8192);
    EXPECT_NO_THROW(DeviceMemoryMR(pd_, memory, {.access = full_access, .offset = 4096}));
    const auto kernel_says = [&](std::uint64_t offset, std::size_t length, unsigned access) {
        errno = 0;
        ibv_mr* const mr = ibv_reg_dm_mr(pd_.native(), memory.native(), offset, length, access);
        const int error = errno;
        EXPECT_EQ(mr, nullptr) << "offset " << offset << " length " << length;
        return error;
    };
    constexpr unsigned good = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
    EXPECT_EQ(kernel_says(4096, 4100, good), EINVAL);
    EXPECT_EQ(kernel_says(0, 8192, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    EXPECT_EQ(kernel_says(0, 8192, good | IBV_ACCESS_RELAXED_ORDERING), EINVAL);
    EXPECT_EQ(kernel_says(0, 8192, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE), EINVAL);
    // This one only the rig's device refuses, and its errno comes through.
    EXPECT_THAT(
        error_of([&] { DeviceMemoryMR(pd_, memory, {.offset = 4, .length = 8}); }),
        fails_with("ibv_reg_dm_mr", EINVAL, "8 bytes at offset 4 of device memory of 8192 bytes"));
}

TEST_F(RealDeviceMemory, RegionsOfItCountFromZero) {
    DeviceMemory memory(net_.context, 2 * page_size());
    const DeviceMemoryMR region(net_.b.pd, memory,
                                {.access = full_access, .offset = page_size(), .length = 256});
    const auto from = make_memory("host", net_.a.pd, 256);
    const auto bytes = pattern(256, 7);
    from->put(0, bytes);
    net_.connect();
    EXPECT_EQ(region.remote().address, 0U);
    ASSERT_TRUE(net_.a.qp->post_write(from->region().sge(), region.remote(), {.wr_id = 1}));
    net_.a.expect(1);
    std::vector<std::byte> back(256);
    memory.copy_out(page_size(), back);
    EXPECT_EQ(back, bytes);
    ASSERT_TRUE(net_.a.qp->post_write(from->region().sge(), region.remote().at(4), {.wr_id = 2}));
    EXPECT_EQ(net_.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

} // namespace
} // namespace rdmabuf::testing
