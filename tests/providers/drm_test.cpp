// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include <gmock/gmock.h>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/drm.hpp>

#include "exporter_suite.hpp"
#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Subject subject{.name = "drm",
                      .make = [] { return make_drm_exporter(); },
                      .machine =
                          [] {
                              auto kernel = std::make_shared<FakeKernel>();
                              kernel->add_card("card0");
                              return kernel;
                          }};

INSTANTIATE_TEST_SUITE_P(Drm, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Drm, ExporterFaults, ::testing::Values(subject));

class Drm : public ::testing::Test {
  protected:
    /// The refusal that both availability() and allocate() give.
    static Error refusal(const DrmOptions& options) {
        const auto exporter = make_drm_exporter(options);
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        const auto error = error_of([&] { (void)exporter->allocate(1); });
        EXPECT_TRUE(error);
        EXPECT_THAT(error->hint(), AllOf(HasSubstr(found.reason), HasSubstr(found.remedy)));
        return *error;
    }
    static std::string chosen(const DrmOptions& options) {
        return make_drm_exporter(options)->availability().reason;
    }

    FakeKernel kernel;
};

TEST_F(Drm, ChoosesANodeByPath) {
    kernel.add_card("card0");
    kernel.add_card("card1", {.driver = "virtio_gpu"});
    EXPECT_EQ(chosen({.path = "/dev/dri/card1"}), "/dev/dri/card1, virtio_gpu");
}

TEST_F(Drm, ChoosesANodeByDriver) {
    kernel.add_card("card0", {.driver = "i915"});
    kernel.add_card("card1");
    EXPECT_EQ(chosen({.driver = "vgem"}), "/dev/dri/card1, vgem");
}

TEST_F(Drm, ChoosesTheFirstNodeThatCan) {
    kernel.add_card("card0", {.driver = "no-dumb", .dumb_buffers = false});
    kernel.add_card("card1", {.driver = "no-export", .prime_export = false});
    kernel.add_card("card10", {.driver = "tenth"});
    kernel.add_card("card2", {.driver = "second"});
    kernel.add_card("renderD128");
    EXPECT_EQ(chosen({}), "/dev/dri/card2, second");
}

TEST_F(Drm, RefusesARenderNodeAlsoBehindAnotherName) {
    const std::string link = "/dev/dri/by-path/pci-0000:00:02.0-render";
    kernel.add_card("renderD128");
    kernel.add_link(link, "/dev/dri/renderD128");
    for (const std::string& path : {std::string("/dev/dri/renderD128"), link}) {
        const Error error = refusal({.path = path});
        EXPECT_EQ(error.error(), EACCES);
        EXPECT_STREQ(error.function(), "ioctl(DRM_IOCTL_MODE_CREATE_DUMB)");
        EXPECT_THAT(error.hint(),
                    AllOf(HasSubstr(path), HasSubstr("render nodes cannot make dumb buffers"),
                          HasSubstr("/dev/dri/cardN")));
    }
}

TEST_F(Drm, RefusesADeviceThatIsNotDrm) {
    kernel.add_heap("system");
    const Error error = refusal({.path = "/dev/dma_heap/system"});
    EXPECT_EQ(error.error(), ENOTTY);
    EXPECT_STREQ(error.function(), "ioctl(DRM_IOCTL_VERSION)");
    EXPECT_THAT(error.hint(), HasSubstr("/dev/dma_heap/system is not a DRM device"));
}

TEST_F(Drm, RefusesANodeOfAnotherDriver) {
    kernel.add_card("card0", {.driver = "i915"});
    const Error error = refusal({.path = "/dev/dri/card0", .driver = "vgem"});
    EXPECT_EQ(error.error(), ENODEV);
    EXPECT_THAT(error.hint(),
                HasSubstr("/dev/dri/card0 (i915) does not have the requested driver vgem"));
}

