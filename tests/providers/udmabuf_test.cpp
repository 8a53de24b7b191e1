// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/udmabuf.hpp>

#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Subject subject{.name = "udmabuf",
                      .make = [] { return make_udmabuf_exporter(); },
                      .machine =
                          [] {
                              auto kernel = std::make_shared<FakeKernel>();
                              kernel->add_udmabuf();
                              return kernel;
                          }};

INSTANTIATE_TEST_SUITE_P(Udmabuf, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Udmabuf, ExporterFaults, ::testing::Values(subject));

constexpr std::size_t mebibyte = 1 << 20;

class Udmabuf : public ::testing::Test {
  protected:
    FakeKernel kernel;
    std::shared_ptr<Allocator> exporter = make_udmabuf_exporter();
};

TEST_F(Udmabuf, TellsTheKernelsSizeLimit) {
    kernel.add_udmabuf(64);
    EXPECT_EQ(exporter->availability().reason, "/dev/udmabuf, up to 64 MiB per buffer");
}

TEST_F(Udmabuf, TellsWhenTheSizeLimitCannotBeRead) {
    kernel.add_udmabuf(64);
    kernel.hide_udmabuf_limit();
    EXPECT_TRUE(exporter->availability());
    EXPECT_EQ(exporter->availability().reason, "/dev/udmabuf; its size limit cannot be read");
}

TEST_F(Udmabuf, MakesABufferOfTheSizeLimit) {
    kernel.add_udmabuf(2);
    EXPECT_EQ(exporter->allocate(2 * mebibyte).size(), 2 * mebibyte);
}

TEST_F(Udmabuf, RefusesABufferOverTheSizeLimit) {
    kernel.add_udmabuf(2);
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(2 * mebibyte + 1); }),
                fails_with("ioctl(UDMABUF_CREATE)", EINVAL,
                           std::to_string(2 * mebibyte + page_size()) + " bytes", "2097152 (2 MiB)",
                           "udmabuf.size_limit_mb="));
}

TEST_F(Udmabuf, ExplainsAnUnreadableSizeLimit) {
    kernel.add_udmabuf(2);
    kernel.hide_udmabuf_limit();
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(3 * mebibyte); }),
                fails_with(EINVAL, "3145728 bytes",
                           "cannot be read from "
                           "/sys/module/udmabuf/parameters/size_limit_mb",
                           "udmabuf.size_limit_mb="));
}

TEST_F(Udmabuf, IsMissingWithoutItsDevice) {
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_THAT(found.reason, HasSubstr("/dev/udmabuf"));
    EXPECT_THAT(found.remedy, AllOf(HasSubstr("modprobe udmabuf"), HasSubstr("CONFIG_UDMABUF")));
    const auto error = error_of([&] { (void)exporter->allocate(1); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOENT);
    EXPECT_STREQ(error->function(), "open");
    EXPECT_EQ(error->hint(), found.reason + "; " + found.remedy);
}

TEST_F(Udmabuf, TellsThatItsDeviceIsForbidden) {
    kernel.add_udmabuf();
    kernel.forbid("/dev/udmabuf");
    const Availability found = exporter->availability();
    EXPECT_FALSE(found);
    EXPECT_EQ(found.reason, "this process has no permission to open /dev/udmabuf");
    EXPECT_THAT(found.remedy, HasSubstr("group"));
    EXPECT_THAT(error_of([&] { (void)exporter->allocate(1); }), fails_with(EACCES));
}

} // namespace
} // namespace rdmabuf::testing
