// SPDX-License-Identifier: BSD-3-Clause
// On a fake VFIO device, whose errno are those of drivers/vfio/pci: this proves what the library
// asks for and makes of the answers, and not what a device does.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <rdmabuf/providers/vfio.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "fails_with.hpp"
#include "fake_kernel.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr const char* feature_call = "ioctl(VFIO_DEVICE_FEATURE)";
constexpr std::uintptr_t somewhere = std::uintptr_t{1} << 40;

class Vfio : public ::testing::Test {
  protected:
    /// The device's BARs: 8 pages, none, half a page, 64 pages.
    void open_device(int refusal = 0) {
        kernel.add_vfio("vfio0", {.bars = {8 * page_size(), 0, page_size() / 2, 64 * page_size()},
                                  .refusal = refusal});
        device = UniqueFd(::open("/dev/vfio/devices/vfio0", O_RDWR | O_CLOEXEC));
        exporter = make_vfio_exporter(device.get(), "0000:3b:00.0");
    }
    std::optional<Error> refusal(const VfioRegion& region) {
        return error_of([&] { (void)exporter->add(region); });
    }

    FakeKernel kernel;
    std::set<int> before = open_descriptors();
    UniqueFd device;
    std::shared_ptr<VfioExporter> exporter;
};

TEST_F(Vfio, KnowsPagesByTheAddressTheyAreMappedAt) {
    open_device();
    const AddedRange range = exporter->add(
        {.index = 3, .offset = 2 * page_size(), .length = 4 * page_size(), .address = somewhere});
    EXPECT_EQ(range.address(), somewhere);
    EXPECT_EQ(range.length(), 4 * page_size());
    const auto found = exporter->find(somewhere + 4 * page_size() - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, somewhere);
    EXPECT_EQ(found->kind, MemoryKind::device);
    EXPECT_EQ(found->pci_address, "0000:3b:00.0");
    const ExportedRange exported = exporter->export_range(somewhere + 100, 200);
    EXPECT_EQ(exported.offset(), 100U);
    EXPECT_EQ(exported.address(), somewhere + 100);
    EXPECT_EQ(::lseek(exported.fd(), 0, SEEK_END), static_cast<off_t>(4 * page_size()));
    FakeKernel::VfioPages pages{};
    ASSERT_EQ(::pread(exported.fd(), &pages, sizeof(pages), 0), ssize_t{sizeof(pages)});
    EXPECT_EQ(pages.region, 3U);
    EXPECT_EQ(pages.offset, 2 * page_size());
    EXPECT_TRUE(closed_on_exec(exported.fd()));
    EXPECT_EQ(kernel.inheritable(), 0U);
}

TEST_F(Vfio, TakesAllFromTheOffsetOnWithoutALength) {
    open_device();
    EXPECT_EQ(exporter->add({.index = 0, .address = somewhere}).length(), 8 * page_size());
    EXPECT_EQ(exporter->add({.index = 0, .offset = 7 * page_size(), .address = somewhere}).length(),
              page_size());
}

TEST_F(Vfio, GivesPagesThatAreNotMappedAnAddressOfTheirOwn) {
    open_device();
    const AddedRange first = exporter->add({.index = 0});
    const AddedRange second = exporter->add({.index = 3});
    EXPECT_NE(first.address(), 0U);
    EXPECT_EQ(first.address() % page_size(), 0U);
    EXPECT_EQ(exporter->find(first.address() + 1)->base, first.address());
    EXPECT_EQ(exporter->find(second.address() + 1)->base, second.address());
    // The kernel looks at the address for us: EFAULT instead of a signal.
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    EXPECT_EQ(::write(writer.get(), reinterpret_cast<const void*>(first.address()), 1), -1);
    EXPECT_EQ(errno, EFAULT);
}

TEST_F(Vfio, KeepsTheDeviceOpen) {
    open_device();
    const int number = device.get();
    device.reset();
    ASSERT_EQ(::fcntl(number, F_GETFD), -1);
    EXPECT_TRUE(exporter->availability());
    AddedRange range = exporter->add({.index = 0});
    exporter.reset();
    // Of the device, and of the dma-buf.
    EXPECT_EQ(open_descriptors().size(), before.size() + 2);
    range.remove();
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Vfio, AnExportedRangeKeepsTheDeviceOpen) {
    open_device();
    device.reset();
    std::optional<AddedRange> range = exporter->add({.index = 0});
    std::optional<ExportedRange> exported = exporter->export_range(range->address(), 1);
    range.reset();
    exporter.reset();
    EXPECT_EQ(open_descriptors().size(), before.size() + 2);
    exported.reset();
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Vfio, TellsThatItIsAvailable) {
    open_device();
    EXPECT_TRUE(exporter->availability());
    EXPECT_EQ(exporter->availability().reason, "BARs of the VFIO device 0000:3b:00.0");
    EXPECT_EQ(make_vfio_exporter(device.get())->availability().reason, "BARs of the VFIO device");
}

struct Answer {
    int error;
    const char* reason;
    const char* remedy;
};
constexpr std::array answers{
    Answer{ENOTTY, "this kernel does not support VFIO_DEVICE_FEATURE_DMA_BUF", "Linux 6.19"},
    Answer{EOPNOTSUPP, "the VFIO driver of this device does not export", "vfio-pci"},
    Answer{ENODEV, "the device was removed", ""},
    Answer{EPERM, "cannot be used: Operation not permitted (EPERM)", ""},
};