TEST_F(Drm, TellsWhatIsTheMatterWithEveryNode) {
    kernel.add_card("card0", {.driver = "no-dumb", .dumb_buffers = false});
    kernel.add_card("card1", {.driver = "no-export", .prime_export = false});
    kernel.add_card("card2");
    kernel.forbid("/dev/dri/card2");
    const Error error = refusal({});
    EXPECT_EQ(error.error(), ENOSYS);
    EXPECT_STREQ(error.function(), "ioctl(DRM_IOCTL_MODE_CREATE_DUMB)");
    EXPECT_THAT(error.hint(),
                AllOf(HasSubstr("/dev/dri/card0 (no-dumb) cannot make dumb buffers"),
                      HasSubstr("/dev/dri/card1 (no-export) cannot export dma-bufs"),
                      HasSubstr("no permission to open /dev/dri/card2"), HasSubstr("video")));
}

TEST_F(Drm, TellsThatAMachineHasNoPrimaryNode) {
    kernel.add_card("renderD128");
    const Error error = refusal({});
    EXPECT_EQ(error.error(), ENOENT);
    EXPECT_THAT(error.hint(), AllOf(HasSubstr("no DRM primary node"), HasSubstr("modprobe vgem")));
}

TEST_F(Drm, TellsThatAPathLeadsNowhere) {
    const Error error = refusal({.path = "/dev/dri/card7"});
    EXPECT_EQ(error.error(), ENOENT);
    EXPECT_THAT(error.hint(), HasSubstr("/dev/dri/card7"));
}

TEST_F(Drm, TellsWhichPciDeviceHoldsTheMemory) {
    kernel.add_card("card0");
    kernel.add_card("card1", {.driver = "amdgpu", .pci_address = "0000:3b:00.0"});
    const auto vgem = make_drm_exporter({.driver = "vgem"});
    const auto amdgpu = make_drm_exporter({.driver = "amdgpu"});
    const Buffer of_vgem = vgem->allocate(1);
    const Buffer of_amdgpu = amdgpu->allocate(1);
    const auto system = vgem->find(of_vgem.address());
    const auto device = amdgpu->find(of_amdgpu.address());
    ASSERT_TRUE(system && device);
    EXPECT_EQ(system->kind, MemoryKind::system);
    EXPECT_EQ(system->pci_address, "");
    EXPECT_EQ(device->kind, MemoryKind::device);
    EXPECT_EQ(device->pci_address, "0000:3b:00.0");
    EXPECT_FALSE(vgem->find(of_amdgpu.address()));
}

TEST_F(Drm, MakesTheLargestDumbBufferAndRefusesAPageMore) {
    kernel.add_card("card0");
    const std::size_t largest = (std::size_t{1} << 32) - page_size();
    EXPECT_EQ(make_drm_exporter()->allocate(largest).size(), largest);
    EXPECT_THAT(error_of([&] { (void)make_drm_exporter()->allocate(largest + 1); }),
                fails_with("ioctl(DRM_IOCTL_MODE_CREATE_DUMB)", EINVAL, "4294967296 bytes",
                           "at most " + std::to_string(largest)));
}

TEST_F(Drm, RefusesADumbBufferThatCameOutTooSmall) {
    kernel.add_card("card0", {.shortfall = page_size()});
    EXPECT_THAT(error_of([] { (void)make_drm_exporter()->allocate(4 * page_size()); }),
                fails_with(EIO, std::to_string(4 * page_size()),
                           "allocated: " + std::to_string(3 * page_size())));
    EXPECT_EQ(kernel.live_dumb_buffers(), 0U);
}

TEST_F(Drm, DestroysEveryDumbBufferItself) {
    kernel.add_card("card0");
    {
        const Buffer buffer = make_drm_exporter()->allocate(1);
        EXPECT_EQ(buffer.size(), page_size());
    }
    EXPECT_EQ(kernel.live_dumb_buffers(), 0U);
    EXPECT_EQ(kernel.abandoned_dumb_buffers(), 0U);
}

TEST_F(Drm, LeavesTheMastersPlaceToADisplayServer) {
    kernel.add_card("card0");
    const auto exporter = make_drm_exporter();
    const Buffer buffer = exporter->allocate(1);
    EXPECT_EQ(kernel.masters(), 0U);
}

} // namespace
} // namespace rdmabuf::testing
