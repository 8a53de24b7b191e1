// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <rdmabuf/unique_fd.hpp>

#include "bar_allocator.hpp"
#include "exporter_suite.hpp"
#include "fake_kernel.hpp"

namespace rdmabuf::testing {
namespace {

/// Has the exporter for as long as a test, and with it the device open.
struct Machine {
    Machine() {
        kernel.add_vfio("vfio0", {.bars = {0x4000, 0, std::uint64_t{1} << 30}});
        const UniqueFd device(::open(path, O_RDWR | O_CLOEXEC));
        exporter = make_vfio_exporter(device.get(), "0000:3b:00.0");
    }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;
    ~Machine() { exporter.reset(); }

    static constexpr const char* path = "/dev/vfio/devices/vfio0";
    static inline std::shared_ptr<VfioExporter> exporter;
    FakeKernel kernel;
};

const Subject subject{
    .name = "vfio",
    .make = [] { return std::make_shared<BarAllocator>(Machine::exporter, Machine::path, 2U); },
    .machine = [] { return std::make_shared<Machine>(); },
    .works_with = "BARs of the VFIO device 0000:3b:00.0"};

INSTANTIATE_TEST_SUITE_P(Vfio, ExporterSuite, ::testing::Values(subject));
INSTANTIATE_TEST_SUITE_P(Vfio, ExporterFaults, ::testing::Values(subject));

} // namespace
} // namespace rdmabuf::testing
