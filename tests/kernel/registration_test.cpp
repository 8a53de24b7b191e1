// SPDX-License-Identifier: BSD-3-Clause
// register_memory() on a real kernel: its paths, its keys, and what its trail says when the kernel
// refuses. The suite WithoutImport is for a device that imports no dma-bufs, and is run apart.
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/registration.hpp>

#include "fails_with.hpp"
#include "loopback.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using enum RegistrationPath;

constexpr const char* exporters[] = {"drm", "dma_heap", "udmabuf"};

/// Dma-bufs that the rig's module has attached now.
int imports() {
    int count = -1;
    std::ifstream("/sys/module/rdmabuf_rig/parameters/imports") >> count;
    return count;
}

/// What a program would print: one paragraph, of at least one sentence.
auto paragraph_with(const std::string& text) {
    return AllOf(HasSubstr(text), EndsWith("."), Not(HasSubstr("\n")));
}

class KernelRegistration : public ::testing::TestWithParam<const char*> {
  protected:
    std::size_t size_ = 16 * page_size();
    Resolver resolver_ = Resolver::system();
    Buffer buffer_ = resolver_.allocator(GetParam())->allocate(size_);
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    Trail trail_;

    [[nodiscard]] std::uintptr_t at(std::size_t offset) const { return buffer_.address() + offset; }
    auto refusal(std::span<const ProtectionDomain> pds, const RegistrationOptions& options) {
        RegistrationOptions traced = options;
        traced.trail = &trail_;
        return error_of(
            [&] { static_cast<void>(register_memory(pds, resolver_, at(0), size_, traced)); });
    }
    /// What the memory's owner is told about it never being host memory.
    [[nodiscard]] std::string never_host() const {
        return std::string("this is system memory of ") + GetParam() +
               ", which is never registered as host memory";
    }
};

TEST_P(KernelRegistration, TakesTheDmaBufPathForInteriorRanges) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{72}, page_size() + 511}) {
        for (const std::size_t length : {std::size_t{1}, page_size(), 3 * page_size() + 13}) {
            const Registration region = register_memory(pd_, resolver_, at(offset), length,
                                                        {.access = full_access, .trail = &trail_});
            EXPECT_EQ(region.path(), dmabuf);
            EXPECT_EQ(region.exporter(), GetParam());
            EXPECT_EQ(region.iova(), at(offset));
            EXPECT_EQ(region.remote(),
                      (RemoteRegion{
                          .address = at(offset), .length = length, .rkey = region.native()->rkey}));
            EXPECT_EQ(imports(), 1);
            EXPECT_EQ(to_string(trail_), std::string("dmabuf: ibv_reg_dmabuf_mr, memory of ") +
                                             GetParam() + ": registered.");
        }
    }
    EXPECT_EQ(imports(), 0);
}

TEST_P(KernelRegistration, ExportsOnceForSeveralProtectionDomains) {
    // What the first queue pair of a process opens stays open.
    Loopback().connect();
    Loopback net;
    net.connect();
    const std::array<ProtectionDomain, 2> pds{net.a.pd, net.b.pd};
    const auto before = open_descriptors();
    Registration region = register_memory(pds, resolver_, at(100), 9000, {.access = full_access});
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(region.trail().size(), 1U);
    EXPECT_NE(region.lkey(0), region.lkey(1));

    std::vector<std::byte> expected = pattern(size_, 3);
    buffer_.copy_in(0, expected);
    ASSERT_TRUE(
        net.a.qp->post_write(region.sge(0, 3000, 0), region.remote(1).at(5001), {.wr_id = 1}));
    net.a.expect(1);
    std::copy_n(expected.begin() + 100, 3000, expected.begin() + 5101);
    std::vector<std::byte> found(size_);
    buffer_.copy_out(0, found);
    EXPECT_TRUE(found == expected);
    region.close();
    EXPECT_EQ(region.check().error(), EBADF);
    EXPECT_EQ(imports(), 0);
}