TEST_F(Vfio, TellsWhyTheKernelDoesNotExport) {
    for (const Answer& answer : answers) {
        open_device(answer.error);
        const Availability found = exporter->availability();
        EXPECT_FALSE(found);
        EXPECT_THAT(found.reason, HasSubstr(answer.reason));
        EXPECT_THAT(found.remedy, HasSubstr(answer.remedy));
        EXPECT_THAT(refusal({.index = 0, .address = somewhere}),
                    fails_with(feature_call, answer.error,
                               "bytes at offset 0 of region 0: " + found.reason, answer.remedy));
        EXPECT_FALSE(exporter->find(somewhere));
    }
}

TEST_F(Vfio, NeedsANewerKernelWhereTheProbeIsInvalid) {
    open_device(EINVAL);
    EXPECT_FALSE(exporter->availability());
    EXPECT_THAT(exporter->availability().remedy, HasSubstr("Linux 6.19"));
}

TEST_F(Vfio, TellsThatABarCannotBeShared) {
    open_device();
    kernel.fail_call(2, EINVAL); // behind the question for the region's size
    EXPECT_THAT(refusal({.index = 0}), fails_with(feature_call, EINVAL, "CONFIG_PCI_P2PDMA"));
}

// ENOSPC: an errno that no code here treats in its own way.
TEST_F(Vfio, LeaksNothingAndTellsWhenACallFails) {
    open_device();
    const auto open_before = open_descriptors();
    for (const int number : {ENOSPC, EINTR, EAGAIN}) {
        std::vector<std::string> failed;
        for (unsigned nth = 1;; ++nth) {
            ASSERT_LT(nth, 100U) << "the calls never end";
            kernel.fail_call(nth, number);
            const auto error = error_of([&] {
                const AddedRange range = exporter->add({.index = 0});
                (void)exporter->export_range(range.address(), 1);
            });
            EXPECT_EQ(open_descriptors(), open_before);
            const auto call = kernel.failed_call();
            if (!call) {
                EXPECT_FALSE(error) << error->what();
                break;
            }
            failed.push_back(*call);
            if (number == ENOSPC) {
                EXPECT_THAT(error, fails_with(*call, ENOSPC));
            } else if (call->rfind("ioctl", 0) == 0) {
                EXPECT_FALSE(error) << error->what();
            }
        }
        EXPECT_THAT(failed, IsSupersetOf({std::string("ioctl(VFIO_DEVICE_GET_REGION_INFO)"),
                                          std::string(feature_call), std::string("fcntl")}));
    }
}

TEST_F(Vfio, TellsWhatIsNoVfioDevice) {
    const UniqueFd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
    exporter = make_vfio_exporter(other.get());
    EXPECT_FALSE(exporter->availability());
    EXPECT_THAT(exporter->availability().reason, HasSubstr("not that of a VFIO device"));
    EXPECT_THAT(refusal({.index = 0}), fails_with(ENOTTY, "not that of a VFIO device"));
}

TEST_F(Vfio, TellsThatTheDeviceWasNotOpen) {
    exporter = make_vfio_exporter(-1);
    EXPECT_FALSE(exporter->availability());
    EXPECT_THAT(exporter->availability().reason, HasSubstr("was not open"));
    EXPECT_THAT(refusal({.index = 0}), fails_with(EBADF, "make the exporter while"));
}

TEST_F(Vfio, RefusesWhatIsNoPartOfABar) {
    open_device();
    const std::size_t page = page_size();
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    struct Refused {
        VfioRegion region;
        int error;
        std::string text;
    };
    const std::vector<Refused> all = {
        {{.index = 6}, ENODEV, "region 6 is not a BAR"},
        {{.index = 100}, ENODEV, "region 100 is not a BAR"},
        {{.index = 1}, EINVAL, "does not have BAR 1"},
        {{.index = 5}, EINVAL, "does not have BAR 5"},
        {{.index = 2}, EINVAL, "multiples of the page size"},
        {{.index = 0, .offset = 8}, EINVAL, "multiples of the page size"},
        {{.index = 0, .length = page + 1}, EINVAL, "multiples of the page size"},
        {{.index = 0, .length = 9 * page},
         ERANGE,
         std::to_string(9 * page) + " bytes at offset 0 of region 0, which has " +
             std::to_string(8 * page)},
        {{.index = 0, .offset = page, .length = 8 * page}, ERANGE, "which has"},
        {{.index = 0, .offset = 8 * page}, ERANGE, "which has"},
        {{.index = 0, .offset = most - page + 1, .length = 2 * page}, ERANGE, "which has"},
        {{.index = 0, .address = somewhere + 8}, EINVAL, "lies 8 bytes into its page"},
        {{.index = 0, .address = most - page + 1}, EINVAL, "do not fit"},
    };
    const auto open_before = open_descriptors();
    for (const auto& [region, number, text] : all) {
        const auto error = refusal(region);
        ASSERT_TRUE(error) << text;
        EXPECT_EQ(error->error(), number) << error->what();
        EXPECT_STREQ(error->function(), "add");
        EXPECT_THAT(error->hint(), HasSubstr(text));
    }
    EXPECT_EQ(open_descriptors(), open_before);
}

TEST_F(Vfio, RefusesAnOverlap) {
    open_device();
    const AddedRange range = exporter->add({.index = 0, .address = somewhere});
    EXPECT_THAT(refusal({.index = 3, .address = somewhere + page_size()}), fails_with(EEXIST));
    // The same pages may be known by several addresses.
    EXPECT_TRUE(exporter->add({.index = 0, .address = 2 * somewhere}).added());
}

} // namespace
} // namespace rdmabuf::testing
