// SPDX-License-Identifier: BSD-3-Clause
// Contexts, attributes and what else of the driver has to be put right, and put back.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <string>

#include "cuda_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using CudaContexts = CudaTest;
using CudaAttributes = CudaTest;
using CudaFlush = CudaTest;
using CudaAllocate = CudaTest;

/// Makes the context of another device current, as a program may have.
class Elsewhere {
  public:
    Elsewhere() { EXPECT_EQ(cuCtxPushCurrent_v2(context()), abi::success); }
    ~Elsewhere() {
        EXPECT_EQ(fake_cuda_current_context(), context());
        abi::Context popped = nullptr;
        EXPECT_EQ(cuCtxPopCurrent_v2(&popped), abi::success);
    }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

  private:
    static abi::Context context() {
        return static_cast<abi::Context>(fake_cuda_program_context(1));
    }
};

TEST_F(CudaContexts, AreThoseOfTheMemoryAndThenAsBefore) {
    const std::uint64_t own = make(FakeCudaKind::device);
    const std::uint64_t mapped = map({{page_size(), 0, false, true}});
    const Elsewhere elsewhere;
    for (const std::uint64_t address : {own, mapped}) {
        EXPECT_TRUE(exporter_->find(address));
        EXPECT_FALSE(refusal(address, 1));
        EXPECT_EQ(fake_cuda_context_depth(), 1U);
    }
    EXPECT_EQ(fake_cuda_calls("cuDevicePrimaryCtxRetain"), 1U)
        << "to export the memory that has no context";
}

TEST_F(CudaContexts, AreNotNeededInTheThreadThatAsks) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const auto expected = put(address, page_size(), 1);
    auto asked = std::async(std::launch::async, [&] {
        EXPECT_EQ(fake_cuda_current_context(), nullptr);
        EXPECT_TRUE(exporter_->find(address));
        return bytes_of(exporter_->export_range(address, page_size()));
    });
    EXPECT_EQ(asked.get(), expected);
}

TEST_F(CudaContexts, ArePutBackWhicheverCallFails) {
    const std::uint64_t own = make(FakeCudaKind::device);
    const std::uint64_t mapped = map({{page_size(), 0, false, true}});
    const auto before = open_descriptors();
    const std::vector<std::pair<std::uint64_t, const char*>> steps{
        {own, "cuCtxPushCurrent_v2"},         {own, "cuMemGetAddressRange_v2"},
        {own, "cuPointerSetAttribute"},       {own, "cuMemGetHandleForAddressRange"},
        {mapped, "cuDevicePrimaryCtxRetain"}, {mapped, "cuCtxPushCurrent_v2"},
        {mapped, "cuMemGetAddressRange_v2"},  {mapped, "cuMemGetHandleForAddressRange"},
    };
    const Elsewhere elsewhere;
    for (const auto& [address, function] : steps) {
        fake_cuda_fail(function, 1, abi::out_of_memory);
        const auto error = refusal(address, 1);
        ASSERT_TRUE(error) << function;
        EXPECT_EQ(error->error(), ENOMEM) << function;
        EXPECT_EQ(std::string(function).find(std::string(error->function()).substr(0, 16)), 0U);
        EXPECT_THAT(error->what(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY (2)"));
        EXPECT_EQ(fake_cuda_context_depth(), 1U) << function;
        EXPECT_EQ(fake_cuda_primary_references(0), 0U) << function;
        EXPECT_EQ(open_descriptors(), before) << function;
    }
}

TEST_F(CudaContexts, ThatCannotBePutBackAreReported) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const TeardownFailures failures;
    fake_cuda_fail("cuCtxPopCurrent_v2", 1, abi::invalid_context);
    EXPECT_FALSE(refusal(address, 1));
    EXPECT_THAT(TeardownFailures::seen(),
                ::testing::ElementsAre(TeardownFailures::Failure("cuCtxPopCurrent", EIO)));
}

TEST_F(CudaContexts, ThatAreGoneAreTold) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_destroy_program_context(0);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("CUDA_ERROR_INVALID_CONTEXT (201)"),
                                     HasSubstr("was allocated has been destroyed")));
}

