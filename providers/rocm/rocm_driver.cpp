// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_driver.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "common/driver_library.hpp"
#include "common/driver_result.hpp"

namespace rdmabuf::detail::rocm {
namespace {

constexpr std::array library_names{"libhsa-runtime64.so.1", "libhsa-runtime64.so"};
constexpr const char* library_remedy =
    "install ROCm's HSA runtime (hsa-rocr); if it is not in a default library folder, add its "
    "folder to LD_LIBRARY_PATH (/opt/rocm/lib)";
constexpr const char* version_remedy = "install ROCm 5.6 or newer";

Functions look_up(SymbolLookup& lookup) {
    Functions all;
    constexpr const char* old = "ROCm 5.0";
    constexpr const char* dmabuf = "ROCm 5.6";
    lookup.required("hsa_init", all.init, old);
    lookup.required("hsa_shut_down", all.shut_down, old);
    lookup.required("hsa_status_string", all.status_string, old);
    lookup.required("hsa_system_get_info", all.system_get_info, old);
    lookup.required("hsa_iterate_agents", all.iterate_agents, old);
    lookup.required("hsa_agent_get_info", all.agent_get_info, old);
    lookup.needed("hsa_memory_copy", all.memory_copy, old);
    lookup.needed("hsa_amd_agent_iterate_memory_pools", all.agent_iterate_memory_pools, old);
    lookup.needed("hsa_amd_memory_pool_get_info", all.memory_pool_get_info, old);
    lookup.needed("hsa_amd_memory_pool_allocate", all.memory_pool_allocate, old);
    lookup.needed("hsa_amd_memory_pool_free", all.memory_pool_free, old);
    lookup.required("hsa_amd_pointer_info", all.pointer_info, old);
    lookup.required("hsa_amd_register_deallocation_callback", all.register_deallocation_callback,
                    old);
    lookup.required("hsa_amd_deregister_deallocation_callback",
                    all.deregister_deallocation_callback, old);
    lookup.needed("hsa_amd_portable_export_dmabuf", all.export_dmabuf, dmabuf);
    lookup.optional("hsa_amd_portable_export_dmabuf_v2", all.export_dmabuf_v2);
    return all;
}

/// Returns a remedy for @p status that fits all functions of the driver, or null if there is none.
const char* remedy_for(Status status) noexcept {
    switch (status) {
        case not_initialized:
            return "HSA is not initialised in this process; if a parent process initialised HSA "
                   "before fork(), HSA cannot be used in the child: fork before HSA is used, or "
                   "exec another program";
        case invalid_agent:
            return "the device that holds the memory cannot export it";
        default:
            return nullptr;
    }
}

} // namespace

DriverDescription<Functions> Driver::description() {
    return {library_names, "HSA runtime of ROCm", library_remedy, version_remedy, look_up};
}

std::string Driver::name_of(Status status) const {
    const char* text = nullptr;
    std::string name = "unknown status";
    if (functions().status_string(status, &text) == success && text != nullptr) {
        // HSA returns a name and a description: "HSA_STATUS_ERROR: A generic error has occurred."
        // Only the name is used.
        const std::string_view whole = text;
        name = whole.substr(0, whole.find(':'));
    }
    return name + " (" + hexadecimal(static_cast<unsigned>(status)) + ")";
}

void Driver::raise(Status status, const char* function, std::string_view hint) const {
    DriverFailure{name_of(status), errno_of(status), remedy_for(status)}.raise(function, hint);
}

int errno_of(Status status) noexcept {
    switch (status) {
        case out_of_resources:
            return ENOMEM;
        case not_initialized:
            return ENODEV;
        case invalid_allocation:
            return EFAULT;
        case invalid_agent:
        case not_supported:
            return EOPNOTSUPP;
        default:
            return EIO;
    }
}

void report_teardown(Status status, const char* function) noexcept {
    report_teardown_unless({success, not_initialized}, status, errno_of(status), function);
}

} // namespace rdmabuf::detail::rocm
