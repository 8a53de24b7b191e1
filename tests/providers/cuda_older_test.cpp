// SPDX-License-Identifier: BSD-3-Clause
// The driver of CUDA 11.2, which knows its memory and exports no dma-bufs. ibv_reg_mr takes its
// addresses where nvidia_peermem is loaded: they must not be registered as host memory.
#include <cerrno>

#include <rdmabuf/providers/cuda.hpp>
#include <rdmabuf/registration.hpp>

#include "cuda_calls.hpp"
#include "fails_with.hpp"
#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

namespace fake = fake_driver;
using ::testing::HasSubstr;

class CudaOlder : public ::testing::Test {
  protected:
    CudaOlder() {
        fake::reset(1);
        EXPECT_EQ(cuInit(0), detail::cuda::success);
        address_ = fake::make(fake::Kind::device, page_size());
    }

    std::shared_ptr<Allocator> exporter_ = make_cuda_exporter();
    std::uint64_t address_ = 0;
};

TEST_F(CudaOlder, KnowsDeviceMemoryAndSaysWhyItIsNotExported) {
    const auto found = exporter_->find(address_);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->length, page_size());
    EXPECT_THAT(error_of([&] { (void)exporter_->export_range(address_, 1); }),
                fails_with(ENOSYS, "cuMemGetHandleForAddressRange (available since CUDA 11.7)"));
    EXPECT_FALSE(exporter_->availability());
}

TEST_F(CudaOlder, MappingsAreFoundInThePrimaryContextOfTheProgram) {
    using detail::cuda::PointerAttribute;
    fake::forget_pointer_attribute(static_cast<int>(PointerAttribute::mapping_size));
    const std::uint64_t mapped = fake::reserve(page_size());
    fake::place(mapped, fake::Kind::mapped, page_size());
    EXPECT_THAT(error_of([&] { (void)exporter_->find(mapped); }),
                fails_with(ENODEV, "make a context current"));
    detail::cuda::Context primary = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), detail::cuda::success);
    const auto found = exporter_->find(mapped);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->length, page_size());
    EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), detail::cuda::success);
}

TEST_F(CudaOlder, DeviceMemoryIsNeverRegisteredAsHostMemory) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    Trail trail;
    const auto error = error_of([&] {
        (void)register_memory(pd, Resolver({exporter_}), address_, page_size(), {.trail = &trail});
    });
    EXPECT_THAT(error, fails_with(ENOSYS));
    ASSERT_EQ(trail.size(), 2U);
    EXPECT_EQ(trail[1].path, RegistrationPath::host);
    EXPECT_EQ(trail[1].error, EPERM);
    EXPECT_STREQ(trail[1].call, "register_memory") << "verbs must not be called";
    EXPECT_THAT(trail[1].meaning, HasSubstr("device memory of cuda, which is never registered"));
}

} // namespace
} // namespace rdmabuf::testing