// What copies do

TEST_F(CudaAttributes, MakeCopiesSynchronousOnceForEachAllocation) {
    const std::uint64_t address = make(FakeCudaKind::device, 2 * page_size());
    (void)exporter_->export_range(address, 1);
    (void)exporter_->export_range(address + page_size(), 1);
    (void)make_cuda_exporter()->export_range(address, 1);
    EXPECT_EQ(fake_cuda_calls("cuPointerSetAttribute"), 1U);
    fake_cuda_free(address);
    ASSERT_EQ(make(FakeCudaKind::device, 2 * page_size()), address);
    (void)exporter_->export_range(address, 1);
    EXPECT_EQ(fake_cuda_calls("cuPointerSetAttribute"), 2U);
}

TEST_F(CudaAttributes, ThatCannotBeSetKeepMemoryFromBeingExported) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_fail("cuPointerSetAttribute", 1, abi::invalid_value);
    const auto error = refusal(address, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), EIO);
    EXPECT_STREQ(error->function(), "cuPointerSetAttribute(SYNC_MEMOPS)");
    EXPECT_THAT(error->what(), HasSubstr("RDMA and an unfinished cuMemcpy"));
    EXPECT_EQ(fake_cuda_calls("cuMemGetHandleForAddressRange"), 0U);
}

// Flushing

TEST_F(CudaFlush, AsksTheDriverInTheContextOfTheMemory) {
    const std::uint64_t address = make(FakeCudaKind::device);
    const Elsewhere elsewhere;
    EXPECT_TRUE(flush_cuda_writes(address));
    EXPECT_EQ(fake_cuda_flushed_scope(), abi::to_owner);
    EXPECT_EQ(fake_cuda_flushed_context(), fake_cuda_program_context(0));
    EXPECT_TRUE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    EXPECT_EQ(fake_cuda_flushed_scope(), abi::to_all_devices);
}

TEST_F(CudaFlush, IsNothingWhereTheDeviceOrdersWrites) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_set_attribute(0, 118, abi::to_owner);
    EXPECT_FALSE(flush_cuda_writes(address));
    EXPECT_EQ(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 0U);
    EXPECT_TRUE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    fake_cuda_set_attribute(0, 118, abi::to_all_devices);
    EXPECT_FALSE(flush_cuda_writes(address, CudaWriteScope::all_devices));
    EXPECT_EQ(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 1U);
}

TEST_F(CudaFlush, TellsWhatElseThereIsAndOfWhatFails) {
    const std::uint64_t address = make(FakeCudaKind::device);
    fake_cuda_fail("cuFlushGPUDirectRDMAWrites", 1, abi::not_supported);
    const auto failed = error_of([&] { flush_cuda_writes(address); });
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->error(), EOPNOTSUPP);
    EXPECT_THAT(failed->what(), HasSubstr("CUDA_ERROR_NOT_SUPPORTED (801)"));

    fake_cuda_set_attribute(0, 117, 2);
    const auto unable = error_of([&] { flush_cuda_writes(address); });
    ASSERT_TRUE(unable);
    EXPECT_EQ(unable->error(), EOPNOTSUPP);
    EXPECT_THAT(unable->what(), HasSubstr("CU_STREAM_WAIT_VALUE_FLUSH"));

    const auto unknown = error_of([&] { flush_cuda_writes(0x1234); });
    ASSERT_TRUE(unknown);
    EXPECT_EQ(unknown->error(), EFAULT);
}

TEST_F(CudaFlush, ComesBeforeACopyWhereItIsNeededAndPossible) {
    const Buffer buffer = exporter_->allocate(1);
    std::vector<std::byte> bytes(8);
    buffer.copy_out(0, bytes);
    EXPECT_EQ(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 1U);
    buffer.copy_in(0, bytes);
    fake_cuda_set_attribute(0, 117, 2); // not on behalf of the host
    buffer.copy_out(0, bytes);
    fake_cuda_set_attribute(0, 117, 1);
    fake_cuda_set_attribute(0, 118, abi::to_owner);
    buffer.copy_out(0, bytes);
    EXPECT_EQ(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 1U);
}

