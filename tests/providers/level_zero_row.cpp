// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>

#include <rdmabuf/providers/level_zero.hpp>

#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"
#include "fake_level_zero.hpp"
#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::testing {
namespace {

/// The loader reads the variable when it is loaded, before main().
[[maybe_unused]] const int set = ::setenv("ZE_ENABLE_ALT_DRIVERS", LEVEL_ZERO_DRIVER, 1);

} // namespace

using fake::Kind;

const DriverRow& driver_row() {
    using namespace detail::level_zero;
    static const std::string export_call = "zeMemGetAllocProperties(export)";
    static const auto loses_device = [](const char* function) {
        return DriverFailure{function, device_lost, ENODEV,
                             "ZE_RESULT_ERROR_DEVICE_LOST (0x70000001)"};
    };
    static const DriverRow row{
        .name = "level_zero",
        .make = [](int device) { return make_level_zero_exporter({.device = device}); },
        .for_program =
            [] { return make_level_zero_exporter({.contexts = {fake::program_context()}}); },
        .begin = [](const Allocator& exporter) { EXPECT_TRUE(exporter.availability()); },
        .end = [] { EXPECT_FALSE(fake_level_zero::kept_descriptor_was_closed()); },
        .libraries = {{.load = load_error<Driver>,
                       .absent = "the Level Zero loader",
                       .install = "libze1",
                       .lacks = {"zeMemGetAddressRange (available since Level Zero 1.0)",
                                 "zeCommandListAppendMemoryCopy"},
                       .has = {"zeInit", "zeDevicePciGetPropertiesExt"},
                       .update = "",
                       .old = LACKING_DRIVER}},
        .no_device = "there is no GPU 0; number of GPUs that this process sees: 0",
        .no_device_remedy = "ZE_AFFINITY_MASK",
        .available = "libze_loader.so.1 for Level Zero 1.3, 0001:3a:1f.1, 0001:3b:1f.1",
        .allocate_failures = {{"zeInit", 0x70123456, EIO, "unknown result (0x70123456)"},
                              {"zeMemAllocDevice", out_of_device_memory, ENOMEM,
                               "ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY (0x70000003)"}},
        // Intel's driver returns it for every failure of DRM_IOCTL_PRIME_HANDLE_TO_FD
        // (Context::handleAllocationExtensions() of compute-runtime).
        .export_failures = {{export_call, out_of_host_memory, EOPNOTSUPP,
                             "ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY (0x70000002)"},
                            {export_call, out_of_host_memory, EOPNOTSUPP, "ulimit -n"}},
        .copy_failures = {loses_device("zeDeviceGetCommandQueueGroupProperties"),
                          loses_device("zeCommandListCreateImmediate"),
                          loses_device("zeCommandListAppendMemoryCopy")},
        .free_failures = {{"zeMemFree", device_lost, ENODEV, "zeMemFree"}},
        .silent_free_failures = {{"zeMemFree", uninitialized, 0, ""}},
        .export_call = export_call,
        .no_descriptor = {"", 0, EOPNOTSUPP, "ze_external_memory_export_desc_t"},
        .uninitialised = {"zeInit", 0, EFAULT, "0x1234"},
        .calls_of_miss = 2, // in the contexts of the program and of the library
        .kinds = {{Kind::device, MemoryKind::device, "0001:3b:1f.1"},
                  {Kind::managed, MemoryKind::managed, ""},
                  {Kind::host, MemoryKind::pinned_host, ""}},
        .refused_kinds = {{Kind::managed,
                           EOPNOTSUPP,
                           {"shared (zeMemAllocShared), and migrates", "use zeMemAllocDevice"}}},
        .find_failures = {loses_device("zeMemGetAllocProperties"),
                          loses_device("zeMemGetAddressRange"),
                          {"zeMemGetAddressRange", device_lost, ENODEV, "check dmesg"},
                          {"zeMemGetAddressRange", invalid_argument, EIO, "INVALID_ARGUMENT"}},
        .find_steps = {{"zeMemGetAddressRange", out_of_host_memory, 0, ""},
                       {"zeMemGetAddressRange", address_not_found, 0, ""}},
        .export_step_result = unknown_error,
        .disable_exports = [] { fake::set_attribute(0, fake_level_zero::export_types, 1); },
        .disabled_texts = {"the GPU 0001:3a:1f.1 does not export its memory"},
        .available_without_first = "libze_loader.so.1 for Level Zero 1.3, 0001:3b:1f.1",
    };
    return row;
}

} // namespace rdmabuf::testing
