// SPDX-License-Identifier: BSD-3-Clause
// Registering real dma-bufs: what the kernel says to good and to bad input, and what we make of it.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/region.hpp>
#include <rdmabuf/resolver.hpp>

#include "fails_with.hpp"
#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

constexpr const char* function = "ibv_reg_dmabuf_mr";

class RealDmaBuf : public ::testing::TestWithParam<const char*> {
  protected:
    Loopback net_;
    const ProtectionDomain& pd_ = net_.a.pd;
    std::size_t size_ = 16 * page_size();
    Resolver resolver_ = Resolver::system();
    Buffer buffer_ = resolver_.allocator(GetParam())->allocate(size_);
    ExportedRange exported_ = resolver_.export_range(buffer_.address(), size_);

    [[nodiscard]] DmaBufRange range(std::uint64_t offset, std::size_t length) const {
        return {.fd = exported_.fd(), .offset = offset, .length = length};
    }
    auto refusal(const DmaBufRange& range, const DmaBufOptions& options = {}) {
        return error_of([&] { DmaBufMR(pd_, range, options); });
    }
};

TEST_P(RealDmaBuf, RegistersWithEveryAccessThereIs) {
    for (const Access access :
         {Access::local_read, Access::local_write, Access::remote_read,
          Access::local_write | Access::remote_write, Access::local_write | Access::remote_atomic,
          full_access, full_access | Access::relaxed_ordering}) {
        for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{size_ / 2}}) {
            DmaBufMR region(pd_, range(offset, size_ / 2), {.access = access});
            EXPECT_NE(region.lkey(), 0U);
            region.close();
            region.close();
        }
    }
}

TEST_P(RealDmaBuf, RangePastTheEndHasBothNumbers) {
    const auto real = static_cast<std::size_t>(::lseek(exported_.fd(), 0, SEEK_END));
    ASSERT_GE(real, size_);
    EXPECT_THAT(refusal(range(0, real + 1)),
                fails_with(function, EINVAL,
                           "the range ends at byte " + std::to_string(real + 1) +
                               " and the dma-buf has " + std::to_string(real) + " bytes"));
    EXPECT_THAT(refusal(range(real, page_size())),
                fails_with(function, EINVAL,
                           "the range ends at byte " + std::to_string(real + page_size())));
    EXPECT_NO_THROW(DmaBufMR(pd_, range(real - 1, 1)));
}

// What our own checks keep from the kernel is what the kernel refuses.
TEST_P(RealDmaBuf, KernelRefusesWhatIsRefusedBeforeIt) {
    const auto kernel_says = [this](std::uint64_t offset, std::size_t length, std::uint64_t iova,
                                    int access) {
        errno = 0;
        ibv_mr* const mr =
            ibv_reg_dmabuf_mr(pd_.native(), offset, length, iova, exported_.fd(), access);
        const int error = errno;
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
            return 0;
        }
        return error;
    };
    EXPECT_EQ(kernel_says(0, size_, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    EXPECT_EQ(kernel_says(0, 0, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    EXPECT_EQ(kernel_says(0, size_, 8, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    EXPECT_EQ(kernel_says(~std::uint64_t{0}, 1, ~std::uint64_t{0}, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    for (const int access :
         {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_ZERO_BASED,
          IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB, IBV_ACCESS_MW_BIND}) {
        EXPECT_EQ(kernel_says(0, size_, 0, access), EINVAL) << access;
        EXPECT_THAT(refusal(range(0, size_), {.access = static_cast<Access>(access)}),
                    fails_with(function, EINVAL, to_string(static_cast<Access>(access))));
    }
}

INSTANTIATE_TEST_SUITE_P(Kernel, RealDmaBuf, ::testing::Values("drm", "dma_heap", "udmabuf"),
                         [](const auto& name) { return std::string(name.param); });

class NoDmaBuf : public ::testing::Test {
  protected:
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};

    auto refusal(int fd) {
        return error_of([&, fd] { DmaBufMR(pd_, {.fd = fd, .length = 4096}); });
    }
};

TEST_F(NoDmaBuf, DeviceImportsThem) {
    EXPECT_EQ(to_string(context_.dmabuf_import()), "yes");
}

TEST_F(NoDmaBuf, DescriptorOfSomethingElse) {
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    EXPECT_THAT(refusal(event.get()),
                fails_with(function, EINVAL, "is not a dma-buf: it is anon_inode:[eventfd]"));
    const UniqueFd memory(::memfd_create("plain", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(memory.get(), 65536), 0);
    EXPECT_THAT(refusal(memory.get()),
                fails_with(function, EINVAL, "is not a dma-buf: it is /memfd:plain"));
}

// The mapping of a dma-buf is no host memory: plain registration cannot pin it.
TEST_F(NoDmaBuf, MappingOfOneCannotBeRegisteredAsHostMemory) {
    const Buffer buffer = Resolver::system().allocator("drm")->allocate(4096);
    const CpuAccess access = buffer.cpu_access();
    EXPECT_THAT(error_of([&] { MemoryRegion(pd_, access.bytes().data(), 4096); }),
                fails_with("ibv_reg_mr", EFAULT, "use its dma-buf"));
}

} // namespace
} // namespace rdmabuf::testing
