// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/result.hpp>

#include "common/process_driver.hpp"
#include "rocm/rocm_abi.hpp"

namespace rdmabuf::detail::rocm {

/// The functions of the driver.
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
    /// Null before HSA AMD extension 1.9.
    ExportDmaBufV2* export_dmabuf_v2 = nullptr;
    CloseDmaBuf* close_dmabuf = nullptr;
};

/// The driver, loaded but not initialised: that is a step that changes the process.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// "HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008)"
    [[nodiscard]] std::string name_of(Status status) const;
    /// @param hint  what was asked for, and what to do; for some results the driver's own remedy is
    ///              added
    [[noreturn]] void raise(Status status, const char* function, std::string_view hint) const;
    void check(Status status, const char* function, std::string_view hint) const {
        if (status != success) {
            raise(status, function, hint);
        }
    }
};

/// The errno that stands for @p status.
[[nodiscard]] int errno_of(Status status) noexcept;

/// Passes a failed teardown on, but for that of a driver that has gone before, at the end of the
/// process: there is nothing left to give back then.
void report_teardown(Status status, const char* function) noexcept;

/// As the driver takes addresses.
[[nodiscard]] inline void* pointer_to(std::uintptr_t address) noexcept {
    return reinterpret_cast<void*>(address);
}

} // namespace rdmabuf::detail::rocm