// Allocating

TEST_F(CudaAllocate, TakesTheDeviceThatWasChosen) {
    const auto exporter = make_cuda_exporter({.device = 1});
    {
        const Elsewhere elsewhere;
        const Buffer buffer = exporter->allocate(1);
        EXPECT_EQ(exporter_->find(buffer.address())->pci_address, "0000:3c:00.0");
        EXPECT_EQ(fake_cuda_primary_references(1), 1U);
        EXPECT_EQ(fake_cuda_live(), 1U);
    }
    EXPECT_EQ(fake_cuda_live(), 0U);
}

TEST_F(CudaAllocate, TellsWhichDevicesThereAre) {
    for (const int device : {2, -1}) {
        const auto exporter = make_cuda_exporter({.device = device});
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), ENODEV);
        EXPECT_THAT(error->what(), HasSubstr("no device " + std::to_string(device) +
                                             "; number of devices that this process sees: 2"));
        EXPECT_FALSE(exporter->availability());
    }
}

TEST_F(CudaAllocate, GivesBackWhatItHadWhicheverCallFails) {
    for (const char* const function :
         {"cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
          "cuMemAlloc_v2"}) {
        fake_cuda_fail(function, 1, abi::out_of_memory);
        const auto error = error_of([&] { (void)exporter_->allocate(1); });
        ASSERT_TRUE(error) << function;
        EXPECT_EQ(error->error(), ENOMEM);
        EXPECT_THAT(error->what(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY (2)"));
        EXPECT_EQ(fake_cuda_primary_references(0), 0U) << function;
        EXPECT_EQ(fake_cuda_context_depth(), 0U) << function;
        EXPECT_EQ(fake_cuda_live(), 0U) << function;
    }
}

TEST_F(CudaAllocate, SharesNoPageWhereTheDriverPacks) {
    fake_cuda_set_packed(true);
    const Buffer buffer = exporter_->allocate(100);
    EXPECT_EQ(buffer.address() % page_size(), 0U);
    EXPECT_EQ(buffer.size(), page_size());
    EXPECT_EQ(fake_cuda_live(), 1U);
    const std::vector<std::byte> expected(page_size(), std::byte{7});
    buffer.copy_in(0, expected);
    EXPECT_EQ(bytes_of(exporter_->export_range(buffer.address(), page_size())), expected);
}

TEST_F(CudaAllocate, TellsOfCopiesThatFail) {
    const Buffer buffer = exporter_->allocate(100);
    std::vector<std::byte> bytes(8);
    for (const char* const function : {"cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"}) {
        fake_cuda_fail(function, 1, 700);
        const auto error = error_of([&] {
            buffer.copy_in(0, bytes);
            buffer.copy_out(0, bytes);
        });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->error(), EIO);
        EXPECT_THAT(error->what(), AllOf(HasSubstr("(700)"), HasSubstr("8 bytes")));
        EXPECT_EQ(fake_cuda_context_depth(), 0U);
    }
}

TEST_F(CudaAllocate, SaysNothingOfADriverThatHasGoneFirst) {
    const TeardownFailures failures;
    {
        const Buffer buffer = exporter_->allocate(1);
        fake_cuda_fail("cuMemFree_v2", 1, abi::deinitialized);
    }
    EXPECT_THAT(TeardownFailures::seen(), ::testing::IsEmpty());
    {
        const Buffer buffer = exporter_->allocate(1);
        fake_cuda_fail("cuMemFree_v2", 1, abi::invalid_value);
    }
    EXPECT_THAT(TeardownFailures::seen(),
                ::testing::ElementsAre(TeardownFailures::Failure("cuMemFree", EIO)));
}

} // namespace
} // namespace rdmabuf::testing
