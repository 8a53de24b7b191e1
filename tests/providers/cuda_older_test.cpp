// SPDX-License-Identifier: BSD-3-Clause
// The driver of CUDA 11.2, which knows its memory and exports no dma-bufs. ibv_reg_mr takes its
// addresses where nvidia_peermem is loaded: they must not be registered as host memory.
#include <cerrno>

#include <rdmabuf/registration.hpp>

#include "cuda_fixture.hpp"
#include "loopback.hpp"

extern "C" {
// NOLINTNEXTLINE(readability-identifier-naming): a function of the CUDA driver
extern rdmabuf::detail::cuda::Init cuInit;
}

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaOlder : public ::testing::Test {
  protected:
    CudaOlder() {
        fake_cuda_reset(1);
        EXPECT_EQ(cuInit(0), abi::success);
        address_ = fake_cuda_make(FakeCudaKind::device, page_size(), 0);
    }

    std::shared_ptr<Allocator> exporter_ = make_cuda_exporter();
    std::uint64_t address_ = 0;
};

TEST_F(CudaOlder, KnowsDeviceMemoryAndSaysWhyItIsNotExported) {
    const auto found = exporter_->find(address_);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->length, page_size());
    const auto error = error_of([&] { (void)exporter_->export_range(address_, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOSYS);
    EXPECT_THAT(error->what(),
                HasSubstr("cuMemGetHandleForAddressRange (available since CUDA 11.7)"));
    EXPECT_FALSE(exporter_->availability());
}

TEST_F(CudaOlder, DeviceMemoryIsNeverRegisteredAsHostMemory) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    Trail trail;
    const auto error = error_of([&] {
        (void)register_memory(pd, Resolver({exporter_}), address_, page_size(), {.trail = &trail});
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOSYS);
    ASSERT_EQ(trail.size(), 2U);
    EXPECT_EQ(trail[1].path, RegistrationPath::host);
    EXPECT_EQ(trail[1].error, EPERM);
    EXPECT_STREQ(trail[1].call, "register_memory") << "verbs must not be called";
    EXPECT_THAT(trail[1].meaning, HasSubstr("device memory of cuda, which is never registered"));
}

TEST_F(CudaOlder, MemoryOfAFailingDriverIsNeverRegisteredAsHostMemory) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    Trail trail;
    fake_cuda_fail("cuPointerGetAttributes", 1, 999);
    const auto error = error_of([&] {
        (void)register_memory(pd, Resolver({exporter_}), address_, page_size(), {.trail = &trail});
    });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("(999)"), HasSubstr("may belong to cuda")));
    for (const Attempt& attempt : trail) {
        EXPECT_STRNE(attempt.call, "ibv_reg_mr");
    }
}

} // namespace
} // namespace rdmabuf::testing
