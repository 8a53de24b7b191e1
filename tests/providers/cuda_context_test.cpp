// SPDX-License-Identifier: BSD-3-Clause
// Contexts, the attribute SYNC_MEMOPS, flushes, and the addresses of allocate().
#include <rdmabuf/providers/cuda.hpp>

#include "cuda_calls.hpp"
#include "drivers/driver_fixture.hpp"

namespace rdmabuf::testing {
namespace {

namespace abi = detail::cuda;
using abi::DeviceAttribute;

constexpr const char* flush = "cuFlushGPUDirectRDMAWrites";
constexpr auto flush_options = DeviceAttribute::gpu_direct_rdma_flush_writes_options;
constexpr auto ordering = DeviceAttribute::gpu_direct_rdma_writes_ordering;

using CudaContexts = DriverTest;
using CudaAttributes = DriverTest;
using CudaFlush = DriverTest;
using CudaAllocate = DriverTest;

TEST_F(CudaContexts, StayCurrentWhicheverCallFails) {
    const std::uint64_t address = make();
    const CurrentContext elsewhere(1);
    for (const DriverFailure& failure : driver_row().export_failures) {
        fake::fail(failure.function, failure.result);
        EXPECT_THAT(refusal(address), is_error_of(failure));
        EXPECT_EQ(current_context(), program_context(1)) << failure.function;
    }
}

TEST_F(CudaContexts, ThatCannotBeRestoredAreReported) {
    const std::uint64_t address = make();
    const TeardownFailures failures;
    fake::fail("cuCtxPopCurrent_v2", abi::invalid_context);
    EXPECT_FALSE(refusal(address));
    EXPECT_THAT(TeardownFailures::seen(),
                ::testing::ElementsAre(TeardownFailures::Failure("cuCtxPopCurrent", EIO)));
}

TEST_F(CudaContexts, ThatAreDestroyedAreReported) {
    const std::uint64_t address = make();
    fake::destroy_program_context(0);
    EXPECT_THAT(refusal(address), fails_with(EIO, "CUDA_ERROR_INVALID_CONTEXT (201)",
                                             "was allocated has been destroyed"));
}

TEST_F(CudaAttributes, OfADeviceWithoutAPciAddressAreReported) {
    fake::set_attribute(1, number(DeviceAttribute::dma_buf_supported), 0);
    fake::fail("cuDeviceGetPCIBusId", abi::invalid_value);
    const Availability found = make_cuda_exporter()->availability();
    EXPECT_TRUE(found) << found.reason;
    EXPECT_THAT(found.reason, ::testing::HasSubstr("a device whose PCI address is unknown"));
}

TEST_F(CudaAttributes, MakeCopiesSynchronousOnceForEachAllocation) {
    const std::uint64_t address = make(fake::Kind::device, 2 * page_size());
    (void)exporter_->export_range(address, 1);
    (void)exporter_->export_range(address + page_size(), 1);
    (void)driver_row().make(0)->export_range(address, 1);
    EXPECT_EQ(fake::calls("cuPointerSetAttribute"), 1U);
    fake::free(address);
    ASSERT_EQ(make(fake::Kind::device, 2 * page_size()), address);
    (void)exporter_->export_range(address, 1);
    EXPECT_EQ(fake::calls("cuPointerSetAttribute"), 2U);
}

TEST_F(CudaAttributes, ThatCannotBeSetDoNotPreventTheExport) {
    const std::uint64_t address = make();
    fake::fail("cuPointerSetAttribute", abi::invalid_value);
    EXPECT_FALSE(refusal(address));
    EXPECT_EQ(fake::calls("cuPointerSetAttribute"), 1U);
}

TEST_F(CudaFlush, CallsTheDriverInTheContextOfTheMemory) {
    const std::uint64_t address = make();
    const CurrentContext elsewhere(1);
    EXPECT_TRUE(flush_cuda_writes(address));
    EXPECT_EQ(fake::recorded(flush), std::uint64_t{abi::to_owner});
    EXPECT_EQ(fake::recorded(std::string(flush) + "(context)"),
              reinterpret_cast<std::uint64_t>(program_context(0)));
    EXPECT_TRUE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    EXPECT_EQ(fake::recorded(flush), std::uint64_t{abi::to_all_devices});
}

TEST_F(CudaFlush, IsNotNeededWhereTheDeviceOrdersWrites) {
    const std::uint64_t address = make();
    fake::set_attribute(0, number(ordering), abi::to_owner);
    EXPECT_FALSE(flush_cuda_writes(address));
    EXPECT_EQ(fake::calls(flush), 0U);
    EXPECT_TRUE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    fake::set_attribute(0, number(ordering), abi::to_all_devices);
    EXPECT_FALSE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    EXPECT_EQ(fake::calls(flush), 1U);
}

TEST_F(CudaFlush, ReportsWhyItFailedAndTheAlternative) {
    const std::uint64_t address = make();
    fake::fail(flush, abi::not_supported);
    EXPECT_THAT(error_of([&] { flush_cuda_writes(address); }),
                fails_with(EOPNOTSUPP, "CUDA_ERROR_NOT_SUPPORTED (801)"));
    fake::set_attribute(0, number(flush_options), 2); // the host cannot flush
    EXPECT_THAT(error_of([&] { flush_cuda_writes(address); }),
                fails_with(EOPNOTSUPP, "CU_STREAM_WAIT_VALUE_FLUSH"));
    EXPECT_THAT(error_of([] { flush_cuda_writes(0x1234); }), fails_with(EFAULT));
}

TEST_F(CudaFlush, PrecedesACopyWhereItIsNeededAndPossible) {
    const Buffer buffer = allocator_->allocate(1);
    std::vector<std::byte> bytes(8);
    buffer.copy_out(0, bytes);
    EXPECT_EQ(fake::calls(flush), 1U);
    buffer.copy_in(0, bytes);
    fake::set_attribute(0, number(flush_options), 2); // the host cannot flush
    buffer.copy_out(0, bytes);
    fake::set_attribute(0, number(flush_options), 1);
    fake::set_attribute(0, number(ordering), abi::to_owner);
    buffer.copy_out(0, bytes);
    EXPECT_EQ(fake::calls(flush), 1U);
}

TEST_F(CudaAllocate, LeavesTheContextOfTheProgramCurrent) {
    const auto exporter = driver_row().make(1);
    const CurrentContext elsewhere(0);
    const Buffer buffer = exporter->allocate(1);
    EXPECT_EQ(current_context(), program_context(0));
    EXPECT_EQ(fake::primary_references(1), 1U);
}

// A copy in the legacy stream ends the capture of any stream of the context, and an allocation in a
// thread whose capture mode is not "relaxed" fails (CUDA driver API, cuStreamBeginCapture and
// cuThreadExchangeStreamCaptureMode).
TEST_F(CudaAllocate, AndCopiesDoNotDisturbTheCaptureOfAStream) {
    fake::set(fake::Setting::capturing, 1);
    const TeardownFailures failures;
    {
        const Buffer buffer = allocator_->allocate(8);
        const std::vector<std::byte> sent(8, std::byte{3});
        std::vector<std::byte> received(8);
        buffer.copy_in(0, sent);
        buffer.copy_out(0, received);
        EXPECT_EQ(received, sent);
    }
    EXPECT_THAT(TeardownFailures::seen(), ::testing::IsEmpty());
    int mode = 0;
    EXPECT_EQ(cuThreadExchangeStreamCaptureMode(&mode), abi::success);
    EXPECT_EQ(mode, 0) << "the program's mode";
    EXPECT_EQ(fake::calls("cuStreamCreate"), fake::calls("cuStreamDestroy_v2"));
}

TEST_F(CudaAllocate, SharesNoPageWhereTheDriverPacks) {
    fake::set(fake::Setting::packed, 1);
    const Buffer buffer = allocator_->allocate(100);
    EXPECT_EQ(buffer.address() % page_size(), 0U);
    EXPECT_EQ(buffer.size(), page_size());
    EXPECT_EQ(fake::live(), 1U);
    const std::vector<std::byte> expected(page_size(), std::byte{7});
    buffer.copy_in(0, expected);
    EXPECT_EQ(bytes_of(exporter_->export_range(buffer.address(), page_size())), expected);
}

} // namespace
} // namespace rdmabuf::testing
