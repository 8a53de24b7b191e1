// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/rocm.hpp>

#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"
#include "rocm/rocm_driver.hpp"
#include "rocm_calls.hpp"

namespace rdmabuf::testing {

using fake::Kind;

const DriverRow& driver_row() {
    using namespace detail::rocm;
    static const std::string export_call = "hsa_amd_portable_export_dmabuf";
    static const auto fails = [](const char* function) {
        return DriverFailure{function, out_of_resources, ENOMEM,
                             "HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"};
    };
    static const DriverRow row{
        .name = "rocm",
        .make = [](int device) { return make_rocm_exporter({.device = device}); },
        .begin = [](const Allocator& /*exporter*/) { EXPECT_EQ(hsa_init(), success); },
        .end =
            [] {
                EXPECT_EQ(fake::references(), 1U) << "HSA is not as the program initialised it";
                EXPECT_EQ(fake::notifiers(), 0U) << "the driver would still call back";
            },
        .libraries = {{.load = load_error<Driver>,
                       .absent = "the HSA runtime of ROCm",
                       .install = "LD_LIBRARY_PATH",
                       .lacks = {"hsa_amd_portable_export_dmabuf (available since ROCm 5.6)"},
                       .has = {"hsa_init", "_v2"},
                       .update = "ROCm 5.6",
                       .old = LACKING_DRIVER}},
        .no_device = "no GPU 0; number of GPUs that this process sees: 0",
        .no_device_remedy = "ROCR_VISIBLE_DEVICES",
        .available = "libhsa-runtime64.so.1, 0000:3b:00.0, 0000:3c:00.0",
        .allocate_failures = {fails("hsa_iterate_agents"),
                              fails("hsa_amd_agent_iterate_memory_pools"),
                              fails("hsa_amd_memory_pool_allocate")},
        .export_failures = {{export_call, invalid_allocation, EFAULT,
                             "HSA_STATUS_ERROR_INVALID_ALLOCATION (0x1003)"},
                            {export_call, invalid_agent, EOPNOTSUPP,
                             "HSA_STATUS_ERROR_INVALID_AGENT (0x1004)"},
                            {export_call, out_of_resources, ENOMEM, "ulimit -n"},
                            {export_call, general_error, EIO, "HSA_STATUS_ERROR (0x1000)"},
                            {export_call, general_error, EIO, "of 0000:3b:00.0"},
                            {export_call, 0x1234, EIO, "unknown status (0x1234)"}},
        .copy_failures = {{"hsa_memory_copy", general_error, EIO, "(0x1000)"}},
        .free_failures = {{"hsa_amd_memory_pool_free", general_error, EIO,
                           "hsa_amd_memory_pool_free"}},
        .silent_free_failures = {{"hsa_amd_memory_pool_free", not_initialized, 0, ""}},
        .export_call = export_call,
        .packs = true,
        .uninitialised = {"hsa_init", 0, ENODEV, "HSA is not initialised in this process"},
        .kinds = {{Kind::device, MemoryKind::device, "0000:3c:00.0"},
                  {Kind::host, MemoryKind::pinned_host, ""},
                  {Kind::locked, MemoryKind::pinned_host, ""},
                  {Kind::ipc, MemoryKind::device, "0000:3c:00.0"},
                  {Kind::graphics, MemoryKind::device, "0000:3c:00.0"}},
        // The driver would end the process at exports of the last four kinds.
        .refused_kinds = {{Kind::host, EOPNOTSUPP, {"host memory", "ibv_reg_mr()"}},
                          {Kind::locked, EOPNOTSUPP, {"host memory", "ibv_reg_mr()"}},
                          {Kind::mapped,
                           EOPNOTSUPP,
                           {"hipMemMap", "hipMemExportToShareableHandle"}},
                          {Kind::ipc, EOPNOTSUPP, {"hipIpcOpenMemHandle"}},
                          {Kind::graphics, EOPNOTSUPP, {"of a graphics driver"}},
                          {Kind::reserved, EOPNOTSUPP, {"reserved addresses"}}},
        .find_failures = {{"hsa_amd_pointer_info", general_error, EIO, "(0x1000)"}},
        .export_step_result = invalid_allocation,
        .disable_exports = [] { fake::set(fake::Setting::no_dma_bufs, 1); },
        .disabled_texts = {"does not export dma-bufs", "KFD"},
        .no_pcie = {not_supported},
        .pcie_failure = out_of_resources,
        .pcie_call = "hsa_amd_portable_export_dmabuf_v2",
        .fork_text = "HSA cannot be used in",
        .child_calls_driver = false,
    };
    return row;
}

} // namespace rdmabuf::testing
