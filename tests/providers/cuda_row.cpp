// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>

#include <rdmabuf/providers/cuda.hpp>

#include "cuda_calls.hpp"
#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"

namespace rdmabuf::testing {

using fake::Kind;

const DriverRow& driver_row() {
    using namespace detail::cuda;
    static const std::string out_of_memory_text = "CUDA_ERROR_OUT_OF_MEMORY (2)";
    const auto fails = [](const char* function) {
        return DriverFailure{function, out_of_memory, ENOMEM, out_of_memory_text};
    };
    static const DriverRow row{
        .name = "cuda",
        .make = [](int device) { return make_cuda_exporter({.device = device}); },
        .begin = [](const Allocator& exporter) { EXPECT_TRUE(exporter.availability()); },
        .end =
            [] {
                EXPECT_EQ(current_context(), nullptr) << "a context was left current";
                // With these faults, softverbs copies in the primary context and keeps it.
                EXPECT_LE(fake::primary_references(0), std::getenv("SOFTVERBS_FAULTS") ? 1U : 0U);
                EXPECT_EQ(fake::primary_references(1), 0U);
            },
        .libraries = {{.load = load_error<Driver>,
                       .absent = "the NVIDIA driver",
                       .install = "install the NVIDIA driver",
                       .lacks = {"cuMemGetHandleForAddressRange (available since CUDA 11.7)",
                                 "cuMemAlloc_v2"},
                       .has = {"cuInit"},
                       .update = "CUDA 11.7",
                       .old = LACKING_DRIVER}},
        .no_device = "CUDA_ERROR_NO_DEVICE (100)",
        .no_device_remedy = "CUDA_VISIBLE_DEVICES",
        .available = "libcuda.so.1 for CUDA 13.0, 0000:3b:00.0, 0000:3c:00.0",
        .allocate_failures = {{"cuInit", 802, EIO, "unknown result (802)"},
                              {"cuInit", 802, EIO, "nvidia-smi"},
                              fails("cuDeviceGetCount"),
                              fails("cuDeviceGet"),
                              fails("cuDevicePrimaryCtxRetain"),
                              fails("cuCtxPushCurrent_v2"),
                              fails("cuMemAlloc_v2")},
        .export_failures = {fails("cuCtxPushCurrent_v2"),
                            fails("cuMemGetAddressRange_v2"),
                            fails("cuMemGetHandleForAddressRange"),
                            {"cuMemGetHandleForAddressRange", operating_system, EIO, "ulimit -n"}},
        .copy_failures = {{"cuStreamCreate", 700, EIO, "(700): a stream"},
                          {"cuMemcpyHtoDAsync_v2", 700, EIO, "(700): 7 bytes"},
                          {"cuMemcpyDtoHAsync_v2", 700, EIO, "(700): 7 bytes"},
                          {"cuStreamSynchronize", 700, EIO, "(700): 7 bytes"}},
        .free_failures = {{"cuMemFree_v2", invalid_value, EIO, "cuMemFree"}},
        .silent_free_failures = {{"cuMemFree_v2", deinitialized, 0, ""}},
        .export_call = "cuMemGetHandleForAddressRange",
        .packs = true,
        .exports_pages = true,
        .uninitialised = {"cuInit", 0, ENODEV, "CUDA is not initialised in this process"},
        .kinds = {{Kind::device, MemoryKind::device, "0000:3c:00.0"},
                  {Kind::managed, MemoryKind::managed, "0000:3c:00.0"},
                  {Kind::pooled, MemoryKind::device, "0000:3c:00.0"},
                  {Kind::host, MemoryKind::pinned_host, "0000:3c:00.0"},
                  {Kind::host_without_device, MemoryKind::pinned_host, ""}},
        .refused_kinds = {{Kind::managed,
                           EOPNOTSUPP,
                           {"managed (cuMemAllocManaged)", "with cuMemAlloc"}},
                          {Kind::host, EOPNOTSUPP, {"by ibv_reg_mr()"}},
                          {Kind::host_without_device, EOPNOTSUPP, {"by ibv_reg_mr()"}}},
        .find_failures = {{"cuPointerGetAttributes", 999, EIO, "(999)"},
                          {"cuDeviceGet", not_initialized, ENODEV, "the device of the memory"},
                          {"cuDeviceGet", stub_library, ENODEV, "the device of the memory"},
                          {"cuPointerGetAttributes", deinitialized, ENODEV,
                           "the owner of the memory"},
                          fails("cuPointerGetAttributes"),
                          fails("cuMemGetAddressRange_v2"),
                          {"cuMemGetAddressRange_v2", invalid_value, EIO,
                           "CUDA_ERROR_INVALID_VALUE (1): the allocation that holds "}},
        .find_steps = {{"cuCtxPushCurrent_v2", invalid_context, 0, ""},
                       {"cuMemGetAddressRange_v2", not_found, 0, ""}},
        .export_step_result = invalid_value,
        .disable_exports =
            [] { fake::set_attribute(0, number(DeviceAttribute::dma_buf_supported), 0); },
        .disabled_texts = {"device 0 (0000:3b:00.0) does not export dma-bufs",
                           "open kernel modules", "nvidia_peermem"},
        .available_without_first = "libcuda.so.1 for CUDA 13.0, 0000:3c:00.0",
        .no_pcie = {not_supported, invalid_value},
        .pcie_failure = out_of_memory,
        .pcie_call = "cuMemGetHandleForAddressRange",
        .fork_text = "cannot be used in the child",
    };
    return row;
}

} // namespace rdmabuf::testing
