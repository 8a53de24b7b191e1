// SPDX-License-Identifier: BSD-3-Clause
//
// The conditions of `rdmabuf doctor` on what the CUDA driver reports.
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checked_condition.hpp"

namespace rdmabuf::tools::doctor {
namespace {

using ::testing::HasSubstr;

/// Checks one condition on a recorded machine, whose CUDA driver is @p cuda.
/// @return the first finding
Finding check_with(const char* machine, std::string_view id,
                   const std::function<CudaDevices()>& cuda) {
    return rdmabuf::testing::check_condition(machine, id, SystemQueries{.cuda = cuda}).at(0);
}

/// The GPU 0000:03:00.0 as an H100 with a new driver.
CudaDevice h100() {
    return {.pci_address = "0000:03:00.0",
            .major = 9,
            .dmabuf = 1,
            .gpu_direct_rdma = 1,
            .integrated = 0,
            .virtual_memory_rdma = 1};
}

Finding check_gpu(std::string_view id, const CudaDevice& device, int driver_version = 12040,
                  const char* machine = "below_a_switch") {
    return check_with(machine, id, [&] {
        return CudaDevices{.driver_version = driver_version, .devices = {device}};
    });
}

TEST(DoctorCudaTest, AllConditionsOfANewGpuAreMetAlsoWithoutAnRdmaDevice) {
    CudaDevice without_nic = h100();
    without_nic.pci_address = "0000:00:06.0";
    for (const char* const id : {"C-13", "C-14", "C-15", "C-16", "C-18"}) {
        EXPECT_EQ(check_gpu(id, h100()).verdict, Verdict::pass) << id;
        EXPECT_EQ(check_gpu(id, without_nic, 13000, "h100_without_nic").verdict, Verdict::pass)
            << id;
    }
}

TEST(DoctorCudaTest, EachValueThatTheDriverReportsCanFailItsCondition) {
    CudaDevice volta = h100();
    volta.major = 7;
    EXPECT_THAT(check_gpu("C-13", volta).advice.remedy, HasSubstr("nvidia_peermem"));
    EXPECT_THAT(check_gpu("C-14", h100(), 11060).advice.remedy, HasSubstr("R515"));
    CudaDevice refused = h100();
    refused.dmabuf = 0;
    EXPECT_EQ(check_gpu("C-15", refused).verdict, Verdict::fail);
    CudaDevice integrated = h100();
    integrated.integrated = 1;
    EXPECT_THAT(check_gpu("C-16", integrated).advice.remedy, HasSubstr("cudaHostAlloc"));
}

TEST(DoctorCudaTest, MemoryOfCuMemCreateNeedsADriverThatAllocatesItForRdma) {
    CudaDevice device = h100();
    device.virtual_memory_rdma = 0;
    const Finding finding = check_gpu("C-18", device);
    EXPECT_EQ(finding.verdict, Verdict::fail);
    EXPECT_EQ(finding.severity, Severity::blocks);
    EXPECT_THAT(finding.advice.remedy, HasSubstr("cuMemAlloc()"));
    device.virtual_memory_rdma.reset();
    EXPECT_EQ(check_gpu("C-18", device).verdict, Verdict::fail) << "CUDA before 11.2";
}

TEST(DoctorCudaTest, WithExpandableSegmentsTheVersionOfPyTorchDecides) {
    const Finding finding = check_gpu("C-18", h100(), 12040, "no_iommu");
    EXPECT_EQ(finding.verdict, Verdict::unknown);
    EXPECT_THAT(finding.advice.remedy, HasSubstr("PYTORCH_CUDA_ALLOC_CONF"));
}

TEST(DoctorCudaTest, TheDriverIsNotQueriedWithTheProprietaryModules) {
    const Finding finding = check_with("across_host_bridges", "C-14", []() -> CudaDevices {
        throw std::logic_error("the driver was queried");
    });
    EXPECT_EQ(finding.verdict, Verdict::pass);
    EXPECT_EQ(finding.found, "driver R535") << "as /proc/driver/nvidia/version says";
}

TEST(DoctorCudaTest, AGpuThatCudaDoesNotListIsUnknown) {
    CudaDevice other = h100();
    other.pci_address = "0000:04:00.0";
    EXPECT_THAT(check_gpu("C-18", other).found, HasSubstr("does not list"));
}

} // namespace
} // namespace rdmabuf::tools::doctor
