// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/result.hpp>

#include "common/process_driver.hpp"
#include "cuda/cuda_abi.hpp"

namespace rdmabuf::detail::cuda {

/// The functions of the driver.
struct Functions {
    GetErrorName* get_error_name = nullptr;
    Init* init = nullptr;
    DriverGetVersion* driver_get_version = nullptr;
    DeviceGetCount* device_get_count = nullptr;
    DeviceGet* device_get = nullptr;
    DeviceGetAttribute* device_get_attribute = nullptr;
    DeviceGetPciBusId* device_get_pci_bus_id = nullptr;
    DevicePrimaryContextRetain* device_primary_context_retain = nullptr;
    DevicePrimaryContextRelease* device_primary_context_release = nullptr;
    DevicePrimaryContextGetState* device_primary_context_get_state = nullptr;
    ContextGetCurrent* context_get_current = nullptr;
    ContextPushCurrent* context_push_current = nullptr;
    ContextPopCurrent* context_pop_current = nullptr;
    PointerGetAttribute* pointer_get_attribute = nullptr;
    PointerGetAttributes* pointer_get_attributes = nullptr;
    PointerSetAttribute* pointer_set_attribute = nullptr;
    MemGetAddressRange* mem_get_address_range = nullptr;
    MemGetHandleForAddressRange* mem_get_handle_for_address_range = nullptr;
    FlushGpuDirectRdmaWrites* flush_gpu_direct_rdma_writes = nullptr;
    MemAlloc* mem_alloc = nullptr;
    MemFree* mem_free = nullptr;
    MemcpyHtoD* memcpy_h_to_d = nullptr;
    MemcpyDtoH* memcpy_d_to_h = nullptr;
};

/// The driver, loaded but not initialised: that is a step that changes the process.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Initialises CUDA in this process, unless it is. @return why it cannot be used
    [[nodiscard]] std::optional<ErrorInfo> initialise() const;

    /// "CUDA_ERROR_NOT_SUPPORTED (801)"
    [[nodiscard]] std::string name_of(Result result) const;
    /// @param hint  what was asked for, and what to do; for some results the driver's own remedy is
    ///              added
    [[noreturn]] void raise(Result result, const char* function, std::string_view hint) const;
    void check(Result result, const char* function, std::string_view hint) const {
        if (result != success) {
            raise(result, function, hint);
        }
    }

    /// 0 for an attribute that the driver does not know yet.
    [[nodiscard]] int attribute(DeviceAttribute attribute, Device device) const noexcept;
    /// "0000:3b:00.0"; empty when the driver does not tell.
    [[nodiscard]] std::string pci_address(Device device) const;
};

/// The errno that stands for @p result.
[[nodiscard]] int errno_of(Result result) noexcept;

/// Passes a failed teardown on, but for those of a driver that has gone before: at the end of the
/// process, or in the child of one that used CUDA, there is nothing left to give back.
void report_teardown(Result result, const char* function) noexcept;

/// Keeps the primary context of a device alive, and creates it if it does not exist.
class PrimaryContext {
  public:
    PrimaryContext(const Driver& driver, Device device);
    ~PrimaryContext();
    PrimaryContext(const PrimaryContext&) = delete;
    PrimaryContext& operator=(const PrimaryContext&) = delete;

    [[nodiscard]] Context get() const noexcept { return context_; }

  private:
    const Functions* functions_;
    Device device_;
    Context context_ = nullptr;
};

/// Makes a context current for as long as it lives, and then the one before again.
class CurrentContext {
  public:
    CurrentContext(const Driver& driver, Context context);
    ~CurrentContext();
    CurrentContext(const CurrentContext&) = delete;
    CurrentContext& operator=(const CurrentContext&) = delete;

  private:
    const Functions* functions_;
};

} // namespace rdmabuf::detail::cuda
