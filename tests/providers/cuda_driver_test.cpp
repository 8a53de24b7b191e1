// SPDX-License-Identifier: BSD-3-Clause
// The driver that is not there, too old, not initialised, or another process's.
#include "cuda/cuda_driver.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cuda_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaDriver, ThatIsAbsentIsToldWithWhatWasTried) {
    constexpr std::array names{"libcuda-of-nobody.so.1", "libcuda-of-nobody.so"};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("the NVIDIA driver cannot be loaded"),
                      HasSubstr("libcuda-of-nobody.so.1: "), HasSubstr("libcuda-of-nobody.so: ")));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("install the NVIDIA driver"));
}

TEST(CudaDriver, ThatIsTooOldIsToldWithWhatItLacks) {
    constexpr std::array names{LACKING_DRIVER};
    const auto loaded = abi::Driver::load(names);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error(), ENOSYS);
    EXPECT_THAT(loaded.reason(),
                AllOf(HasSubstr("cuMemGetHandleForAddressRange (available since CUDA 11.7)"),
                      HasSubstr("cuMemAlloc_v2"), Not(HasSubstr("cuInit"))));
    EXPECT_THAT(loaded.error_info().remedy(), HasSubstr("CUDA 11.7"));
}

TEST(CudaDriver, IsNotInitialisedByAsking) {
    fake_cuda_reset(1);
    const auto exporter = make_cuda_exporter();
    EXPECT_FALSE(exporter->find(0x1234));
    const auto error = error_of([&] { (void)exporter->export_range(0x1234, 1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_THAT(error->what(), AllOf(HasSubstr("CUDA_ERROR_NOT_INITIALIZED (3)"),
                                     HasSubstr("CUDA is not initialised in this process")));
    EXPECT_EQ(fake_cuda_calls("cuInit"), 0U);
}

TEST(CudaDriver, WithoutADeviceIsTold) {
    fake_cuda_reset(0);
    const auto exporter = make_cuda_exporter();
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("CUDA_ERROR_NO_DEVICE (100)"));
    EXPECT_THAT(found.remedy, HasSubstr("CUDA_VISIBLE_DEVICES"));
    const auto error = error_of([&] { (void)exporter->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENODEV);
    EXPECT_STREQ(error->function(), "cuInit");
}

TEST(CudaDriver, TellsOfAResultThatItHasNoNameFor) {
    fake_cuda_reset(1);
    fake_cuda_fail("cuInit", 1, 802);
    const Availability found = make_cuda_exporter()->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("unknown result (802)"));
    EXPECT_THAT(found.remedy, HasSubstr("nvidia-smi"));
}

TEST(CudaDriver, NamesTheDevicesThatExport) {
    fake_cuda_reset(2);
    const auto exporter = make_cuda_exporter();
    EXPECT_EQ(exporter->availability().reason,
              "libcuda.so.1 for CUDA 13.0, 0000:3b:00.0, 0000:3c:00.0");
    fake_cuda_set_attribute(0, 124, 0);
    EXPECT_EQ(exporter->availability().reason, "libcuda.so.1 for CUDA 13.0, 0000:3c:00.0");
    fake_cuda_set_attribute(1, 124, 0);
    const Availability none = exporter->availability();
    EXPECT_FALSE(none);
    EXPECT_THAT(none.reason, HasSubstr("does not export dma-bufs"));
    EXPECT_THAT(none.remedy, HasSubstr("open kernel modules"));
}

/// What a child of this process sees; 0 when it is what it has to be.
int look_after_fork(const Allocator& exporter, const Buffer& buffer) {
    if (exporter.find(buffer.address())) {
        return 1;
    }
    const auto error = error_of([&] { (void)exporter.export_range(buffer.address(), 1); });
    if (!error || error->error() != ENODEV ||
        error->hint().find("cannot be used in the child") == std::string::npos) {
        return 2;
    }
    const Availability found = exporter.availability();
    if (found || found.remedy.find("cannot be used in the child") == std::string::npos) {
        return 3;
    }
    return 0;
}

TEST(CudaDriver, IsNotThereInTheChildOfAProcessThatUsesIt) {
    fake_cuda_reset(1);
    const auto exporter = make_cuda_exporter();
    auto buffer = std::make_unique<Buffer>(exporter->allocate(1));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int wrong = look_after_fork(*exporter, *buffer);
        const TeardownFailures failures;
        buffer.reset(); // the parent's, and nothing to complain of
        wrong = wrong != 0 ? wrong : (TeardownFailures::seen().empty() ? 0 : 4);
        ::_exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_TRUE(exporter->find(buffer->address())) << "the parent's is as it was";
}

} // namespace
} // namespace rdmabuf::testing
