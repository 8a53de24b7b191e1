// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>

#include "common/process_driver.hpp"
#include "rocm/rocm_abi.hpp"

namespace rdmabuf::detail::rocm {

/// Holds pointers to the functions of the driver. A pointer is null if the library lacks the
/// function.
struct Functions {
    Init* init = nullptr;
    ShutDown* shut_down = nullptr;
    StatusString* status_string = nullptr;
    SystemGetInfo* system_get_info = nullptr;
    IterateAgents* iterate_agents = nullptr;
    AgentGetInfo* agent_get_info = nullptr;
    MemoryCopy* memory_copy = nullptr;
    AgentIterateMemoryPools* agent_iterate_memory_pools = nullptr;
    MemoryPoolGetInfo* memory_pool_get_info = nullptr;
    MemoryPoolAllocate* memory_pool_allocate = nullptr;
    MemoryPoolFree* memory_pool_free = nullptr;
    GetPointerInfo* pointer_info = nullptr;
    RegisterDeallocationCallback* register_deallocation_callback = nullptr;
    DeregisterDeallocationCallback* deregister_deallocation_callback = nullptr;
    ExportDmaBuf* export_dmabuf = nullptr;
    /// Available since HSA AMD extension 1.9; null for older runtimes.
    ExportDmaBufV2* export_dmabuf_v2 = nullptr;
};

/// Holds the functions of the loaded HSA runtime. This class does not initialise HSA, because the
/// initialisation has side effects in the process, such as new threads.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Returns the name and the value of a status, for example "HSA_STATUS_ERROR_OUT_OF_RESOURCES
    /// (0x1008)".
    [[nodiscard]] std::string name_of(Status status) const;
    /// Throws an Error for a failed call.
    /// @param hint  text that names the failed operation. For some statuses, this function appends
    ///              a remedy
    [[noreturn]] void raise(Status status, const char* function, std::string_view hint) const;
    void check(Status status, const char* function, std::string_view hint) const {
        if (status != success) {
            raise(status, function, hint);
        }
    }
};

[[nodiscard]] int errno_of(Status status) noexcept;

/// Reports a failed teardown to the teardown failure handler. If HSA has shut down at the end of
/// the process, the failure is ignored, because all objects of HSA are then freed.
void report_teardown(Status status, const char* function) noexcept;

/// Converts an address to the pointer that HSA functions take.
[[nodiscard]] inline void* pointer_to(std::uintptr_t address) noexcept {
    return reinterpret_cast<void*>(address);
}

} // namespace rdmabuf::detail::rocm