TEST_P(KernelRegistration, LeavesNothingOpen) {
    register_memory(pd_, resolver_, at(0), size_).close();
    const auto before = open_descriptors();
    for (int i = 0; i < 100; ++i) {
        Registration region = register_memory(pd_, resolver_, at(8), size_ - 8);
        region.close();
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(imports(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernel, KernelRegistration, ::testing::ValuesIn(exporters),
                         [](const auto& name) { return std::string(name.param); });

using WithoutImport = KernelRegistration;

TEST_P(WithoutImport, TrailSaysWhoCannot) {
    const auto before = open_descriptors();
    EXPECT_THAT(refusal({&pd_, 1}, {.access = full_access}),
                fails_with("register_memory", EOPNOTSUPP, "the driver of rxe0"));
    EXPECT_EQ(open_descriptors(), before);
    ASSERT_EQ(trail_.size(), 2U);
    EXPECT_EQ(trail_[0].error, EOPNOTSUPP);
    EXPECT_EQ(trail_[1].error, EPERM);
    EXPECT_THAT(to_string(trail_),
                AllOf(paragraph_with("dmabuf: ibv_reg_dmabuf_mr on rxe0"),
                      HasSubstr("the driver of rxe0 or its rdma-core provider cannot import "
                                "dma-bufs; use a device and versions that can: mlx5"),
                      HasSubstr("; the driver rxe imports no dma-bufs up to Linux 7.3; dma-bufs "
                                "need a device that does DMA"),
                      HasSubstr(never_host()),
                      // The device lacks more than that.
                      Not(HasSubstr("remote_atomic"))));
    std::printf("%s\n", to_string(trail_).c_str());
}

INSTANTIATE_TEST_SUITE_P(Kernel, WithoutImport, ::testing::ValuesIn(exporters),
                         [](const auto& name) { return std::string(name.param); });

class KernelHostMemory : public ::testing::Test {
  protected:
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    Resolver resolver_ = Resolver::system();
    Trail trail_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(8 * page_size());

    auto refusal(const void* address, std::size_t length, RegistrationOptions options = {}) {
        options.trail = &trail_;
        return error_of(
            [&] { static_cast<void>(register_memory(pd_, resolver_, address, length, options)); });
    }
};

TEST_F(KernelHostMemory, IsTakenWhenNoExporterKnowsIt) {
    const Registration region =
        register_memory(pd_, resolver_, memory_.data() + 3, 1000, {.trail = &trail_});
    EXPECT_EQ(region.path(), host);
    EXPECT_EQ(to_string(trail_),
              "dmabuf: find: Bad address (EFAULT): unknown memory. "
              "host: ibv_reg_mr: registered.");
    EXPECT_THAT(refusal(memory_.data(), 1000, {.paths = {dmabuf}}),
                fails_with("register_memory", EFAULT, "unknown memory"));
    EXPECT_THAT(refusal(memory_.data(), 1000, {.device_memory = true}),
                fails_with("register_memory", EFAULT, "dma_heap, udmabuf"));
}

TEST_F(KernelHostMemory, ThatCannotBeWrittenIsEfault) {
    void* const text = const_cast<char*>("in a page that cannot be written");
    EXPECT_THAT(
        refusal(text, 8, {.access = Access::local_write}),
        fails_with("register_memory", EFAULT,
                   "host: ibv_reg_mr on " + context_.device_name() + ": Bad address (EFAULT)"));
    EXPECT_THAT(to_string(trail_), paragraph_with("unknown memory"));
}

/// Takes the right to pin without limit, which root has, from this thread, and sets a limit.
class PinningLimit {
  public:
    explicit PinningLimit(rlim_t bytes) {
        EXPECT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit_), 0);
        const rlimit low{.rlim_cur = bytes, .rlim_max = limit_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &low), 0);
        EXPECT_EQ(::syscall(SYS_capget, &header_, sets_.data()), 0);
        auto without = sets_;
        without[0].effective &= ~(1U << CAP_IPC_LOCK);
        EXPECT_EQ(::syscall(SYS_capset, &header_, without.data()), 0);
    }
    PinningLimit(const PinningLimit&) = delete;
    PinningLimit& operator=(const PinningLimit&) = delete;
    ~PinningLimit() {
        EXPECT_EQ(::syscall(SYS_capset, &header_, sets_.data()), 0);
        EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit_), 0);
    }

  private:
    rlimit limit_{};
    __user_cap_header_struct header_{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets_{};
};

TEST_F(KernelHostMemory, AboveThePinningLimitIsEnomem) {
    const PinningLimit limit(2 * page_size());
    EXPECT_THAT(
        refusal(memory_.data(), memory_.size()),
        fails_with("register_memory", ENOMEM,
                   "RLIMIT_MEMLOCK limits pinned memory to " + std::to_string(2 * page_size()) +
                       " bytes, and this registration pins " + std::to_string(memory_.size())));
    EXPECT_THAT(to_string(trail_), paragraph_with("host: ibv_reg_mr on " + context_.device_name()));
}

TEST_F(KernelHostMemory, OfAMemfdIsNoDmaBuf) {
    const auto memfds = make_memfd_exporter();
    resolver_ = Resolver({memfds});
    const Buffer buffer = memfds->allocate(4 * page_size());
    const auto* const address = reinterpret_cast<const void*>(buffer.address());
    EXPECT_THAT(refusal(address, 1000),
                fails_with("register_memory", EINVAL, "is not a dma-buf: it is /memfd:"));
    ASSERT_EQ(trail_.size(), 2U);
    EXPECT_EQ(trail_[0].error, EINVAL);
    EXPECT_EQ(trail_[1].error, EPERM);
    EXPECT_THAT(to_string(trail_),
                paragraph_with("memfd refuses importers: EINVAL from every kernel"));

    resolver_ = Resolver::system(); // which does not know it
    EXPECT_EQ(refusal(address, 1000), std::nullopt);
    ASSERT_EQ(trail_.size(), 2U);
    EXPECT_EQ(trail_[1].path, host);
}

} // namespace
} // namespace rdmabuf::testing
