// SPDX-License-Identifier: BSD-3-Clause
// The exporter of VFIO devices on the kernel's own vfio-pci, with BAR 2 of the device that run
// --vfio adds. VFIO_DEVICE and VFIO_GROUP name it. The rig's device pins and takes no peer memory,
// so what it proves ends with the kernel's refusal to attach it.
#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/providers/vfio.hpp>
#include <rdmabuf/registration.hpp>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t bar = 2;
constexpr std::size_t bar_size = std::size_t{1} << 20U;

int succeeded(int result, const char* what) {
    if (result < 0) {
        throw std::system_error(errno, std::system_category(), what);
    }
    return result;
}

std::string required(const char* variable) {
    const char* const value = std::getenv(variable);
    if (value == nullptr) {
        throw std::runtime_error(std::string(variable) + " is not set: run tests/kernel/vfio");
    }
    return value;
}

/// The device behind the guest's IOMMU, as a program opens it that drives it.
struct Device {
    std::string address = required("VFIO_DEVICE");
    UniqueFd container{succeeded(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC), "container")};
    UniqueFd group{succeeded(::open(required("VFIO_GROUP").c_str(), O_RDWR | O_CLOEXEC), "group")};
    UniqueFd fd = open();

    UniqueFd open() {
        int number = container.get();
        succeeded(::ioctl(group.get(), VFIO_GROUP_SET_CONTAINER, &number),
                  "VFIO_GROUP_SET_CONTAINER");
        succeeded(::ioctl(container.get(), VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU), "VFIO_SET_IOMMU");
        return UniqueFd(succeeded(::ioctl(group.get(), VFIO_GROUP_GET_DEVICE_FD, address.c_str()),
                                  "VFIO_GROUP_GET_DEVICE_FD"));
    }
};

class RealVfio : public ::testing::Test {
  protected:
    Device device_;
    std::shared_ptr<VfioExporter> exporter_ = make_vfio_exporter(device_.fd.get(), device_.address);
    Resolver resolver_{{exporter_}};
};

TEST_F(RealVfio, IsAvailable) {
    const Availability there = exporter_->availability();
    EXPECT_TRUE(there);
    EXPECT_EQ(there.reason, "BARs of the VFIO device " + device_.address);
}

TEST_F(RealVfio, ExportsAllOfABarAndPartsOfIt) {
    const std::size_t page = page_size();
    const auto before = open_descriptors();
    for (const VfioRegion& region :
         {VfioRegion{.index = bar}, VfioRegion{.index = bar, .offset = 4 * page},
          VfioRegion{.index = bar, .offset = bar_size - page, .length = page}}) {
        const std::size_t length = region.length != 0 ? region.length : bar_size - region.offset;
        const AddedRange range = exporter_->add(region);
        EXPECT_EQ(range.length(), length);
        EXPECT_EQ(range.allocation().kind, MemoryKind::device);
        const ExportedRange exported = resolver_.export_range(range.address() + 100, 200);
        EXPECT_EQ(exported.exporter(), "vfio");
        EXPECT_EQ(exported.offset(), 100U);
        EXPECT_EQ(::lseek(exported.fd(), 0, SEEK_END), static_cast<off_t>(length));
        EXPECT_TRUE(closed_on_exec(exported.fd()));
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(RealVfio, RefusesWhatTheDeviceDoesNotHave) {
    EXPECT_THAT(error_of([&] { (void)exporter_->add({.index = 1}); }),
                fails_with("add", EINVAL, "the device does not have BAR 1"));
    EXPECT_THAT(error_of([&] { (void)exporter_->add({.index = bar, .offset = bar_size}); }),
                fails_with("add", ERANGE, "which has " + std::to_string(bar_size) + " bytes"));
    // The registers, which are less than a page.
    EXPECT_THAT(error_of([&] { (void)exporter_->add({.index = 0}); }),
                fails_with("add", EINVAL, "offset and length must be multiples of the page size"));
}

TEST_F(RealVfio, IsRefusedByTheKernelToAnImporterThatPins) {
    const Context context = Context::open_first();
    const ProtectionDomain pd(context);
    ASSERT_EQ(to_string(context.dmabuf_import()), "yes");
    vfio_region_info info{};
    info.argsz = sizeof(info);
    info.index = bar;
    ASSERT_EQ(::ioctl(device_.fd.get(), VFIO_DEVICE_GET_REGION_INFO, &info), 0);
    ASSERT_EQ(info.size, bar_size);
    void* const mapped = ::mmap(nullptr, bar_size, PROT_READ | PROT_WRITE, MAP_SHARED,
                                device_.fd.get(), static_cast<off_t>(info.offset));
    ASSERT_NE(mapped, MAP_FAILED);
    {
        const AddedRange range =
            exporter_->add({.index = bar, .address = reinterpret_cast<std::uintptr_t>(mapped)});
        const ExportedRange exported = resolver_.export_range(range.address(), bar_size);
        errno = 0;
        EXPECT_EQ(ibv_reg_dmabuf_mr(pd.native(), exported.offset(), bar_size, range.address(),
                                    exported.fd(), IBV_ACCESS_LOCAL_WRITE),
                  nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP);

        const auto before = open_descriptors();
        Trail trail;
        EXPECT_THAT(
            error_of(
                [&] { (void)register_memory(pd, resolver_, mapped, 5000, {.trail = &trail}); }),
            fails_with("register_memory", EOPNOTSUPP, "rxe0 can import dma-bufs, but not from"));
        EXPECT_EQ(open_descriptors(), before);
        EXPECT_EQ(trail[0].error, EOPNOTSUPP);
        EXPECT_EQ(trail.back().error, EPERM);
        EXPECT_THAT(to_string(trail),
                    AllOf(HasSubstr("dmabuf: ibv_reg_dmabuf_mr on rxe0, memory of vfio: "),
                          HasSubstr("vfio refuses importers: EOPNOTSUPP unless the importer "
                                    "supports revocation and peer memory"),
                          HasSubstr("device memory of vfio, which is never registered as host "
                                    "memory"),
                          EndsWith("."), Not(HasSubstr("\n"))));
        std::printf("%s\n", to_string(trail).c_str());
    }
    EXPECT_EQ(::munmap(mapped, bar_size), 0);
    int imports = -1;
    std::ifstream("/sys/module/rdmabuf_rig/parameters/imports") >> imports;
    EXPECT_EQ(imports, 0);
}

} // namespace
} // namespace rdmabuf::testing
